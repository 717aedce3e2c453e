"""FeSEM, multi-center federated learning: k centres of models; each device belongs to the one its weights are nearest.

"Multi-center federated learning: clients clustering for better personalization" (Xie, Long, Shen, Zhou, Wang, Jiang,
Zhang; World Wide Web 2023; arXiv 2005.01026 and 2108.08647). Stochastic expectation maximisation, in every round:
local training of the centre that a device belongs to; E-step, r_i = argmin_k ‖W_i − W̃_k‖²; M-step, W̃_k = the mean of
its members' weights W_i. k must be known.

The first centres come from k-means of the weights after the first round, in which all train one and the same model:
centres that start from different random weights are so far apart that hardly any device ever leaves its own. The mean
is weighted by data, as everywhere here. It is a mean of weights and not of updates: a device that moves brings its own.
"""

from typing import Any

import numpy as np

from fedclade.aggregation import aggregate
from fedclade.clustering.grouping import coordinates, k_means, parts_of, products
from fedclade.clustering.method import BaseMethod, Decisions, Move, NewSplit
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.random import generator
from fedclade.core.state import State, index, stack
from fedclade.core.tree import ROOT
from fedclade.core.updates import HeldUpdates, update_norms
from fedclade.fleet.fleet import Arrival, Respondents


class FeSem(BaseMethod):
    """The nearest centre, in every round."""

    name, reveals = "fesem", "updates"

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """k-means the first time; then each device heard goes to the nearest centre, and the centres to their mean."""
        count, heard = self.config.fesem.clusters, arrival.heard
        if count == 1 or len(heard) == 0:
            return Decisions(state.method)
        if state.tree.nodes[ROOT].split is None:
            return self._first(state, arrival)
        names = [leaf.name for leaf in state.tree.leaves()]
        centres, rows = stack(state.models, names), arrival.updates.rows(heard)
        leaf_of = state.tree.leaf_of()
        now = index(leaf_of, names)[heard]
        nearest = squared_distances(rows, centres, now).argmin(axis=1)
        weights = rows + centres[now] - centres[nearest]  # W_i, seen from the centre that it goes to
        shares = state.samples[heard] / np.maximum(1, np.bincount(nearest, state.samples[heard])[nearest])
        moves = aggregate(HeldUpdates.of(heard, weights), heard, nearest, shares, self.config.aggregation)
        settled = {names[row]: np.asarray(centres[row] + move, dtype=np.float32) for row, move in moves.items()}
        left = np.setdiff1d(np.arange(len(names)), nearest)  # a centre that all left stays where it is
        settled |= {names[row]: centres[row] for row in left.tolist()}
        changes = [
            Move(device, names[to], {"from": leaf_of[device], "by": "nearest weights"})
            for device, to, here in zip(heard.tolist(), nearest.tolist(), now.tolist(), strict=True)
            if to != here
        ]
        return Decisions(state.method, moves=tuple(changes), settled=settled)

    def _first(self, state: State, arrival: Arrival) -> Decisions:
        """The first centres, once enough devices were heard."""
        count, heard = self.config.fesem.clusters, arrival.heard
        if len(heard) < count:
            return Decisions(state.method)
        rng = generator(self.config.run.seed, "fesem", state.round)
        labels = k_means(coordinates(products(arrival.updates, heard)), count, rng)
        if labels.max() == 0:
            return Decisions(state.method)
        evidence: dict[str, Any] = {"by": "k-means of weights", "clusters": int(labels.max()) + 1}
        return Decisions(state.method, splits=(NewSplit(ROOT, parts_of(state, heard, labels), evidence),))


def squared_distances(updates: Singles, centres: Singles, now: Ints) -> Floats:
    """‖W_i − W̃_k‖² for each device (row) and centre (column); W_i is the device's centre ``now`` plus its update."""
    return np.stack([update_norms(updates + (centres[now] - centre)) ** 2 for centre in centres], axis=1)


METHOD = FeSem
