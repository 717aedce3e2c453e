"""Norms and cosine similarities of the devices' updates Δw (Algorithm 1, lines 18 to 20)."""

import numpy as np
from scipy.linalg.blas import ssyrk

from fedclade.core.arrays import Bools, Floats, Ints, Singles

ABSURD = 10.0  # times the usual
CHUNK_ENTRIES = 1 << 23  # of the updates that are scaled at once: 32 MiB


def update_norms(updates: Singles) -> Floats:
    """‖Δw_k‖ of each row; that of a row with anything not finite in it is not finite either."""
    with np.errstate(invalid="ignore"):
        norms: Floats = np.sqrt(np.einsum("ij,ij->i", updates, updates, dtype=np.float64))
    return norms


def absurd(norms: Floats, steps: Ints, telling: Bools | None = None) -> Bools:
    """Which of a cluster's updates are far too large, both as they are and for their number of local steps.

    ``telling``: those that tell what is usual; all of them if unset.
    """
    each, those = norms / steps, slice(None) if telling is None else telling
    usual, usual_each = np.median(norms[those]), np.median(each[those])
    return np.asarray((norms > ABSURD * usual) & (each > ABSURD * usual_each) & (usual > 0))


def mean_update_norm(updates: Singles, weights: Floats) -> float:
    """‖Σ_k weight_k Δw_k‖ with the weights normalised to 1."""
    mean: Singles = (weights / weights.sum()).astype(np.float32) @ updates
    return float(update_norms(mean[None])[0])


def sketch(updates: Singles, signs: Singles, width: int) -> Singles:
    """A random projection: each parameter times a random sign, then added up ``width`` apart.

    Inner products are right on average, and cosines have a standard error of at most about 1/sqrt(width).
    """
    rows, parameters = updates.shape
    small = np.zeros((rows, width), dtype=np.float32)
    for first in range(0, parameters, width):
        part = updates[:, first : first + width] * signs[first : first + width]
        small[:, : part.shape[1]] += part
    return small


def cosine_similarity(updates: Singles) -> Singles:
    """All pairwise cosines; a zero update is similar to nothing, itself included.

    Matrix products over a few parameters at a time, added up in place for one triangle: exact, with half the
    arithmetic, and with no second copy of the updates.
    """
    count, parameters = updates.shape
    norms = update_norms(updates).astype(np.float32)
    norms[norms == 0] = 1
    cosines = np.zeros((count, count), dtype=np.float32, order="F")
    width = max(1, CHUNK_ENTRIES // max(1, count))
    for first in range(0, parameters if count else 0, width):
        unit = updates[:, first : first + width] / norms[:, None]
        cosines = ssyrk(1.0, unit.T, beta=1.0, c=cosines, trans=1, overwrite_c=1)
    np.clip(cosines, -1.0, 1.0, out=cosines)
    for row in range(count):
        cosines[row + 1 :, row] = cosines[row, row + 1 :]
    return cosines.T


def mean_similarity_to(updates: Singles, known: Ints, group: Ints) -> Floats:
    """For each row of ``known`` its mean cosine to the rows of ``group``: its product with their mean direction."""
    if len(known) == 0:
        return np.zeros(0)
    mine, theirs = updates[known], updates[group]
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
