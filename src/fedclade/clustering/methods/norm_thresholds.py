"""The paper's rule, Algorithm 1: split a cluster that stands still while some of its devices still pull hard.

"Fair Selection of Edge Nodes to Participate in Clustered Federated Multitask Learning" (Albaseer et al.), after
"Clustered Federated Learning" (Sattler et al.). ε1 and ε2 are thresholds of update norms: they must be set for each
model and data set.
"""

from fedclade.clustering.bipartition import bipartition
from fedclade.clustering.criteria import cut_facts, enough_heard, gamma_test, judge
from fedclade.clustering.grouping import placed_by_loss
from fedclade.clustering.method import BaseMethod, Decisions, NewSplit, Norms
from fedclade.clustering.recent import cluster_norms, completed, known_updates, recent, similarity
from fedclade.core.arrays import Ints
from fedclade.core.state import State
from fedclade.core.tree import Node
from fedclade.fleet.fleet import Arrival, Fleet, Respondents
from fedclade.scheduling.planner import heard_in_full


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
        """Lines 20 to 24: cut the members whose updates are young enough; None if no cut is possible or right."""
        clustering, settings = self.config.clustering, self.config.norm_thresholds
        devices = recent(state, state.tree.members(name), clustering)
        likeness = similarity(state, arrival, devices, clustering)
        side = bipartition(likeness, settings.bipartition, clustering.min_cluster_size)
        if side is None:
            return None
        updates = known_updates(state, arrival, devices).rows(devices) if settings.gamma == "estimated" else None
        facts = cut_facts(likeness, side, updates, settings.gamma)
        if not gamma_test(facts):
            return None
        evidence = {"by": "similarity", **facts.evidence()}
        return NewSplit(name, completed(state, name, devices, side), evidence, (devices, likeness))


METHOD = NormThresholds
