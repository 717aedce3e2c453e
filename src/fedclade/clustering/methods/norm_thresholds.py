"""The paper's rule, Algorithm 1: split a cluster that stands still while some of its devices still pull hard.

"Fair Selection of Edge Nodes to Participate in Clustered Federated Multitask Learning" (Albaseer et al.), after
"Clustered Federated Learning" (Sattler et al.). ε1 and ε2 are thresholds of update norms: they must be set for each
model and data set.
"""

import numpy as np

from fedclade.clustering.bipartition import bipartition
from fedclade.clustering.criteria import enough_heard, extremes, facts_of, gamma_test, judge
from fedclade.clustering.grouping import placed_by_loss
from fedclade.clustering.method import BaseMethod, Decisions, NewSplit, Norms
from fedclade.clustering.neighbours import bipartition_by_some, directions
from fedclade.clustering.recent import cluster_norms, completed, known_updates, recent, trust
from fedclade.clustering.similarity import discounted
from fedclade.clustering.spanning import Pairs
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.state import State
from fedclade.core.tree import Node
from fedclade.core.updates import cosine_similarity
from fedclade.fleet.fleet import Arrival, Fleet, Respondents
from fedclade.scheduling.planner import heard_in_full

SHOWN = 500  # devices of a cut whose similarities are recorded


class NormThresholds(BaseMethod):
    """Stop or split by two thresholds of update norms; cut by the similarity of updates."""

    name, reveals = "norm-thresholds", "updates"

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """A device never heard before takes the leaf whose model has the smallest loss on its data."""
        return placed_by_loss(state, devices[state.last_heard[devices] == 0], fleet)

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """Lines 17 to 28, for every cluster."""
        stops, reopens, splits, norms_of = {}, {}, [], {}
        for leaf in state.tree.leaves():
            norms = cluster_norms(state, arrival, state.tree.members(leaf.name), self.config)
            norms_of[leaf.name] = norms
            stopped = leaf.stopped_round is not None
            if stopped and not self._rechecked(state, leaf, norms):
                continue
            settings = self.config.norm_thresholds
            verdict = judge(norms, len(leaf.devices), state.round, settings) if norms.heard else "go-on"
            pull = {"mean_norm": norms.mean, "max_norm": norms.max}
            if verdict == "stop" and not stopped:
                stops[leaf.name] = pull
            if verdict != "stop" and stopped:
                reopens[leaf.name] = pull
            if verdict == "split" and (cut := self._cut(state, arrival, leaf.name)) is not None:
                splits.append(cut)
        return Decisions(state.method, stops, reopens, tuple(splits), norms=norms_of)

    def _rechecked(self, state: State, leaf: Node, norms: Norms) -> bool:
        """Whether a stopped cluster was heard in full in this round, to see whether it should go on."""
        clusters = len(state.tree.leaves())
        return heard_in_full(self.config.scheduling, leaf, clusters, state.round) and enough_heard(
            norms, len(leaf.devices)
        )

    def _cut(self, state: State, arrival: Arrival, name: str) -> NewSplit | None:
        """Lines 20 to 24: cut the members whose updates are young enough; None if no cut is possible or right.

        Of very many it is made by what is remembered of each update, which for so many is a sketch.
        """
        clustering, settings = self.config.clustering, self.config.norm_thresholds
        devices = recent(state, state.tree.members(name), clustering)
        many = len(devices) > settings.pairs_up_to
        known, trusted = (
            state.memory if many else known_updates(state, arrival, devices),
            trust(state, devices, clustering),
        )
        found = self._found(known.compared(devices), trusted, many)
        if found is None:
            return None
        side, extremes = found
        updates = known.rows(devices) if settings.gamma == "estimated" else None
        facts = facts_of(*extremes, side, updates, settings.gamma)
        if not gamma_test(facts):
            return None
        some = np.linspace(0, len(devices) - 1, min(SHOWN, len(devices))).astype(np.int64)
        shown = devices[some], discounted(known.cosines(devices[some]), trusted[some])
        return NewSplit(name, completed(state, name, devices, side), {"by": "similarity", **facts.evidence()}, shown)

    def _found(self, updates: Singles, trusted: Floats, many: bool) -> tuple[Bools, tuple[float, float]] | None:
        """A cut, the smallest similarity within its children and the largest across; None if none is possible."""
        least, settings = self.config.clustering.min_cluster_size, self.config.norm_thresholds
        pairs = Pairs(updates, trusted)
        if settings.bipartition == "minmax":
            side = pairs.cut(least)
        elif not many:
            likeness = discounted(cosine_similarity(updates), trusted)
            side = bipartition(likeness, settings.bipartition, least)
            return None if side is None else (side, extremes(likeness, side))
        elif self.config.clustering.age_discount == 1:
            side = bipartition_by_some(directions(updates), settings.bipartition, least, settings.neighbours)
        else:
            raise UserError(
                f"clustering.age_discount = {self.config.clustering.age_discount:g}: old updates cannot count for less "
                f"in clusters of more than norm_thresholds.pairs_up_to = {settings.pairs_up_to} devices; set it to 1, "
                'or norm_thresholds.bipartition = "minmax"'
            )
        return None if side is None else (side, pairs.extremes(side))


METHOD = NormThresholds
