"""The schedule of a round: selection (who), timeline (when) and allocation (how fast, how loud)."""

from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation import ALLOCATIONS
from fedclade.scheduling.allocation.rule import Rule, allocate, find_rule, rule
from fedclade.scheduling.allocation.slots import Allocation, Effort, Slots
from fedclade.scheduling.planner import Plan, Planner, cluster_views, greedy_phase, heard_in_full
from fedclade.scheduling.policies.policy import ClusterView, Policy, Situation, find_policy, policy, policy_names
from fedclade.scheduling.timeline import ORDERS, Order, plan_timeline

__all__ = [
    "ALLOCATIONS",
    "ORDERS",
    "Allocation",
    "ClusterView",
    "Effort",
    "Order",
    "Plan",
    "Planner",
    "Policy",
    "Rule",
    "Situation",
    "Slots",
    "Timeline",
    "allocate",
    "cluster_views",
    "find_policy",
    "find_rule",
    "greedy_phase",
    "heard_in_full",
    "plan_timeline",
    "policy",
    "policy_names",
    "rule",
]
