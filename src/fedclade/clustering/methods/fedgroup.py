"""FedGroup: groups by the Euclidean distance of decomposed cosine similarity (EDC), found in a cold start.

"FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering" (Duan, Liu, Ji, Liu, Liang, Chen,
Tan; ISPA 2021; arXiv 2010.06870).

Group cold start, in the first round: α·m devices (α = 20) train the initial model. Of their updates ΔW the m leading
singular vectors v_j are taken; device i is described by its cosines with these, E_ij = cos(Δw_i, v_j), and k-means++
of these short vectors makes m groups. A group's model is the mean of its members' pre-trained ones, and its direction
ΔG_j the mean of their updates. m must be known.

Client cold start: whoever has no group yet trains the initial model first, and joins the group whose direction is
closest, argmin_j (1 − cos(ΔG_j, Δw_i)) / 2. Until then it waits in a leaf that keeps the initial model, so that its
pre-training is a round of its own on the clock and in the bill. Groups never change afterwards. The paper's option to
mix the groups' models (η_G > 0) is left out: its default is 0.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.clustering.grouping import k_means, products
from fedclade.clustering.method import NOBODY, BaseMethod, Decisions, Move, NewSplit
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.random import generator
from fedclade.core.state import State
from fedclade.core.tree import ROOT
from fedclade.core.updates import update_norms
from fedclade.fleet.fleet import Arrival, Respondents


@dataclass(frozen=True)
class Groups:
    """What was found in the cold start."""

    directions: Singles  # ΔG_j, one row a group; no rows before the cold start
    waiting: str | None = None  # the leaf of those without a group


class FedGroup(BaseMethod):
    """Group once, in the first round; place whoever comes later by the direction of a first update."""

    name, reveals = "fedgroup", "updates"

    def init(self, devices: int) -> Groups:
        """No groups yet."""
        return Groups(np.zeros((0, 0), dtype=np.float32))

    def save(self, own: Groups) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The directions as an array."""
        return {"waiting": own.waiting}, {"directions": own.directions}

    def load(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Groups:
        """The inverse of ``save``."""
        return Groups(arrays["directions"], facts["waiting"])

    def calls(self, state: State) -> Ints:
        """α·m devices, drawn at random, for the cold start."""
        if len(state.method.directions):
            return NOBODY
        settings, rng = self.config.fedgroup, generator(self.config.run.seed, "fedgroup-cold-start")
        count = min(state.devices, settings.pretrain_scale * settings.clusters)
        return np.sort(rng.permutation(state.devices)[:count])

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """The cold start of the groups, then that of each device that waits."""
        groups: Groups = state.method
        if not len(groups.directions):
            return self._cold_start(state, arrival)
        if groups.waiting is None:
            return Decisions(groups)
        waiting = np.intersect1d(arrival.heard, state.tree.members(groups.waiting))
        near = closest(arrival.updates.rows(waiting), groups.directions)
        moves = tuple(
            Move(device, f"{ROOT}.{group}", {"from": groups.waiting, "by": "direction"}, "placed", closing=True)
            for device, group in zip(waiting.tolist(), near.tolist(), strict=True)
        )
        emptied = len(waiting) == len(state.tree.members(groups.waiting))
        kept = {groups.waiting: state.models[groups.waiting]}
        return Decisions(replace(groups, waiting=None if emptied else groups.waiting), moves=moves, settled=kept)

    def _cold_start(self, state: State, arrival: Arrival) -> Decisions:
        count, heard = self.config.fedgroup.clusters, arrival.heard
        if len(heard) < count:
            return Decisions(state.method)
        rng = generator(self.config.run.seed, "fedgroup", state.round)
        labels = k_means(edc(products(arrival.updates, heard), count), count, rng)
        found = int(labels.max()) + 1
        parts = [heard[labels == group] for group in range(found)]
        shares = 1.0 / np.bincount(labels)[labels]
        directions = arrival.updates.sums(heard, labels, shares, found)
        late = np.setdiff1d(np.arange(state.devices), heard)
        waiting = f"{ROOT}.{found}" if len(late) else None
        parts += [late] if len(late) else []
        if len(parts) < 2:
            return Decisions(Groups(directions))
        split = NewSplit(ROOT, tuple(parts), {"by": "EDC", "clusters": found})
        return Decisions(Groups(directions, waiting), splits=(split,))


def edc(inner: Floats, count: int) -> Floats:
    """E_ij: each update's cosine with the leading singular vectors of all; the inner products tell them.

    With ΔW = U S V' and inner products ΔW ΔW' = U S² U', the product of update i with v_j is u_ij s_j.
    """
    values, vectors = np.linalg.eigh(inner)
    leading = np.argsort(-values, kind="stable")[:count]
    along = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    return np.asarray(along / np.maximum(np.sqrt(np.diag(inner)), 1e-30)[:, None])


def closest(updates: Singles, directions: Singles) -> Ints:
    """For each update the direction with the largest cosine."""
    units = directions / np.maximum(update_norms(directions), 1e-30)[:, None].astype(np.float32)
    return np.asarray((updates @ units.T).argmax(axis=1))


METHOD = FedGroup
