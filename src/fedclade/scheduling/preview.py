"""What `fedclade plan` shows: one round, planned but not trained."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedclade.core.links import Links
from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation.slots import Allocation
from fedclade.scheduling.constraints import Constraint


@dataclass(frozen=True)
class PlannedRound:
    """One round as it is planned, how plausible it is, and how it would be under other orders and allocations."""

    links: Links
    allocation: Allocation
    model_bits: float
    warnings: list[str]

    constraints: list[Constraint]
    compared: Mapping[tuple[str, str], Allocation]  # by order and allocation, of the same devices

    @property
    def timeline(self) -> Timeline:
        """Who uploads when."""
        return self.allocation.timeline
