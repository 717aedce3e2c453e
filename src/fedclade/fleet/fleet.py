"""How devices are reached: they carry out a plan, and they answer questions. Every answer says what it cost.

Simulation and deployment differ in the fleet alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.links import Links
from fedclade.core.state import Serving
from fedclade.core.timeline import Timeline
from fedclade.core.updates import Updates
from fedclade.fleet.questions import Question
from fedclade.fleet.trouble import Trouble
from fedclade.scheduling.planner import Plan

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Cost:
    """What something cost: time on the clock, each device's energy, and bits over the air, to and from the devices."""

    seconds: float
    joules: Floats  # one entry per device
    downlink_bits: float = 0.0
    uplink_bits: float = 0.0

    @classmethod
    def nothing(cls, devices: int) -> "Cost":
        """Free."""
        return cls(0.0, np.zeros(devices))

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.seconds + other.seconds,
            self.joules + other.joules,
            self.downlink_bits + other.downlink_bits,
            self.uplink_bits + other.uplink_bits,
        )


@dataclass(frozen=True)
class Answers(Generic[Answer]):
    """What the devices answered, what it cost, and who could not be asked, in words."""

    value: Answer
    cost: Cost
    incidents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrival:
    """What became of a plan: the updates that came, what really happened, and what it cost."""

    plan: Plan
    updates: Updates  # of the devices heard: those whose upload arrived and can be used
    timeline: Timeline  # as it happened
    cost: Cost
    broadcast_seconds: float
    lost: Ints  # devices whose upload went out and never came: they send again next time
    failed: Mapping[int, Trouble] = field(default_factory=dict)  # why a device missed the round, where that is known
    rejected: Mapping[int, str] = field(default_factory=dict)  # devices whose update cannot be used, and why
    incidents: tuple[str, ...] = ()  # what went wrong on the way and was mended
    kept: Singles | None = None  # devices × numbers: what each device keeps for the next round; None: nothing
    kept_before: Singles | None = None  # what it kept before, where that changes only with an upload that is used

    @property
    def heard(self) -> Ints:
        """Devices with a usable update, ascending."""
        return self.updates.devices

    @property
    def kept_now(self) -> Singles | None:
        """What each device keeps when all that was refused is known."""
        if self.kept is None or self.kept_before is None:
            return self.kept
        now = self.kept_before.copy()
        now[self.heard] = self.kept[self.heard]
        return now

    def unsent(self) -> "Arrival":
        """The same where no model leaves its device: nothing but the computing costs time and energy."""
        links, computing = self.plan.links, self.plan.computing
        joules = np.zeros(len(links.compute_joules))
        joules[computing] = links.compute_joules[computing]
        seconds = float(links.compute_seconds[computing].max(initial=0.0))
        return replace(self, cost=Cost(seconds, joules), broadcast_seconds=0.0)

    def without(self, rejected: Mapping[int, str]) -> "Arrival":
        """With some updates refused."""
        if not rejected:
            return self
        kept = np.setdiff1d(self.heard, np.array(list(rejected), dtype=np.int64))
        return replace(self, updates=self.updates.among(kept), rejected={**self.rejected, **rejected})


@dataclass(frozen=True)
class Roster:
    """Who the devices are at the beginning of a round."""

    samples: Ints  # D_k of every device known so far, there or not
    incidents: tuple[str, ...] = ()
    drifted: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # whose data change in this round, and how


class Respondents(Protocol):
    """Devices that can be asked: all that a method needs after training."""

    def ask(self, question: Question[Answer]) -> Answers[Answer]:
        """Put a question to devices."""
        ...


class Fleet(Respondents, Protocol):
    """The devices, as the server sees them. Models are flat float32 vectors."""

    parameters: int
    simulated: bool  # a round can be taken back: nothing has happened
    keeps_updates: bool  # a round's updates are kept whole until the next

    def muster(self, round_: int) -> Roster:
        """Look who is there in a round, and what it holds: simulated devices answer for that round from then on.

        New devices come last; nobody's number changes.
        """
        ...

    def at(self, links: Links) -> "Fleet":
        """The same fleet in a round with these links: so that answers can say what they cost."""
        ...

    def holding(self, kept: Singles) -> "Fleet":
        """The same fleet, each of whose devices keeps one row of numbers as tensors of its own (``model.local``)."""
        ...

    def initial_model(self, variant: int = 0) -> Singles:
        """w0; another one for each variant."""
        ...

    def carry_out(self, plan: Plan, serving: Serving) -> Arrival:
        """Let the devices of a plan train the models that serve them, and upload."""
        ...

    def train_own(self, round_: int, models: Singles) -> Updates | None:
        """Every device's update of a model of its own, row by row, off the clock; None on real devices."""
        ...

    def train_all(self, round_: int, model: Singles) -> Updates:
        """Every device's update of one model, off the clock: for the one-model comparison."""
        ...

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """A flat model as named arrays, as the module knows them."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...


def held(fleet: Fleet, kept: Singles | None) -> Fleet:
    """A fleet with what its devices keep between two rounds, where they keep anything."""
    return fleet if kept is None else fleet.holding(kept)
