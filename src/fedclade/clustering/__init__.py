"""Finding the groups: similarity, bipartition, criteria, and the tree of models."""

from fedclade.clustering.bipartition import bipartition
from fedclade.clustering.criteria import CutFacts, Norms, Verdict, cut_facts, enough_heard, gamma_test, judge
from fedclade.clustering.similarity import (
    absurd,
    cosine_similarity,
    discounted,
    mean_similarity_to,
    mean_update_norm,
    opposed,
    sketch,
    update_norms,
)
from fedclade.clustering.tree import ROOT, Node, Split, Tree
from fedclade.clustering.trial import Outlook, Trial, agreement, group_effect, refined, without_labels

__all__ = [
    "ROOT",
    "CutFacts",
    "Node",
    "Norms",
    "Outlook",
    "Split",
    "Tree",
    "Trial",
    "Verdict",
    "absurd",
    "agreement",
    "bipartition",
    "cosine_similarity",
    "cut_facts",
    "discounted",
    "enough_heard",
    "gamma_test",
    "group_effect",
    "judge",
    "mean_similarity_to",
    "mean_update_norm",
    "opposed",
    "refined",
    "sketch",
    "update_norms",
    "without_labels",
]
