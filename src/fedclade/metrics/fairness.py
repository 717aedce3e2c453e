"""How evenly devices are served, and how well the planted groups were found."""

import numpy as np

from fedclade.core.arrays import Floats, Ints


def gap(values: Floats) -> float:
    """Best minus worst."""
    return float(values.max() - values.min())


def worst_tenth(values: Floats) -> float:
    """Mean of the worst-served 10 % (at least one device)."""
    return float(np.sort(values)[: max(1, len(values) // 10)].mean())


def jain(values: Floats) -> float:
    """Jain's index (Σx)² / (n Σx²): 1 when all are equal, 1/n when one has everything; 1 for all zeros."""
    squares = float((values**2).sum())
    return 1.0 if squares == 0 else float(values.sum() ** 2 / (len(values) * squares))


def adjusted_rand_index(planted: Ints, found: list[str]) -> float:
    """1 when the clusters are exactly the planted groups, about 0 when they are unrelated."""
    from sklearn.metrics import adjusted_rand_score  # slow to import, and wanted only at the end of a run

    return float(adjusted_rand_score(planted, found))
