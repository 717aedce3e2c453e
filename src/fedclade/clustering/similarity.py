"""Norms and cosine similarities of the devices' updates Δw (Algorithm 1, lines 18 to 20)."""

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.updates import Updates, update_norms


def absurd(norms: Floats, steps: Ints, telling: Bools | None = None, factor: float = 10.0) -> Bools:
    """Which of a cluster's updates are far too large, both as they are and for their number of local steps.

    ``telling``: those that tell what is usual; all of them if unset.
    """
    each, those = norms / steps, slice(None) if telling is None else telling
    usual, usual_each = np.median(norms[those]), np.median(each[those])
    return np.asarray((norms > factor * usual) & (each > factor * usual_each) & (usual > 0))


def mean_update_norm(updates: Updates, devices: Ints, weights: Floats, scale: Floats | float = 1.0) -> float:
    """‖Σ_k weight_k scale_k Δw_k‖ with the weights normalised to 1."""
    mean = updates.sums(devices, np.zeros_like(devices), np.asarray(weights / weights.sum() * scale), 1)
    return float(update_norms(mean)[0])


def mean_similarity_to(updates: Updates, known: Ints, group: Ints) -> Floats:
    """For each device of ``known`` its mean cosine to those of ``group``: its product with their mean direction."""
    if len(known) == 0:
        return np.zeros(0)
    mine, theirs = updates.rows(known), updates.rows(group)
    shares = 1.0 / (len(group) * np.maximum(update_norms(theirs), 1e-30))
    return np.asarray(mine @ (shares.astype(np.float32) @ theirs) / np.maximum(update_norms(mine), 1e-30))


def discounted(similarity: Singles, trust: Floats) -> Singles:
    """Similarities drawn towards 0, which says nothing, by how far both updates are trusted."""
    if (trust == 1).all():
        return similarity
    factors = trust.astype(np.float32)
    faded: Singles = similarity * factors[:, None] * factors
    np.fill_diagonal(faded, similarity.diagonal())
    return faded
