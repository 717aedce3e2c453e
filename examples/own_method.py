"""A clustering method of your own: which devices share a model.

This one splits once, after ``custom.wait`` rounds, by the directions of the updates. From this folder::

    fedclade run quickstart --set clustering.method=own_method:SplitOnce --set custom.wait=3
"""

from fedclade.clustering import BaseMethod, Decisions, bipartition
from fedclade.clustering.method import NewSplit
from fedclade.clustering.recent import completed
from fedclade.core.state import State
from fedclade.core.tree import ROOT
from fedclade.fleet.fleet import Arrival, Respondents


class SplitOnce(BaseMethod):
    """Two clusters from some round on; everything else is as BaseMethod has it: nobody stops, moves or merges."""

    name, reveals = "split-once", "updates"

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """Cut those just heard by average linkage of their cosines; the others join the side they are closer to."""
        if state.round != self.config.custom.get("wait", 1):
            return Decisions(state.method)
        side = bipartition(arrival.updates.cosines(arrival.heard), "average", 2)
        if side is None:
            return Decisions(state.method)
        parts = completed(state, ROOT, arrival.heard, side)
        return Decisions(state.method, splits=(NewSplit(ROOT, parts, {"by": "direction"}),))
