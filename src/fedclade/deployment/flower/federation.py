"""The nodes behind a Flower Grid: which devices are there, messages out, answers in.

A device is known by the name it gives, not by its node: one that comes back as another node is the same device.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from fedclade.core.errors import UserError
from fedclade.data import Population
from fedclade.deployment.flower.messages import DESCRIBE, PROBE_BYTES, Arrays, Facts, pack, unpack

POLL_SECONDS = 0.25
LOOK_SECONDS = 5.0  # between two looks at who is still connected
CLOCK_SECONDS = 300.0  # a message lives so much longer than it is waited for, as devices' clocks may be wrong
ASK_AGAIN_SECONDS = 60.0  # after a node could not describe itself


@dataclass(frozen=True)
class Device:
    """What a device told of itself."""

    name: str
    train_samples: int
    test_samples: int
    group: int
    flops_per_second: float
    probe_seconds: float  # a probe's way to the server, and the question's to the device

    def upload_seconds(self, model_bits: float) -> float:
        """A first estimate."""
        return self.probe_seconds * max(1.0, model_bits / (8.0 * PROBE_BYTES))


@dataclass(frozen=True)
class Inputs:
    """What all devices' data must have in common."""

    shape: tuple[int, int, int]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Answer:
    """A device's answer, or why there is none."""

    device: int
    kind: str
    sent: float
    arrived: float
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]
    failure: str | None = None

    @property
    def seconds(self) -> float:
        """What the device says it took; its word, so at most the time that passed."""
        told = self.facts.get("seconds")
        return min(told, self.arrived - self.sent) if isinstance(told, int | float) and told > 0 else 0.0


@dataclass(frozen=True)
class _Due:
    device: int
    node: int
    kind: str
    round: int
    sent: float


class MessageLog:
    """Every message sent and answered, one JSON object a line; kept in memory until there is a file."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._path: Path | None = None

    def open(self, path: Path) -> None:
        """Write to this file from now on, and what came before."""
        self._path = path
        self._write()

    def note(self, what: str, kind: str, **more: object) -> None:
        """One line; ``at`` is in seconds since 1970."""
        self._lines.append(json.dumps({"at": round(time.time(), 4), "what": what, "kind": kind, **more}) + "\n")
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(self._lines)
            self._lines.clear()


class Federation:
    """Devices by number, in the order in which they first came; at the start, by name."""

    def __init__(self, grid: Grid, config_text: str, classes: int = 0) -> None:
        self._grid, self._config_text = grid, config_text
        self.devices: list[Device] = []
        self.inputs: Inputs | None = None
        self._classes = classes
        self.node_of: dict[int, int] = {}  # of the devices that are there
        self.incidents: list[str] = []
        self.log = MessageLog()
        self._asked: dict[str, tuple[int, float]] = {}  # describe messages: node, when
        self._refused: dict[int, float] = {}  # nodes that could not describe themselves: when
        self._due: dict[str, _Due] = {}
        self._unsent: list[_Due] = []
        self._here: set[int] = set()
        self._looked = -np.inf
        self._coming: list[tuple[int, Device, Inputs]] = []

    # -------------------------------------------------------------------------------- who is there

    def gather(self, wanted: int, wait_seconds: float) -> None:
        """Wait until so many devices are there, or go on with those that came in time; at least one must."""
        until = time.monotonic() + wait_seconds
        while True:
            self._look()
            if len(self.node_of) + len(self._coming) >= wanted or time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
        self._seat()
        if not self.node_of:
            why = f": {self.incidents[-1]}" if self.incidents else ""
            raise UserError(f"no device answered within {wait_seconds:g} s{why}")

    def refresh(self) -> None:
        """Take in who came, and let go of who went."""
        self._look()
        self._seat()

    def _look(self) -> None:
        here = set(self._grid.get_node_ids())
        self.node_of = {device: node for device, node in self.node_of.items() if node in here}
        self._asked = {message: (node, when) for message, (node, when) in self._asked.items() if node in here}
        for reply in self._pull(list(self._asked)):
            node, when = self._asked.pop(reply.metadata.reply_to_message_id)
            try:
                self._coming.append((node, *_description(reply, time.monotonic() - when)))
            except Exception as error:  # whatever one device says must not end the run
                self._refuse(node, str(error))
        now = time.monotonic()
        self._refused = {node: when for node, when in self._refused.items() if now - when < ASK_AGAIN_SECONDS}
        busy = {node for node, _ in self._asked.values()} | {node for node, *_ in self._coming}
        new = here - busy - set(self.node_of.values()) - set(self._refused)
        content = {"config": self._config_text}
        for node in sorted(new):
            (message,) = self._grid.push_messages([Message(pack(content), node, DESCRIBE, group_id="0")])
            self._asked[message] = (node, now)
            self.log.note("sent", DESCRIBE, node=node)

    def _seat(self) -> None:
        for node, device, inputs in sorted(self._coming, key=lambda one: _natural(one[1].name)):
            number = next((i for i, known in enumerate(self.devices) if known.name == device.name), None)
            if self.inputs is None:
                classes = max(coming.classes for _, _, coming in self._coming)
                self.inputs = Inputs(inputs.shape, self._classes or classes, inputs.mean, inputs.std)
            if (inputs.shape, inputs.mean, inputs.std) != (self.inputs.shape, self.inputs.mean, self.inputs.std):
                self._refuse(node, f"data of shape {inputs.shape}, not {self.inputs.shape}, or scaled differently")
            elif inputs.classes > self.inputs.classes:
                self._refuse(
                    node, f"{inputs.classes} classes, not {self.inputs.classes}: set classes in the run config"
                )
            else:
                if number is None:
                    number = len(self.devices)
                    self.devices.append(device)
                else:
                    self.devices[number] = device
                    if number in self.node_of:
                        self.incidents.append(f"device {number} ({device.name}) is node {node} now: two had its name")
                self.node_of[number] = node
                self.log.note("arrived", DESCRIBE, node=node, device=number, name=device.name)
        self._coming.clear()

    def _refuse(self, node: int, why: str) -> None:
        self._refused[node] = time.monotonic()
        self.incidents.append(f"node {node} cannot take part: {why}")
        self.log.note("failed", DESCRIBE, node=node, why=why)

    @property
    def samples(self) -> np.ndarray:
        """D_k."""
        return np.array([device.train_samples for device in self.devices], dtype=np.int64)

    def population(self) -> Population:
        """What is known of all devices' data: how much, and what it looks like; not the data."""
        assert self.inputs is not None
        nothing = np.zeros((0, *self.inputs.shape), dtype=np.uint8)
        groups = [device.group for device in self.devices]
        return Population(
            images=nothing,
            labels=np.zeros(0, dtype=np.int64),
            train=tuple(np.arange(device.train_samples) for device in self.devices),
            validation=tuple(np.arange(0) for _ in self.devices),
            test=tuple(np.arange(device.test_samples) for device in self.devices),
            group=np.array(groups if min(groups) >= 0 else [0] * len(groups), dtype=np.int64),
            classes=self.inputs.classes,
            mean=self.inputs.mean,
            std=self.inputs.std,
        )

    # -------------------------------------------------------------------------------- what a resumed run must know

    def to_json(self) -> dict[str, Any]:
        """Who is device 0, 1, …, and what the data looks like."""
        assert self.inputs is not None
        return {"inputs": asdict(self.inputs), "devices": [asdict(device) for device in self.devices]}

    def remember(self, known: dict[str, Any]) -> None:
        """The inverse of ``to_json``: the devices keep their numbers."""
        inputs = known["inputs"]
        channels, height, width = inputs["shape"]
        self.inputs = Inputs((channels, height, width), inputs["classes"], tuple(inputs["mean"]), tuple(inputs["std"]))
        self.devices = [Device(**device) for device in known["devices"]]

    # -------------------------------------------------------------------------------- messages

    def send(self, device: int, kind: str, round_: int, facts: Facts, arrays: Arrays | None, seconds: float) -> None:
        """Ask a device; its answer is worth something for so many seconds."""
        assert self.inputs is not None
        node = self.node_of.get(device)
        if node is None:
            self._unsent.append(_Due(device, -1, kind, round_, time.monotonic()))
            return
        common = {"config": self._config_text, "device": device, "round": round_, "classes": self.inputs.classes}
        message = Message(
            pack({**common, **facts}, arrays), node, kind, ttl=seconds + CLOCK_SECONDS, group_id=str(round_)
        )
        self.log.note("sent", kind, round=round_, device=device)
        (name,) = self._grid.push_messages([message]) or [""]
        due = _Due(device, node, kind, round_, time.monotonic())
        if name:
            self._due[name] = due
        else:
            self._unsent.append(due)

    def answers(self, until: float) -> Iterator[Answer]:
        """Answers as they come, also to what is sent meanwhile; then those who gave none by ``until``."""
        while (self._due or self._unsent) and time.monotonic() < until:
            while self._unsent:
                yield self._failed(self._unsent.pop(), "died: its node is gone")
            replies = list(self._pull(list(self._due)))
            for reply in replies:
                due = self._due.pop(reply.metadata.reply_to_message_id)
                yield self._answer(due, reply)
            for name in [name for name, due in self._due.items() if due.node not in self._connected()]:
                yield self._failed(self._due.pop(name), "died: its node is gone")
            if not replies:
                time.sleep(POLL_SECONDS)
        while self._due:
            _, due = self._due.popitem()
            yield self._failed(due, f"late: no answer within {time.monotonic() - due.sent:.0f} s")

    def _connected(self) -> set[int]:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked, self._here = time.monotonic(), set(self._grid.get_node_ids())
        return self._here

    def _pull(self, names: list[str]) -> list[Message]:
        return list(self._grid.pull_messages(names)) if names else []

    def _answer(self, due: _Due, reply: Message) -> Answer:
        if reply.has_error():
            return self._failed(due, f"error: {reply.error.reason}")
        try:
            facts, arrays = unpack(reply.content)
        except Exception as error:  # whatever one device says must not end the run
            return self._failed(due, f"error: unreadable answer: {error}")
        now = time.monotonic()
        self.log.note("arrived", due.kind, round=due.round, device=due.device)
        return Answer(due.device, due.kind, due.sent, now, facts, arrays)

    def _failed(self, due: _Due, why: str) -> Answer:
        """One that gave no answer is called again once its node has told who it is."""
        self.log.note("failed", due.kind, round=due.round, device=due.device, why=why)
        if self.node_of.get(due.device) == due.node and not why.startswith("error"):
            del self.node_of[due.device]
        return Answer(due.device, due.kind, due.sent, time.monotonic(), {}, {}, why)


def _description(reply: Message, seconds: float) -> tuple[Device, Inputs]:
    if reply.has_error():
        raise UserError(str(reply.error.reason))
    facts, _ = unpack(reply.content)
    channels, height, width = (int(side) for side in facts["shape"])
    probe_seconds = max(seconds - float(facts["seconds"]), 1e-3)
    samples = int(facts["train_samples"]), int(facts["test_samples"])
    speed = float(facts["flops_per_second"])
    if min(samples) < 1 or not speed > 0:
        raise UserError(f"has {samples[0]} and {samples[1]} samples, and {speed:g} operations a second")
    return (
        Device(str(facts["name"]), *samples, int(facts["group"]), speed, probe_seconds),
        Inputs((channels, height, width), int(facts["classes"]), tuple(facts["mean"]), tuple(facts["std"])),
    )


def _natural(name: str) -> tuple[int, int | str]:
    """Numbers in order of size, before words."""
    return (0, int(name)) if name.isdigit() else (1, name)
