"""How good the models are in the paper's terms: F (eq. 4), each cluster's best round (eq. 16), and P1's objective.

F_k is the mean loss of device k's model on the device's *test* data, where the paper has the data that it trained on:
what counts is how well a device is served. Devices weigh as much as they have data to train on, as in the models.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.tree import Tree


@dataclass(frozen=True)
class Best:
    """Eq. (16): a cluster's model of least F over the rounds that were evaluated since it has these members."""

    round: int
    loss: float
    devices: tuple[int, ...]
    model: Singles


@dataclass(frozen=True)
class Objective:
    """What P1 minimises, as it stands after a round. Clusters of whom nobody answered are left out."""

    loss: float  # F of eq. (4), every device under its cluster's model; NaN: nobody answered
    losses: Mapping[str, float]  # F(w_m) of every cluster
    best: Mapping[str, Best]  # of every cluster

    @property
    def now(self) -> float:
        """Σ_m F(w_m) with the models as they are."""
        return float(sum(self.losses.values()))

    @property
    def least(self) -> float:
        """P1's objective: Σ_m F(w_m) with each cluster's best model."""
        return float(sum(best.loss for best in self.best.values()))


def weighted_loss(loss: Floats, samples: Ints) -> float:
    """Eq. (4): Σ_k D_k/D F_k over the devices that answered; NaN: none did."""
    told = ~np.isnan(loss)
    return float(np.average(loss[told], weights=samples[told])) if told.any() else float("nan")


def unchanged(best: Mapping[str, Best], drifted: Collection[int]) -> dict[str, Best]:
    """The best of the clusters none of whose members hold other data than before: of the others, F is another now."""
    return {name: each for name, each in best.items() if not set(each.devices) & set(drifted)}


def assessed(
    round_: int,
    tree: Tree,
    models: Mapping[str, Singles],
    loss: Floats,
    samples: Ints,
    before: Mapping[str, Best],
) -> Objective:
    """The objective after a round.

    ``loss`` is each device's under its cluster's model (NaN: it did not answer), ``samples`` how much data it trains
    on, ``before`` each cluster's best until now. A cluster whose members have changed begins anew: its F is another.
    """
    losses, best = dict[str, float](), dict[str, Best]()
    for leaf in tree.leaves():
        devices = tuple(int(device) for device in leaf.devices)
        known = before.get(leaf.name)
        if known is not None and known.devices == devices:
            best[leaf.name] = known
        members = np.array(devices, dtype=np.int64)
        value = weighted_loss(loss[members], samples[members])
        if np.isnan(value):
            continue
        losses[leaf.name] = value
        if leaf.name not in best or value < best[leaf.name].loss:
            best[leaf.name] = Best(round_, value, devices, models[leaf.name])
    return Objective(weighted_loss(loss, samples), losses, best)
