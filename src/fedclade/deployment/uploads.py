"""One round of training and uploads on real devices: who is called when, what arrives, and what does not."""

import time
from collections.abc import Sequence

import numpy as np

from fedclade.core.arrays import Ints, Singles
from fedclade.core.timeline import Timeline
from fedclade.core.updates import HeldUpdates
from fedclade.deployment.measured_edge import Span, as_happened
from fedclade.deployment.transport import TRAIN, UPLOAD, Reply, Transport
from fedclade.fleet.told import Told
from fedclade.fleet.trouble import Trouble
from fedclade.scheduling.planner import Plan


class Uploads:
    """The uploads of one round, from the first message to the last reply or the deadline.

    Afterwards ``spans`` tells when each upload took place, ``failed`` why others did not, ``late`` how long devices
    were waited for in vain, and ``seconds`` how long all of it took.
    """

    def __init__(self, transport: Transport, plan: Plan, parameters: int, subchannels: int) -> None:
        self._transport, self._plan, self._subchannels = transport, plan, subchannels
        computing = plan.computing.tolist()
        self._row = {device: row for row, device in enumerate(computing)}
        self._updates = np.empty((len(computing), parameters), dtype=np.float32)
        self._turns = Turns([device for device in plan.timeline.device.tolist() if device in self._row], subchannels)
        self.spans: dict[int, Span] = {}
        self.failed: dict[int, Trouble] = {}
        self.late: dict[int, float] = {}
        self.seconds = 0.0

    def carry_out(self, models: Singles, model_of: Ints, allowed: float) -> None:
        """Let every device train row ``model_of[i]`` of the models, and call uploads; give up after so many seconds."""
        transport, turns, round_ = self._transport, self._turns, self._plan.round
        transport.log.note("began", "round", round=round_, deadline_seconds=round(allowed, 1))
        begun = time.monotonic()
        for device, model in zip(self._row, model_of.tolist(), strict=True):
            transport.send(device, TRAIN, round_, {"upload": turns.at_once}, {"models": models[model][None]}, allowed)
        for reply in transport.replies(begun + allowed):
            if turns.awaits(reply):
                self._heard(reply, begun)
            else:
                transport.incidents.append(f"device {reply.device} sent a reply that is not due ({reply.kind})")
            passed = time.monotonic() - begun
            for device in turns.called(passed) if passed < allowed else ():
                transport.send(device, UPLOAD, round_, {}, {}, allowed - passed)
        self.seconds = time.monotonic() - begun

    def _heard(self, reply: Reply, begun: float) -> None:
        """A device has computed and waits for its turn, or its upload is here, or there will be none."""
        if reply.trouble is None and reply.kind == TRAIN and not self._turns.at_once:
            self._turns.trained(reply, begun)
            return
        span, trouble = self._turns.ended(reply, begun), reply.trouble
        if trouble is None:
            try:
                update = Told(reply.facts, reply.arrays).singles("update", self._updates.shape[1:])
                self._updates[self._row[reply.device]], self.spans[reply.device] = update, span
                return
            except Exception as error:  # whatever one device says must not end the run
                trouble = Trouble("unreadable", str(error))
        self.failed[reply.device] = trouble
        if trouble.kind == "late":
            self.late[reply.device] = reply.arrived - reply.sent

    def arrived(self) -> HeldUpdates:
        """The updates that came, each as one row of float32 numbers; they may still not be finite."""
        return HeldUpdates.of(self._plan.computing, self._updates).among(np.array(sorted(self.spans), dtype=np.int64))

    def timeline(self, plan: Plan) -> Timeline:
        """A plan's uploads with their real times; ``plan`` may have chosen some of them."""
        return as_happened(plan.timeline, self.spans, self.seconds, self._subchannels)


class Turns:
    """Who may upload now: in the planned order, of those who have trained, as long as a sub-channel is free.

    Where there is a sub-channel for everybody, nobody has to be called: training and upload are one message.
    """

    def __init__(self, order: Sequence[int], subchannels: int) -> None:
        self._order, self.at_once = order, len(order) <= subchannels
        self._free = list(range(subchannels))
        self._ready: dict[int, float] = {}
        self._sending: dict[int, tuple[float, int]] = {}
        self._done: set[int] = set()

    def awaits(self, reply: Reply) -> bool:
        """Whether this reply is due: of a device that trains, or of one that has been called."""
        called = reply.device in self._sending
        due = called if reply.kind == UPLOAD else not called and reply.device not in self._ready
        return due and reply.device in self._order and reply.device not in self._done

    def trained(self, reply: Reply, begun: float) -> None:
        """A device has computed, and waits for its turn."""
        self._ready[reply.device] = reply.arrived - begun

    def called(self, now: float) -> list[int]:
        """Those whose turn has come: each takes a sub-channel."""
        waiting = [device for device in self._order if device in self._ready and device not in self._sending]
        called = waiting[: len(self._free)]
        for device in called:
            self._sending[device] = (now, self._free.pop(0))
        return called

    def ended(self, reply: Reply, begun: float) -> Span:
        """A device's upload has arrived or failed, and its sub-channel is free again."""
        arrived = reply.arrived - begun
        self._done.add(reply.device)
        if self.at_once:
            computed = reply.sent - begun + reply.seconds
            return Span(computed, computed, arrived, self._order.index(reply.device))
        ready = self._ready.pop(reply.device, arrived)
        if reply.device not in self._sending:
            return Span(ready, arrived, arrived, -1)  # it failed before it was called
        start, channel = self._sending.pop(reply.device)
        self._free.append(channel)
        return Span(ready, start, arrived, channel)
