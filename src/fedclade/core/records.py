"""What is written down of a round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.links import Links
from fedclade.core.objective import Objective
from fedclade.core.timeline import Timeline

Verdict: TypeAlias = Literal["go-on", "stop", "split", "stopped"]


@dataclass(frozen=True)
class Event:
    """Something worth telling.

    ``kind`` is one of: split, split-test, stop, reopen, moved, merge (of clusters); placed, missed, lost, rejected,
    trimmed, drifted, handover (of devices); joined, incident (of the fleet). ``detail`` is plain data.
    """

    kind: str
    node: str
    device: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    likeness: tuple[Ints, Singles] | None = field(default=None, compare=False)  # of a split: devices, their matrix


@dataclass(frozen=True)
class ClusterRecord:
    """One cluster in one round."""

    node: str
    members: int
    heard: int
    mean_norm: float | None
    max_norm: float | None
    verdict: Verdict


@dataclass(frozen=True)
class EvaluationRecord:
    """Every device under its own cluster's model, and under the conventional one."""

    node: list[str]
    score: Floats  # accuracy or R²: see ``fedclade.core.task``
    loss: Floats
    conventional_score: Floats
    incidents: tuple[str, ...] = ()  # who could not be asked, and why
    objective: Objective | None = None  # what the losses come to
    asked: Ints | None = None  # the devices that were evaluated, if not all of them; the others' numbers are NaN


@dataclass(frozen=True)
class RoundRecord:
    """All that is written down of a round."""

    round: int
    start_seconds: float
    seconds: float
    broadcast_seconds: float
    asking_seconds: float  # for questions: at the round's end, but for devices that are new
    deadline_seconds: float | None
    timeline: Timeline
    computed: Ints
    links: Links
    device_joules: Floats
    clusters: list[ClusterRecord]
    events: list[Event]
    evaluation: EvaluationRecord | None

    @property
    def energy_joules(self) -> float:
        """What all devices spent."""
        return float(self.device_joules.sum())
