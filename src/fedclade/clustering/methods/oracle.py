"""The oracle: the planted groups are told, and every group has a model of its own from the start.

Nobody has this in practice. It is what a clustering method can reach at best: the upper bound in comparisons.
"""

import numpy as np

from fedclade.clustering.method import BaseMethod, Decisions, NewSplit
from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.state import State
from fedclade.core.tree import ROOT
from fedclade.fleet.fleet import Fleet


class Oracle(BaseMethod):
    """Split once, before anybody trains, into the planted groups."""

    name, reveals = "oracle", "groups"

    def __init__(self, config: Config, groups: Ints | None = None) -> None:
        super().__init__(config, groups)
        if groups is None:
            raise UserError('clustering.method = "oracle": this data has no planted groups to tell')

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """The groups, if there is more than one."""
        assert self.groups is not None
        groups = np.unique(self.groups)
        if state.tree.nodes[ROOT].split or len(groups) == 1:
            return Decisions(state.method)
        parts = tuple(np.flatnonzero(self.groups == group) for group in groups)
        return Decisions(state.method, splits=(NewSplit(ROOT, parts, {"by": "oracle"}),))


METHOD = Oracle
