"""Real devices as a Fleet: they carry out plans and answer questions over a Transport, by the real clock."""

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.links import Links
from fedclade.core.state import Serving
from fedclade.core.stopwatch import Stopwatch
from fedclade.core.updates import HeldUpdates, Updates
from fedclade.deployment.measured_edge import MeasuredEdge
from fedclade.deployment.transport import ASK, DELIVER, QUESTION, Reply, Transport
from fedclade.deployment.uploads import Uploads
from fedclade.fleet.fleet import Answers, Arrival, Cost, Fleet, Roster
from fedclade.fleet.questions import Evaluate, Question
from fedclade.fleet.remembered import EvaluationMemory
from fedclade.fleet.simulated.sgd import Local
from fedclade.fleet.told import Told, Unreadable
from fedclade.fleet.trouble import Trouble
from fedclade.scheduling.planner import Plan

OPERATIONS = 6.0  # of one parameter and sample, forward and backward

Answer = TypeVar("Answer")


class DeployedFleet:
    """The devices that a transport reaches.

    ``edge`` is told how long things take. ``local`` knows the model, and has no data. Where nobody is there at the
    beginning of a round, ``wait_seconds`` is how long somebody is waited for.
    """

    def __init__(
        self,
        config: Config,
        transport: Transport,
        edge: MeasuredEdge,
        local: Local,
        wait_seconds: float,
        stopwatch: Stopwatch,
    ) -> None:
        self._config, self._transport, self._edge, self._local = config, transport, edge, local
        self._wait_seconds, self._stopwatch = wait_seconds, stopwatch
        self._evaluations, self._round = EvaluationMemory(), 0
        self.parameters, self.simulated, self.keeps_updates = len(local.initial), False, True
        self._tell_edge()

    # -------------------------------------------------------------------------------- who is there

    def muster(self, round_: int) -> Roster:
        """Look who is there, and tell the edge; where nobody is, wait.

        What the transport met with meanwhile is told with the round: see ``carry_out``.
        """
        self._transport.refresh()
        if not self._transport.present:
            self._transport.gather(1, self._wait_seconds)
        self._tell_edge()
        return Roster(self._transport.register.samples)

    def _tell_edge(self) -> None:
        """Tell the edge of devices that it does not know, and who is there."""
        for device in self._transport.register.devices[self._edge.devices :]:
            operations = OPERATIONS * self.parameters * self._config.training.epochs * device.train_samples
            self._edge.admit(operations / device.flops_per_second, device.upload_seconds(self._edge.model_bits))
        self._edge.present = np.isin(np.arange(self._edge.devices), list(self._transport.present))

    def at(self, links: Links) -> Fleet:
        """Itself: what an answer costs is measured."""
        return self

    def holding(self, kept: Singles) -> Fleet:
        """Itself: real devices keep what is theirs."""
        return self

    # -------------------------------------------------------------------------------- training

    def carry_out(self, plan: Plan, serving: Serving) -> Arrival:
        """Let the devices train, and call their uploads in the plan's order; tell what really happened.

        Where a policy chooses by the norms of updates, everybody uploads: the server learns norms from updates.
        """
        devices, self._round = plan.computing, plan.round
        allowed = self._edge.allowed_seconds(devices) if plan.deadline is None else plan.deadline  # the server's own
        uploads = Uploads(self._transport, plan, self.parameters, self._edge.subchannels)
        with self._stopwatch.measure("training"):
            uploads.carry_out(serving.models, serving.model_of[devices], allowed)
        samples = self._transport.register.samples
        self._stopwatch.trained(len(devices), self._config.training.epochs * int(samples[devices].sum()))
        for device, span in uploads.spans.items():
            self._edge.measured(device, span.ready, span.end - span.start)
        for device, seconds in uploads.late.items():
            self._edge.overdue(device, seconds)
        if self._config.model.local:  # devices have other tensors of their own than when they last answered
            self._evaluations = EvaluationMemory()
        updates = uploads.arrived()
        if plan.choose is not None:
            plan = plan.choose(_norms(devices, updates))
        timeline = uploads.timeline(plan)
        joules, downlink_bits = plan.joules_of(timeline), len(devices) * self._edge.model_bits
        told = tuple(self._transport.incidents)
        self._transport.incidents.clear()
        return Arrival(
            plan,
            updates.among(timeline.arrived),
            timeline,
            Cost(uploads.seconds, joules, downlink_bits, len(updates.devices) * self._edge.model_bits),
            broadcast_seconds=0.0,  # the models' way to the devices is part of what was measured
            lost=np.zeros(0, dtype=np.int64),
            failed=uploads.failed,
            incidents=told,
        )

    def train_own(self, round_: int, models: Singles) -> Updates | None:
        """Nobody knows: real devices are not trained for the sake of a number."""
        return None

    def train_all(self, round_: int, model: Singles) -> HeldUpdates:
        """Never: real devices do not train a second model for the sake of a comparison."""
        raise AssertionError('run.conventional must be "frozen" on real devices: they train only what is used')

    # -------------------------------------------------------------------------------- questions

    def ask(self, question: Question[Answer]) -> Answers[Answer]:
        """Put a question to those of its devices that are there; what is known of a model is not asked again."""
        begun, incidents = time.monotonic(), list[str]()
        value: Any
        if isinstance(question, Evaluate):
            value = self._evaluations.answer(question, lambda unknown: self._asked(unknown, incidents))
        else:
            value = self._asked(question, incidents)
        joules = np.zeros(len(self._transport.register.devices))
        return Answers(value, Cost(time.monotonic() - begun, joules), tuple(incidents))

    def _asked(self, question: Question[Answer], incidents: list[str]) -> Answer:
        asked = [device for device in np.unique(question.devices).tolist() if device in self._transport.present]
        allowed = self._edge.allowed_seconds(np.array(asked, dtype=np.int64))
        until = time.monotonic() + allowed
        for device in asked:
            facts, arrays = question.part(device)
            self._transport.send(device, ASK, self._round, {QUESTION: question.kind, **facts}, arrays, allowed)
        value, due = question.nothing(self._local.classes), set(asked)
        for reply in self._transport.replies(until):
            if reply.device not in due:
                incidents.append(f"device {reply.device} sent a reply that is not due ({question.kind})")
                continue
            due.remove(reply.device)
            trouble = reply.trouble
            if trouble is None:
                try:
                    question.take(value, reply.device, self._told(reply))
                    continue
                except Exception as error:  # whatever one device says must not end the run
                    known = str(error) if isinstance(error, Unreadable) else repr(error)
                    trouble = Trouble("unreadable", known)
            incidents.append(f"device {reply.device} gave no answer ({question.kind}): {trouble}")
        return value

    def _told(self, reply: Reply) -> Told:
        """A reply, to be read against what the device declared of itself when it came."""
        return Told(reply.facts, reply.arrays, self._transport.register.declared(reply.device))

    def deliver(self, models: Mapping[int, tuple[str, Mapping[str, Singles]]]) -> int:
        """Send each device that is there its cluster's model: the cluster's name, and tensors by name.

        Gives how many took theirs.
        """
        there = [device for device in models if device in self._transport.present]
        allowed = self._edge.allowed_seconds(np.array(there, dtype=np.int64))
        until = time.monotonic() + allowed
        for device in there:
            cluster, tensors = models[device]
            self._transport.send(device, DELIVER, self._round, {"cluster": cluster}, tensors, allowed)
        return sum(reply.failure is None for reply in self._transport.replies(until))

    # -------------------------------------------------------------------------------- the model

    def initial_model(self, variant: int = 0) -> Singles:
        """w0: depends on the seed and the variant alone."""
        return self._local.initial_model(variant)

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """A flat model as named arrays."""
        return self._local.named_tensors(model)

    def close(self) -> None:
        """Nothing to let go of: the transport belongs to whoever made it."""


def _norms(devices: Ints, updates: HeldUpdates) -> np.ndarray:
    """The norm of each device's update; 0 where none arrived, so that nobody else is passed over for it."""
    norms, heard = np.zeros(len(devices)), updates.devices
    norms[np.isin(devices, heard)] = updates.norms(heard)
    return norms
