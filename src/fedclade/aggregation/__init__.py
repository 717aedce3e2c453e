"""What a cluster's model is moved by: its members' updates made into one, by the mean or by a robust rule.

An optimiser may make a step of it that depends on the rounds before.
"""

from fedclade.aggregation import rules  # noqa: F401, the rules register as they are imported
from fedclade.aggregation.optimiser import optimised
from fedclade.aggregation.rule import Pool, Rule, aggregate, find_rule, rule, rule_names

__all__ = ["Pool", "Rule", "aggregate", "find_rule", "optimised", "rule", "rule_names"]
