"""What there is between two rounds. A value: a step makes a new state and leaves the old one as it was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.objective import Best
from fedclade.core.tree import Tree
from fedclade.core.updates import HeldUpdates

CONVENTIONAL = "conventional"
LOCAL = "local"  # the file of what stays on each device, beside the models
BEST = "best"  # what stands before a cluster's name in that of its best model


@dataclass(frozen=True)
class Serving:
    """Which model each device trains: row ``model_of[k]`` of ``models`` is device k's."""

    names: tuple[str, ...]
    models: Singles
    model_of: Ints
    sent: bool = False  # the devices that are about to train hold their models already


@dataclass(frozen=True)
class State:
    """Everything between two rounds."""

    round: int  # rounds done
    seconds: float  # simulated clock
    tree: Tree
    models: Mapping[str, Singles]  # of every node; an inner node's as it stood at its split
    conventional: Singles | None  # the one-model comparison, from the first split on
    samples: Ints  # D_k
    memory: HeldUpdates  # each device's last known update, or a sketch of it
    last_heard: Ints  # round of that update; 0: never
    participation: Ints  # uploads per device
    energy_joules: Floats  # spent per device
    present_rounds: Ints  # rounds in which the device was there
    retry: Ints  # devices whose upload was lost in the last round: they send again in the next
    method: Any  # the clustering method's own: it alone knows what is in it
    downlink_bits: float = 0.0  # sent to the devices so far: models
    uplink_bits: float = 0.0  # sent by the devices so far: updates, and answers of some size
    losses: Floats | None = None  # what each device last told of its training loss, NaN where nothing; None: not asked
    best: Mapping[str, Best] = field(default_factory=dict)  # of every cluster: its model of the best round
    moments: Mapping[str, Singles] = field(default_factory=dict)  # of each cluster's model: its optimiser's memory
    kept: Singles | None = None  # devices × numbers: what each device keeps for the next round; None: nothing

    @property
    def devices(self) -> int:
        """K."""
        return len(self.samples)

    def serving(self, sent: bool = False) -> Serving:
        """The leaves' models, and which of them serves each device; ``sent``: whether they need no multicast."""
        leaf_of = self.tree.leaf_of()
        names = sorted(set(leaf_of))
        return Serving(tuple(names), stack(self.models, names), index(leaf_of, names), sent)


def stack(models: Mapping[str, Singles], names: Sequence[str]) -> Singles:
    """Some models as the rows of a matrix."""
    return np.stack([models[name] for name in names])


def index(leaf_of: Sequence[str], names: Sequence[str]) -> Ints:
    """For each device the position of its leaf among the names; -1 where it is not among them."""
    places = {name: position for position, name in enumerate(names)}
    return np.array([places.get(name, -1) for name in leaf_of], dtype=np.int64)
