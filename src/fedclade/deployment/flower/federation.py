"""The nodes behind a Flower Grid as a Transport: which devices are there, messages out, replies in."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedclade.core.errors import UserError
from fedclade.deployment.flower.messages import DESCRIBE, About, pack, unpack
from fedclade.deployment.register import Device, Inputs, Register, by_name
from fedclade.deployment.transport import Arrays, Facts, Failure, MessageLog, Reply

POLL_SECONDS = 0.25
LOOK_SECONDS = 5.0  # between two looks at who is still connected
CLOCK_SECONDS = 300.0  # a message lives so much longer than it is waited for, as devices' clocks may be wrong
ASK_AGAIN_SECONDS = 60.0  # after a node could not describe itself
NO_NODE = -1


class Lobby:
    """Which node is which device: every node that is new is asked who it is, and then gets a device's number."""

    def __init__(self, grid: Grid, config_text: str, register: Register, log: MessageLog) -> None:
        self._grid, self._config_text, self._register, self._log = grid, config_text, register, log
        self.node_of: dict[int, int] = {}  # of the devices that are there
        self.incidents: list[str] = []
        self._asked: dict[str, tuple[int, float]] = {}  # messages that ask a node who it is: node, when
        self._refused: dict[int, float] = {}  # nodes that could not say so: when
        self._coming: list[tuple[int, Device, Inputs]] = []  # those who have said it, and have no number yet

    @property
    def count(self) -> int:
        """How many devices are there or are coming."""
        return len(self.node_of) + len(self._coming)

    def look(self) -> None:
        """Let go of nodes that went, ask those that came, and hear what they say."""
        here = set(self._grid.get_node_ids())
        self.node_of = {device: node for device, node in self.node_of.items() if node in here}
        self._asked = {message: (node, when) for message, (node, when) in self._asked.items() if node in here}
        for reply in pull(self._grid, self._asked):
            node, when = self._asked.pop(reply.metadata.reply_to_message_id)
            try:
                self._coming.append((node, *_description(reply, time.monotonic() - when)))
            except Exception as error:  # whatever one device says must not end the run
                self._refuse(node, str(error))
        now = time.monotonic()
        self._refused = {node: when for node, when in self._refused.items() if now - when < ASK_AGAIN_SECONDS}
        busy = {node for node, _ in self._asked.values()} | {node for node, *_ in self._coming}
        for node in sorted(here - busy - set(self.node_of.values()) - set(self._refused)):
            content = pack({}, about=About(self._config_text))
            (message,) = self._grid.push_messages([Message(content, node, DESCRIBE, group_id="0")])
            self._asked[message] = (node, now)
            self._log.note("sent", DESCRIBE, node=node)

    def seat(self) -> None:
        """Give those who are coming their numbers; of two nodes of one name the later counts."""
        order = by_name({device.name for _, device, _ in self._coming})
        coming = sorted(self._coming, key=lambda one: order.index(one[1].name))
        self._register.settle([inputs for _, _, inputs in coming])
        for node, device, inputs in coming:
            try:
                number = self._register.seat(device, inputs)
            except UserError as error:
                self._refuse(node, str(error))
                continue
            if number in self.node_of:
                self.incidents.append(f"device {number} ({device.name}) is node {node} now: two had its name")
            self.node_of[number] = node
            self._log.note("arrived", DESCRIBE, node=node, device=number, name=device.name)
        self._coming.clear()

    def _refuse(self, node: int, why: str) -> None:
        self._refused[node] = time.monotonic()
        self.incidents.append(f"node {node} cannot take part: {why}")
        self._log.note("failed", DESCRIBE, node=node, why=why)


@dataclass(frozen=True)
class _Due:
    """A message that waits for its reply."""

    device: int
    node: int
    kind: str
    round: int
    sent: float


class Federation:
    """A Transport over a Grid.

    ``config_text`` is the run's config as TOML: every message carries it. ``classes`` is the number of classes where
    the user has set it, else 0.
    """

    def __init__(self, grid: Grid, config_text: str, classes: int = 0) -> None:
        self._grid, self._config_text = grid, config_text
        self.register, self.log = Register(classes), MessageLog()
        self._lobby = Lobby(grid, config_text, self.register, self.log)
        self.incidents = self._lobby.incidents
        self._due: dict[str, _Due] = {}  # by the message's name
        self._unsent: list[_Due] = []
        self._here: set[int] = set()
        self._looked = -np.inf

    @property
    def present(self) -> Collection[int]:
        """The devices that are there."""
        return self._lobby.node_of.keys()

    def refresh(self) -> None:
        """Take in who came, and let go of who went."""
        self._lobby.look()
        self._lobby.seat()

    def gather(self, wanted: int, seconds: float) -> None:
        """Wait until so many devices are there, or go on with those that came in time; at least one must."""
        until = time.monotonic() + seconds
        while True:
            self._lobby.look()
            if self._lobby.count >= wanted or time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
        self._lobby.seat()
        if not self.present:
            why = f": {self.incidents[-1]}" if self.incidents else ""
            raise UserError(f"no device answered within {seconds:g} s{why}")

    def send(self, device: int, kind: str, round_: int, facts: Facts, arrays: Arrays, seconds: float) -> None:
        """Ask a device; its reply is worth something for so many seconds."""
        node, name = self._lobby.node_of.get(device, NO_NODE), ""
        if node != NO_NODE:
            about = About(self._config_text, device, round_, self.register.settled.classes)
            content = pack(facts, arrays, about)
            message = Message(content, node, kind, ttl=seconds + CLOCK_SECONDS, group_id=str(round_))
            self.log.note("sent", kind, round=round_, device=device)
            (name,) = self._grid.push_messages([message]) or [""]
        due = _Due(device, node, kind, round_, time.monotonic())
        if name:
            self._due[name] = due
        else:
            self._unsent.append(due)

    def replies(self, until: float) -> Iterator[Reply]:
        """Replies as they come, also to what is sent meanwhile; then those of devices that gave none in time."""
        while (self._due or self._unsent) and time.monotonic() < until:
            while self._unsent:
                yield self._failed(self._unsent.pop(), "gone", "its node is gone")
            replies = pull(self._grid, self._due)
            for reply in replies:
                yield self._reply(self._due.pop(reply.metadata.reply_to_message_id), reply)
            for name in [name for name, due in self._due.items() if due.node not in self._connected()]:
                yield self._failed(self._due.pop(name), "gone", "its node is gone")
            if not replies:
                time.sleep(POLL_SECONDS)
        while self._unsent:
            yield self._failed(self._unsent.pop(), "gone", "its node is gone")
        while self._due:
            _, due = self._due.popitem()
            yield self._failed(due, "late", f"no answer within {time.monotonic() - due.sent:.0f} s")

    def _connected(self) -> set[int]:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked, self._here = time.monotonic(), set(self._grid.get_node_ids())
        return self._here

    def _reply(self, due: _Due, reply: Message) -> Reply:
        if reply.has_error():
            return self._failed(due, "refused", str(reply.error.reason))
        try:
            facts, arrays = unpack(reply.content)
        except Exception as error:  # whatever one device says must not end the run
            return self._failed(due, "unreadable", str(error))
        self.log.note("arrived", due.kind, round=due.round, device=due.device)
        return Reply(due.device, due.kind, due.sent, time.monotonic(), facts, arrays)

    def _failed(self, due: _Due, failure: Failure, why: str) -> Reply:
        """A device that gave no answer is called again once its node has told who it is."""
        self.log.note("failed", due.kind, round=due.round, device=due.device, failure=failure, why=why)
        if failure in ("late", "gone") and self._lobby.node_of.get(due.device) == due.node:
            del self._lobby.node_of[due.device]
        return Reply(due.device, due.kind, due.sent, time.monotonic(), failure=failure, why=why)


def pull(grid: Grid, names: Collection[str]) -> list[Message]:
    """The replies to these messages that are there."""
    return list(grid.pull_messages(list(names))) if names else []


def _description(reply: Message, seconds: float) -> tuple[Device, Inputs]:
    """What a node said of itself, after so many seconds."""
    if reply.has_error():
        raise UserError(str(reply.error.reason))
    facts, _ = unpack(reply.content)
    shape = tuple(int(side) for side in facts["shape"])
    probe_seconds = max(seconds - float(facts["seconds"]), 1e-3)
    samples, speed = (int(facts["train_samples"]), int(facts["test_samples"])), float(facts["flops_per_second"])
    return (
        Device(str(facts["name"]), *samples, int(facts["group"]), speed, probe_seconds),
        Inputs(
            shape,
            int(facts["classes"]),
            tuple(facts["mean"]),
            tuple(facts["std"]),
            str(facts["dtype"]),
            tuple(facts.get("y_mean", ())),
            tuple(facts.get("y_std", ())),
        ),
    )
