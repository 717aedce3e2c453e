"""The schedule of a round: selection (who), timeline (when) and allocation (how fast, how loud)."""

from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation import ALLOCATIONS, Allocation, Effort, Kind, allocate
from fedclade.scheduling.planner import Plan, Planner, cluster_views, recheck_due
from fedclade.scheduling.policies.policy import ClusterView, Policy, Situation, find_policy, policy, policy_names
from fedclade.scheduling.timeline import ORDERS, Order, plan_timeline

__all__ = [
    "ALLOCATIONS",
    "ORDERS",
    "Allocation",
    "ClusterView",
    "Effort",
    "Kind",
    "Order",
    "Plan",
    "Planner",
    "Policy",
    "Situation",
    "Timeline",
    "allocate",
    "cluster_views",
    "find_policy",
    "plan_timeline",
    "policy",
    "policy_names",
    "recheck_due",
]
