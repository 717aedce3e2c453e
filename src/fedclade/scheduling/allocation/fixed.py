"""Everybody's speed and power stay as they were drawn or measured."""

from fedclade.scheduling.allocation.rule import rule
from fedclade.scheduling.allocation.slots import Allocation, Slots


@rule("fixed")
def fixed(slots: Slots) -> Allocation:
    """The round as it was planned."""
    effort = slots.effort
    return Allocation(slots.timeline, effort.computing(effort.compute_seconds), effort.uploading(effort.upload_seconds))
