"""The schedule of a round: selection (who) and timeline (when)."""

from fedclade.scheduling.selection import ClusterView, Policy, Situation, find_policy, policy, policy_names
from fedclade.scheduling.timeline import ORDERS, Order, Timeline, plan_timeline

__all__ = [
    "ORDERS",
    "ClusterView",
    "Order",
    "Policy",
    "Situation",
    "Timeline",
    "find_policy",
    "plan_timeline",
    "policy",
    "policy_names",
]
