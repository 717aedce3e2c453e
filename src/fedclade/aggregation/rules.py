"""The aggregation rules that ship with fedclade, each with the paper that it is from.

What each needs of the updates: ``mean`` and ``clipped-mean`` one weighted sum, ``krum``, ``multi-krum`` and
``geometric-median`` the inner products of all pairs (K × K) and one sum, ``median`` and ``trimmed-mean`` the updates
themselves, a few columns at a time. Data weigh in the means and ``geometric-median`` alone: a device says itself how
much it has, and may lie. ``clipped-mean`` bounds how far one device can move the model, not where to.
"""

import math

import numpy as np

from fedclade.aggregation.rule import Pool, rule
from fedclade.core.arrays import Floats, Singles

COLUMN_ENTRIES = 1 << 22  # numbers of the updates that are sorted at once: 16 MiB
FEW = 3  # of fewer updates nobody can tell which one is wrong: their mean is taken


@rule("mean")
def mean(pool: Pool) -> Singles:
    """The mean, weighted by data: FedAvg (McMahan et al., AISTATS 2017). One device can move it anywhere."""
    return pool.total(pool.weights)


@rule("clipped-mean")
def clipped_mean(pool: Pool) -> Singles:
    """The weighted mean of updates no longer than the median one; longer ones are shortened (Sun et al., 2019)."""
    norms = pool.norms()
    return pool.total(pool.weights * np.minimum(1.0, np.median(norms) / np.maximum(norms, 1e-30)))


@rule("median")
def median(pool: Pool) -> Singles:
    """The median of each coordinate (Yin et al., ICML 2018)."""
    return np.concatenate([np.median(pool.rows(columns), axis=0) for columns in _columns(pool)])


@rule("trimmed-mean")
def trimmed_mean(pool: Pool) -> Singles:
    """The mean of each coordinate without its largest and smallest values (Yin et al., ICML 2018)."""
    cut = expected_hostile(pool)
    parts = [np.sort(pool.rows(columns), axis=0)[cut : len(pool) - cut] for columns in _columns(pool)]
    return np.concatenate([part.mean(axis=0, dtype=np.float64) for part in parts])


@rule("krum")
def krum(pool: Pool) -> Singles:
    """The one update that is closest to its n − f − 2 nearest (Blanchard et al., NeurIPS 2017)."""
    return pool.total(_chosen(pool, 1))


@rule("multi-krum")
def multi_krum(pool: Pool) -> Singles:
    """The mean of the m updates with the best Krum scores; m = n − f − 2 (El Mhamdi et al., ICML 2018) or as set."""
    return pool.total(_chosen(pool, pool.settings.krum_kept or len(pool) - expected_hostile(pool) - 2))


@rule("geometric-median")
def geometric_median(pool: Pool) -> Singles:
    """The point with the least sum of distances, weighted by data: RFA (Pillutla et al., IEEE TSP 2022).

    Smoothed Weiszfeld: every iterate is a weighted mean of the updates, so their inner products tell all distances.
    """
    products, shares = pool.products(), pool.weights
    floor = pool.settings.weiszfeld_floor * max(1e-30, float(np.sqrt(np.diag(products)).max()))
    for _ in range(pool.settings.weiszfeld_steps):
        image = products @ shares
        squares = np.diag(products) - 2 * image + shares @ image
        pulls = pool.weights / np.maximum(np.sqrt(np.maximum(squares, 0.0)), floor)
        before, shares = shares, pulls / pulls.sum()
        if np.abs(shares - before).max() < pool.settings.weiszfeld_floor:
            break
    return pool.total(shares)


def expected_hostile(pool: Pool) -> int:
    """f: how many of these updates may be hostile, as the settings expect; always fewer than half."""
    return min(math.ceil(pool.settings.hostile_share * len(pool) - 1e-9), (len(pool) - 1) // 2)


def krum_scores(pool: Pool) -> Floats:
    """For each update the sum of its squared distances to its n − f − 2 nearest others, of at least one."""
    near = max(1, len(pool) - expected_hostile(pool) - 2)
    distances = np.sort(pool.squared_distances(), axis=1)  # the first is an update's distance to itself
    return np.asarray(distances[:, 1 : 1 + near].sum(axis=1))


def _chosen(pool: Pool, count: int) -> Floats:
    """The weights that average the updates with the best scores."""
    count = len(pool) if len(pool) < FEW else min(max(1, count), len(pool))
    weights = np.zeros(len(pool))
    weights[np.argsort(krum_scores(pool), kind="stable")[:count]] = 1 / count
    return weights


def _columns(pool: Pool) -> list[slice]:
    """The coordinates in pieces, so that what is sorted stays small."""
    width = max(1, COLUMN_ENTRIES // len(pool))
    return [slice(first, first + width) for first in range(0, pool.updates.width, width)]
