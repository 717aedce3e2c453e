"""Local training: every device has a model of its own, and nobody hears of anybody. What sharing must beat.

Nothing is sent: the clock and the bill count the computing alone. The policy says who trains in a round, as ever.
"""

import numpy as np

from fedclade.clustering.method import BaseMethod, Decisions, NewSplit
from fedclade.core.arrays import Ints
from fedclade.core.state import State
from fedclade.core.tree import ROOT
from fedclade.fleet.fleet import Fleet


class Local(BaseMethod):
    """As many clusters as there are devices."""

    name, alone, reveals = "local", True, "nothing"

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """Before anybody trains, every device gets a leaf of its own."""
        if state.tree.nodes[ROOT].split or state.devices == 1:
            return Decisions(state.method)
        parts = tuple(np.array([device]) for device in range(state.devices))
        return Decisions(state.method, splits=(NewSplit(ROOT, parts, {"by": "each alone"}),))


METHOD = Local
