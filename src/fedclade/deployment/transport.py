"""How the server reaches real devices: what a transport must do, and what is said over it.

=================  ==============================================  ==================================================
kind               the server sends                                the device replies
=================  ==============================================  ==================================================
``train.local``    a model, and whether to upload at once          seconds it took; the update, if it is to upload
``train.upload``   nothing but the round                           the update it kept
``evaluate.ask``   a question: its kind, and its part for the      what the question makes of its answer
                   device (see ``fedclade.fleet.questions``)
``query.deliver``  its cluster's model, by name of the tensors     where it put the model
=================  ==============================================  ==================================================

Every message belongs to a round and has one reply. Facts are plain values: numbers, texts, truth values, and lists of
one kind of these. Arrays are NumPy's, without objects.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from fedclade.deployment.register import Register
from fedclade.fleet.trouble import Failure, Trouble

TRAIN, UPLOAD, ASK, DELIVER = "train.local", "train.upload", "evaluate.ask", "query.deliver"
QUESTION = "fedclade.question"  # the fact of an evaluate.ask that names the kind of question

Facts: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Reply:
    """A device's reply to one message, or what kind of failure there was instead. Times are ``time.monotonic()``."""

    device: int
    kind: str  # of the message
    sent: float
    arrived: float  # or given up
    facts: Facts = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    failure: Failure | None = None
    why: str = ""  # the failure in words

    @property
    def seconds(self) -> float:
        """How long the device says it worked. It is its word, so at most the time that passed; 0 if it says none."""
        told = self.facts.get("seconds")
        return min(told, self.arrived - self.sent) if isinstance(told, int | float) and told > 0 else 0.0

    @property
    def trouble(self) -> Trouble | None:
        """The failure, if it is one."""
        return None if self.failure is None else Trouble(self.failure, self.why)


class Transport(Protocol):
    """Messages to devices and their replies; and who is there.

    A transport finds devices, asks each who it is, and gives them their numbers with its ``register``. Whatever a
    device does, nothing here raises for it: a failure is a reply, or an incident.
    """

    register: Register  # of all devices that ever came
    incidents: list[str]  # what went wrong and belongs to no message; whoever tells of them clears the list
    log: "MessageLog"

    @property
    def present(self) -> Collection[int]:
        """The numbers of the devices that are there now."""
        ...

    def refresh(self) -> None:
        """Take in who came, and let go of who went."""
        ...

    def gather(self, wanted: int, seconds: float) -> None:
        """Wait until so many devices are there, or go on with those that came in time; UserError if nobody did."""
        ...

    def send(self, device: int, kind: str, round_: int, facts: Facts, arrays: Arrays, seconds: float) -> None:
        """Send a message to a device; its reply is worth something for so many seconds."""
        ...

    def replies(self, until: float) -> Iterator[Reply]:
        """One reply to each message sent, as they come, also to messages sent meanwhile.

        At the time ``until`` every message that has no reply yet is given up: its reply is a failure, "late". A device
        that was late or is gone is not ``present`` until it has told anew who it is.
        """
        ...


class MessageLog:
    """Every message sent and answered, one JSON object a line; kept in memory until somebody writes them down."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._append: Callable[[str], None] | None = None

    def open(self, append: Callable[[str], None]) -> None:
        """Let this function have every line from now on, and what came before."""
        self._append = append
        self._write()

    def note(self, what: str, kind: str, **more: object) -> None:
        """One line; ``at`` is in seconds since 1970."""
        self._lines.append(json.dumps({"at": round(time.time(), 4), "what": what, "kind": kind, **more}) + "\n")
        self._write()

    def _write(self) -> None:
        if self._append is not None:
            self._append("".join(self._lines))
            self._lines.clear()
