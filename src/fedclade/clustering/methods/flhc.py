"""FL+HC: conventional federated learning for n rounds, then one hierarchical clustering of everybody's updates.

"Federated learning with hierarchical clustering of local updates to improve training on non-IID data" (Briggs, Fan,
Andras; IJCNN 2020). In the round after the n-th all devices train the joint model and upload, whatever the policy
says; their updates are merged bottom up until the given number of clusters is left, or until the next merger would be
wider than a threshold. From then on every cluster trains by itself, from the joint model and its members' updates.

The paper compares Manhattan, Euclidean and cosine distances and four linkages, and finds that the threshold must be
set for each data set. A device that was away in that round takes the cluster with the smallest loss when it is back.
"""

import numpy as np

from fedclade.clustering.grouping import agglomerated, distances, parts_of, placed_by_loss
from fedclade.clustering.method import NOBODY, Decisions, NewSplit
from fedclade.clustering.methods._known import OneShot
from fedclade.core.arrays import Ints, Singles
from fedclade.core.state import State
from fedclade.core.tree import ROOT
from fedclade.fleet.fleet import Arrival, Fleet, Respondents


class FlHc(OneShot):
    """Cluster once, after some rounds."""

    name, reveals = "flhc", "updates"

    def calls(self, state: State) -> Ints:
        """Everybody in the round of the clustering."""
        due = state.round >= self.config.flhc.rounds and not state.method.done
        return np.arange(state.devices) if due else NOBODY

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """Whoever was not there takes the cluster with the smallest loss."""
        if not state.method.done:
            return Decisions(state.method)
        late = devices[~state.method.placed[devices]]
        decided = placed_by_loss(state, late, fleet)
        return Decisions(state.method.placing(late), moves=decided.moves, notes=decided.notes, cost=decided.cost)

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """The one clustering, of all that were heard."""
        settings, heard = self.config.flhc, arrival.heard
        if state.method.done or state.round <= settings.rounds or len(heard) < 2:
            return Decisions(state.method)
        apart = distances(arrival.updates, heard, settings.distance)
        count = settings.clusters if settings.threshold is None else None
        labels = agglomerated(apart, settings.linkage, count, settings.threshold)
        known = state.method.placing(heard)
        if labels.max() == 0:
            return Decisions(known)
        evidence = {"by": "hierarchical clustering", "clusters": int(labels.max()) + 1}
        likeness = np.asarray(1.0 - 2.0 * apart / max(apart.max(), 1e-30), dtype=np.float32)
        return Decisions(known, splits=(_split(state, heard, labels, evidence, likeness),))


def _split(state: State, heard: Ints, labels: Ints, evidence: dict[str, object], likeness: Singles) -> NewSplit:
    return NewSplit(ROOT, parts_of(state, heard, labels), evidence, (heard, likeness))


METHOD = FlHc
