"""Finding the groups: similarity, bipartition, criteria, and the tree of models."""

from fedclade.clustering.belonging import Belonging
from fedclade.clustering.bipartition import bipartition
from fedclade.clustering.criteria import CutFacts, Norms, Verdict, cut_facts, enough_heard, gamma_test, judge
from fedclade.clustering.kinship import Kinship, kindred_cut
from fedclade.clustering.similarity import (
    absurd,
    cosine_similarity,
    discounted,
    mean_similarity_to,
    mean_update_norm,
    sketch,
    update_norms,
)
from fedclade.clustering.tree import ROOT, Node, Split, Tree
from fedclade.clustering.trial import Outlook, Trial, group_effect

__all__ = [
    "ROOT",
    "Belonging",
    "CutFacts",
    "Kinship",
    "Node",
    "Norms",
    "Outlook",
    "Split",
    "Tree",
    "Trial",
    "Verdict",
    "absurd",
    "bipartition",
    "cosine_similarity",
    "cut_facts",
    "discounted",
    "enough_heard",
    "gamma_test",
    "group_effect",
    "judge",
    "kindred_cut",
    "mean_similarity_to",
    "mean_update_norm",
    "sketch",
    "update_norms",
]
