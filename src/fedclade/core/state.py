"""What there is between two rounds, and what is written down of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedclade.clustering import Kinship, Outlook, Tree, Verdict
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.edge import Links
from fedclade.scheduling import Timeline

CONVENTIONAL = "conventional"


@dataclass(frozen=True)
class ServerState:
    """Everything between two rounds.

    ``updates`` is handed on from state to state, not copied: a round overwrites the rows of the devices it hears before
    it reads them, so repeating a round from the state just before it gives the same result.
    """

    round: int  # rounds done
    seconds: float  # simulated clock
    tree: Tree
    models: Mapping[str, Singles]  # of every node; an inner node's as it stood at its split
    conventional: Singles | None  # the one-model comparison, from the first split on
    updates: Singles  # K × P: each device's last known Δw
    last_heard: Ints  # round of that update; 0: never
    participation: Ints  # uploads per device
    energy_joules: Floats  # spent per device
    present_rounds: Ints  # rounds in which the device was there
    losses: Floats  # each device's last known loss on held-out images; NaN: unknown, as with fixed thresholds
    outlooks: Mapping[str, Outlook]  # of the clusters, with automatic thresholds
    kinship: Kinship | None  # what the devices said of one another's models; None: nobody was asked
    retry: Ints  # devices whose upload was lost in the last round: they send again in the next


@dataclass(frozen=True)
class Fresh:
    """The updates that arrived this round; for a trial, the last ones of all members."""

    devices: Ints  # ascending
    updates: Singles  # one row each

    def average(self, model: Singles, devices: Ints, samples: Ints, among: Ints | None = None) -> Singles:
        """The model moved by the updates of some of the devices, weighted by D_k; ``samples`` is of all.

        ``among``: by its share of these devices' data, so that whoever is not heard holds the model where it is.
        """
        rows = np.flatnonzero(np.isin(self.devices, devices))
        if len(rows) == 0:
            return model
        counts = samples[self.devices[rows]]
        total = (counts if among is None else samples[among]).sum()
        weights = (counts / total).astype(np.float32)
        return np.asarray(model + weights @ rows_of(self.updates, rows), dtype=np.float32)


def rows_of(updates: Singles, rows: Ints) -> Singles:
    """Some rows, ascending; not a copy where that is all of them."""
    return updates if len(rows) == len(updates) else updates[rows]


def stack(models: Mapping[str, Singles], names: list[str], parameters: int) -> Singles:
    """Some models as the rows of a matrix."""
    return np.stack([models[name] for name in names]) if names else np.zeros((0, parameters), dtype=np.float32)


def index(leaf_of: list[str], devices: Ints, names: list[str]) -> Ints:
    """For each device the position of its leaf among the names."""
    places = {name: position for position, name in enumerate(names)}
    return np.array([places[leaf_of[device]] for device in devices], dtype=np.int64)


@dataclass(frozen=True)
class Event:
    """Something worth telling.

    split, trial, stop, reopen, moved, merge; placed, missed, lost, rejected, trimmed; incident.
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
    verdict: Verdict | Literal["stopped"]


@dataclass(frozen=True)
class EvaluationRecord:
    """Every device under its own cluster's model, and under the conventional one."""

    node: list[str]
    accuracy: Floats
    loss: Floats
    conventional_accuracy: Floats


@dataclass(frozen=True)
class RoundRecord:
    """All that is written down of a round."""

    round: int
    start_seconds: float
    seconds: float
    broadcast_seconds: float
    asking_seconds: float  # for trials and reviews: at the round's end, but for devices that are new
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
