"""Norms and cosine similarities of the devices' updates Δw (Algorithm 1, lines 19-21)."""

import numpy as np

from fedclade.arrays import Floats, Ints, Singles


def update_norms(updates: Singles) -> Floats:
    """‖Δw_k‖ of each row."""
    norms: Floats = np.sqrt(np.einsum("ij,ij->i", updates, updates, dtype=np.float64))
    return norms


def mean_update_norm(updates: Singles, weights: Floats) -> float:
    """‖Σ_k weight_k Δw_k‖ with the weights normalised to 1."""
    return float(np.linalg.norm((weights / weights.sum()).astype(np.float32) @ updates))


def cosine_similarity(updates: Singles) -> Singles:
    """All pairwise cosines by one matrix product; a zero update is similar to nothing, itself included."""
    norms = update_norms(updates).astype(np.float32)
    unit = updates / np.where(norms > 0, norms, 1)[:, None]
    return np.clip(unit @ unit.T, -1.0, 1.0)


def mean_similarity_to(updates: Singles, known: Ints, group: Ints) -> Floats:
    """For each row of ``known`` its mean cosine to the rows of ``group``."""
    mine = updates[known] / np.maximum(update_norms(updates[known]), 1e-30)[:, None]
    theirs = updates[group] / np.maximum(update_norms(updates[group]), 1e-30)[:, None]
    return np.asarray(mine @ theirs.mean(axis=0), dtype=np.float64)


def discounted(similarity: Singles, trust: Floats) -> Singles:
    """Similarities drawn towards 0, which says nothing, by how far both updates are trusted."""
    factors = np.outer(trust, trust)
    np.fill_diagonal(factors, 1.0)
    return np.asarray(similarity * factors, dtype=np.float32)
