"""How fast and how loud: rules that fit each device's speed, power and bandwidth to a planned round, one a file."""

from fedclade.scheduling.allocation import boost, fixed, slack  # importing them registers their rules

ALLOCATIONS = ("fixed", "slack", "boost")  # in the order in which they are compared

__all__ = ["ALLOCATIONS", "boost", "fixed", "slack"]
