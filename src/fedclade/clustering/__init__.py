"""Finding the groups: what a method is, the methods, and what they share: similarity, bipartition, criteria."""

from fedclade.clustering.bipartition import bipartition
from fedclade.clustering.criteria import CutFacts, cut_facts, enough_heard, gamma_test, judge
from fedclade.clustering.method import BaseMethod, Decisions, Method, Norms
from fedclade.clustering.methods import find_method, method_names

__all__ = [
    "BaseMethod",
    "CutFacts",
    "Decisions",
    "Method",
    "Norms",
    "bipartition",
    "cut_facts",
    "enough_heard",
    "find_method",
    "gamma_test",
    "judge",
    "method_names",
]
