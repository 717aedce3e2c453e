"""What an aggregation rule is: a function from a cluster's updates to the one that its model is moved by.

Add your own with a name::

    @rule("largest")
    def largest(pool: Pool) -> Singles:
        return pool.total(pool.norms() == pool.norms().max())

or name it in the config as ``aggregation.rule = "my_module:largest"``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedclade.config import AggregationConfig
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, near_miss, takes, users_code
from fedclade.core.updates import ALL, Updates


@dataclass(frozen=True)
class Pool:
    """The updates of some devices, as a rule sees them: it asks for as little of them as it can do with.

    ``total`` and ``norms`` need no copy of anything, ``squared_distances`` is K × K, and ``rows`` are the updates
    themselves: ask for a few of their columns at a time.
    """

    updates: Updates
    devices: Ints  # at least one
    weights: Floats  # of the devices by their data D_k; they add up to 1
    settings: AggregationConfig

    def __len__(self) -> int:
        return len(self.devices)

    def total(self, weights: Floats) -> Singles:
        """Σ weight_k Δw_k."""
        sums = self.updates.sums(self.devices, np.zeros_like(self.devices), weights, 1)
        return np.asarray(sums[0])

    def norms(self) -> Floats:
        """‖Δw_k‖ of each."""
        return self.updates.norms(self.devices)

    def products(self) -> Floats:
        """All inner products Δw_i · Δw_j, to about seven digits of the norms' product."""
        norms = self.norms()
        products = self.updates.cosines(self.devices).astype(np.float64) * np.outer(norms, norms)
        np.fill_diagonal(products, norms**2)
        return products

    def squared_distances(self) -> Floats:
        """All ‖Δw_i − Δw_j‖²."""
        products = self.products()
        squares = np.diag(products)
        return np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0.0)

    def rows(self, columns: slice = ALL) -> Singles:
        """The updates, or some of their columns, one row each."""
        return self.updates.rows(self.devices, columns)


Combine: TypeAlias = Callable[[Pool], Singles]


@dataclass(frozen=True)
class Rule:
    """How updates are made into one."""

    name: str
    combine: Combine


_registry: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Combine], Combine]:
    """Register a function as the aggregation rule of that name."""

    def register(combine: Combine) -> Combine:
        _registry[name] = Rule(name, combine)
        return combine

    return register


def rule_names() -> list[str]:
    """All rules that ship with fedclade."""
    return sorted(_registry)


def find_rule(name: str) -> Rule:
    """A registered rule, or ``package.module:function``."""
    if ":" in name:
        found = load("aggregation.rule", name)
        if not takes(found, 1):
            raise UserError(f"aggregation.rule = {name!r}: must be a function of a Pool")
        return Rule(name, found)
    if name not in _registry:
        raise UserError(f'aggregation.rule = "{name}": no such rule; {near_miss(name, _registry)}')
    return _registry[name]


def aggregate(
    updates: Updates, devices: Ints, group: Ints, weights: Floats, settings: AggregationConfig
) -> dict[int, Singles]:
    """What each group's model is moved by: the rule's update, times the sum of the group's weights.

    The weights of a group add up to 1, or to less where its devices are to move the model by a part only.
    """
    found, groups = find_rule(settings.rule), np.unique(group)
    if found.name == "mean":  # of all groups in one pass, without a copy of anybody's update
        sums = updates.sums(devices, group, weights, int(group.max(initial=-1)) + 1)
        return {row: sums[row] for row in groups.tolist()}
    moves = {}
    for row in groups.tolist():
        mine = group == row
        total = weights[mine].sum()
        shares = weights[mine] / total if total > 0 else np.full(mine.sum(), 1 / mine.sum())
        with users_code(f'aggregation.rule = "{found.name}"'):
            move = np.asarray(found.combine(Pool(updates, devices[mine], shares, settings)), dtype=np.float32)
        if move.shape != (updates.width,) or not np.isfinite(move).all():
            raise UserError(f'aggregation.rule = "{found.name}": must give {updates.width} finite numbers, one update')
        moves[row] = np.asarray(move * np.float32(total), dtype=np.float32)
    return moves
