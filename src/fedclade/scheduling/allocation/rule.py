"""What an allocation rule is: a function from a planned round to one with every speed, power and bandwidth settled.

Add your own with a name::

    @rule("whisper")
    def whisper(slots: Slots) -> Allocation:
        return slots.settled(power_w=np.full(len(slots.timeline.device), slots.uplink.power_min_w))

or name it in the config as ``scheduling.allocation = "my_module:whisper"``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fedclade.core.errors import UserError
from fedclade.core.plugins import load, near_miss, takes, users_code
from fedclade.scheduling.allocation.contract import checked
from fedclade.scheduling.allocation.slots import Allocation, Effort, Slots

Settle: TypeAlias = Callable[[Slots], Allocation]


@dataclass(frozen=True)
class Rule:
    """How fast and how loud each device of a planned round is, and over how much bandwidth it sends."""

    name: str
    settle: Settle
    needs_limits: bool = False  # whether it is of no use where the edge does not tell its devices' limits


_registry: dict[str, Rule] = {}


def rule(name: str, *, needs_limits: bool = False) -> Callable[[Settle], Settle]:
    """Register a function as the allocation rule of that name."""

    def register(settle: Settle) -> Settle:
        _registry[name] = Rule(name, settle, needs_limits)
        return settle

    return register


def find_rule(name: str) -> Rule:
    """A registered rule, or ``package.module:function``."""
    if ":" in name:
        found = load("scheduling.allocation", name)
        if not takes(found, 1):
            raise UserError(f"scheduling.allocation = {name!r}: must be a function of Slots")
        return next((known for known in _registry.values() if known.settle is found), Rule(name, found))
    if name not in _registry:
        raise UserError(f'scheduling.allocation = "{name}": no such rule; {near_miss(name, _registry)}')
    return _registry[name]


def allocate(rule: Rule, slots: Slots) -> Allocation:
    """What the rule makes of a planned round, held to the contract of rules."""
    on = ~slots.timeline.missed
    effort = Effort(**{name: np.where(on, values, 0.0) for name, values in vars(slots.effort).items()})
    slots = replace(slots, rule=rule.name, effort=effort)
    with users_code(f"allocation rule {rule.name!r}"):
        return checked(slots, rule.settle(slots))
