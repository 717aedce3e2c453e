"""The nodes behind a Flower Grid as a Transport: which devices are there, messages out, replies in."""

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import httpx
import numpy as np
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedclade import config as configuration
from fedclade.config import Config, DeploymentConfig
from fedclade.core.errors import UserError
from fedclade.deployment.flower.messages import DESCRIBE, About, pack, unpack
from fedclade.deployment.register import Device, Inputs, Register, by_name, described
from fedclade.deployment.transport import Arrays, Facts, MessageLog, Reply
from fedclade.fleet.told import Told, Unreadable
from fedclade.fleet.trouble import Failure, plain

POLL_SECONDS = 0.25
LOOK_SECONDS = 5.0  # between two looks at who is still connected
CLOCK_SECONDS = 300.0  # a message lives so much longer than it is waited for, as devices' clocks may be wrong
ASK_AGAIN_SECONDS = 60.0  # after a node could not describe itself
NO_NODE = -1
# What went wrong is told by Flower's code of the error; a code that is not here is the device's own refusal.
FAILURES: Mapping[int, Failure] = {
    ErrorCode.NODE_UNAVAILABLE: "gone",  # it has missed its heartbeat
    ErrorCode.MESSAGE_UNAVAILABLE: "late",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: "late",
}


class Lobby:
    """Which node is which device: every node that is new is asked who it is, and then gets a device's number.

    Of two nodes of one name the first counts, for as long as it is connected, even while it does not answer. So nobody
    is displaced by who merely says the same name; and a device whose node has gone may come back as another one.
    """

    def __init__(self, grid: "Inbox", config: Config, register: Register, log: MessageLog) -> None:
        self._grid, self._limits, self._register, self._log = grid, config.deployment, register, log
        self._content = pack({}, about=About(configuration.to_toml(config)))
        self.node_of: dict[int, int] = {}  # of the devices that are there
        self.incidents: list[str] = []
        self._holder: dict[str, int] = {}  # the connected node that has a name
        self._asked: dict[str, tuple[int, float]] = {}  # messages that ask a node who it is: node, when
        self._refused: dict[int, float] = {}  # nodes that could not say so: when
        self._coming: list[tuple[int, Device, Inputs]] = []  # those who have said it, and have no number yet

    @property
    def count(self) -> int:
        """How many devices are there or are coming."""
        return len(self.node_of) + len(self._coming)

    def look(self) -> None:
        """Let go of nodes that went, ask those that came, and hear what they say."""
        keys = self._grid.keys()
        self._let_go(keys)
        now = time.monotonic()
        for name, reply in self._grid.pull(self._asked):
            node, when = self._asked.pop(name)
            try:
                self._coming.append((node, *_description(reply, now - when, keys.get(node, ""), self._limits)))
            except Exception as error:  # whatever one device says must not end the run
                self._refuse(node, str(error))
        busy = {node for node, _ in self._asked.values()} | {node for node, *_ in self._coming}
        for node in sorted(keys.keys() - busy - set(self.node_of.values()) - set(self._refused)):
            for message in self._grid.push(Message(self._content, node, DESCRIBE, group_id="0")):
                self._asked[message] = (node, now)
                self._log.note("sent", DESCRIBE, node=node)

    def _let_go(self, here: Collection[int]) -> None:
        """Forget nodes that went; once a name is free again, those who were refused may ask for it."""
        now = time.monotonic()
        free = any(node not in here for node in self._holder.values())
        self.node_of = {device: node for device, node in self.node_of.items() if node in here}
        self._holder = {name: node for name, node in self._holder.items() if node in here}
        self._asked = {message: (node, when) for message, (node, when) in self._asked.items() if node in here}
        fresh = (node for node, when in self._refused.items() if not free and now - when < ASK_AGAIN_SECONDS)
        self._refused = {node: self._refused[node] for node in fresh}

    def seat(self) -> None:
        """Give those who are coming their numbers."""
        order = by_name({device.name for _, device, _ in self._coming})
        coming = sorted(self._coming, key=lambda one: order.index(one[1].name))
        self._coming.clear()
        self._register.settle([inputs for _, _, inputs in coming])
        for node, device, inputs in coming:
            try:
                self._check_name(node, device.name)
                number = self._register.seat(device, inputs)
            except UserError as error:
                self._refuse(node, str(error))
                continue
            self._holder[device.name] = self.node_of[number] = node
            self._log.note("arrived", DESCRIBE, node=node, device=number, name=device.name)

    def _check_name(self, node: int, name: str) -> None:
        """A name has one node, and a node one name, for as long as it is connected."""
        if self._holder.get(name, node) != node:
            raise UserError(f"the name {name} is that of another node, which is connected")
        others = [other for other, holder in self._holder.items() if holder == node and other != name]
        if others:
            raise UserError(f"it said before that its name is {others[0]}, and now {name}")

    def _refuse(self, node: int, why: str) -> None:
        self._refused[node] = time.monotonic()
        self.incidents.append(f"node {node} cannot take part: {plain(why)}")
        self._log.note("failed", DESCRIBE, node=node, why=plain(why))


class Inbox:
    """A Grid whose messages come one by one where one of them cannot be read: it must not take others with it.

    Flower hands out all replies that are there, or raises an exception for all of them and hands out none ever after.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid, self._one_by_one = grid, False

    def keys(self) -> dict[int, str]:
        """The nodes that are connected, each with the SHA-256 of its public key; empty where it has none."""
        nodes = ((node.node_id, bytes(node.public_key)) for node in self._grid.get_nodes())
        return {node: hashlib.sha256(key).hexdigest() if key else "" for node, key in nodes}

    def push(self, message: Message) -> list[str]:
        """Send a message; gives its name, or nothing if it could not be sent."""
        return [name for name in self._grid.push_messages([message]) if name]

    def pull(self, names: Iterable[str]) -> list[tuple[str, Message | None]]:
        """The replies to these messages that are there, by the message's name; None: one that cannot be read."""
        names = list(names)
        if not self._one_by_one:
            try:
                replies = list(self._grid.pull_messages(names)) if names else []
                return [(reply.metadata.reply_to_message_id, reply) for reply in replies]
            except httpx.HTTPError:
                raise  # the SuperLink is gone
            except Exception:  # whatever one device sends must not end the run
                self._one_by_one = True
        found = list[tuple[str, Message | None]]()
        for name in names:
            try:
                found += [(name, reply) for reply in self._grid.pull_messages([name])]
            except httpx.HTTPError:
                raise
            except Exception:
                found.append((name, None))
        return found


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

    Every message carries the run's config. ``classes`` is the number of classes where the user has set it, else 0.
    """

    def __init__(self, grid: Grid, config: Config, classes: int = 0) -> None:
        self._grid, self._config_text = Inbox(grid), configuration.to_toml(config)
        self.register, self.log = Register(config.deployment, classes), MessageLog()
        self._lobby = Lobby(self._grid, config, self.register, self.log)
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
            (name,) = self._grid.push(message) or [""]
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
            replies = [(name, reply) for name, reply in self._grid.pull(self._due) if name in self._due]
            for name, reply in replies:
                yield self._reply(self._due.pop(name), reply)
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
            self._looked, self._here = time.monotonic(), set(self._grid.keys())
        return self._here

    def _reply(self, due: _Due, reply: Message | None) -> Reply:
        if reply is not None and reply.has_error():
            return self._failed(due, *_failure(reply.error))
        try:
            facts, arrays = _opened(reply)
        except Exception as error:  # whatever one device says must not end the run
            return self._failed(due, "unreadable", str(error))
        self.log.note("arrived", due.kind, round=due.round, device=due.device)
        return Reply(due.device, due.kind, due.sent, time.monotonic(), facts, arrays)

    def _failed(self, due: _Due, failure: Failure, why: str) -> Reply:
        """A device that gave no answer is called again once its node has told who it is."""
        why = plain(why)
        self.log.note("failed", due.kind, round=due.round, device=due.device, failure=failure, why=why)
        if failure in ("late", "gone") and self._lobby.node_of.get(due.device) == due.node:
            del self._lobby.node_of[due.device]
        return Reply(due.device, due.kind, due.sent, time.monotonic(), failure=failure, why=why)


def _failure(error: Error) -> tuple[Failure, str]:
    """An error as Flower tells of it: what kind of failure it is, and why."""
    return FAILURES.get(error.code, "refused"), str(error.reason)


def _opened(reply: Message | None) -> tuple[Facts, Arrays]:
    """What a device replied."""
    if reply is None:
        raise Unreadable("Flower cannot read it")
    return unpack(reply.content)


def _description(reply: Message | None, seconds: float, key: str, limits: DeploymentConfig) -> tuple[Device, Inputs]:
    """What a node said of itself, after so many seconds."""
    if reply is not None and reply.has_error():
        raise UserError(_failure(reply.error)[1])
    return described(Told(*_opened(reply)), seconds, key, limits)
