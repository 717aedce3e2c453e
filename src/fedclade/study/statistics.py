"""Numbers over seeds with their uncertainty, and means of runs that tick differently."""

from collections.abc import Sequence

import numpy as np

from fedclade.core.arrays import Floats
from fedclade.core.random import generator

RESAMPLES = 10_000
CONFIDENCE = 0.95


def bootstrap_interval(values: Floats, seed: int = 0) -> tuple[float, float] | None:
    """The percentile bootstrap's interval of the mean at 95 %; None for fewer than two values, which tell nothing.

    With a handful of seeds it is narrower than it should be: a lower bound of the uncertainty, not the last word.
    """
    count = len(values)
    if count < 2:
        return None
    picks = generator(seed, "bootstrap", count).integers(0, count, (RESAMPLES, count))
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(values[picks].mean(axis=1), [tail, 100.0 - tail])
    return float(low), float(high)


def mean_over_time(times: Sequence[Floats], values: Sequence[Floats], ends: Sequence[float], grid: Floats) -> Floats:
    """The mean over runs of what each run's last finished evaluation said, at the moments of ``grid``.

    ``times[i]`` ascends. NaN while some run has no evaluation yet, and from the moment on at which some run is over:
    nobody knows what it would have come to by then.
    """
    heights = []
    for moments, heard, end in zip(times, values, ends, strict=True):
        last = np.searchsorted(moments, grid, side="right") - 1
        known = (last >= 0) & (grid <= end)
        heights.append(
            np.where(known, heard[np.maximum(last, 0)], np.nan) if len(heard) else np.full(len(grid), np.nan)
        )
    return np.asarray(np.mean(heights, axis=0))
