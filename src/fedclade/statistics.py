"""Numbers with their uncertainty: paired differences, over trials or over images; runs that tick differently."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedclade.arrays import Bools, Floats, Ints
from fedclade.randomness import generator

RESAMPLES = 10_000
CONFIDENCE = 0.95
MIN_FREEDOM = 3


@dataclass(frozen=True)
class Paired:
    """Differences of pairs, summed up for each device (row) and class (column)."""

    samples: Ints  # how many
    mean: Floats
    squares: Floats  # mean of their squares

    def among(self, chosen: Ints | Bools) -> "Paired":
        """Of some of the devices."""
        return Paired(self.samples[chosen], self.mean[chosen], self.squares[chosen])

    def balanced_gain(self) -> Floats:
        """For each device the mean over its classes of the mean difference; 0 for a device without any."""
        held = self.samples > 0
        return np.asarray((self.mean * held).sum(axis=1) / np.maximum(1, held.sum(axis=1)))

    def test(self) -> tuple[float, float]:
        """The mean difference with all classes equally weighted, and the p-value of its being 0 or less in truth.

        A t-test on what varies within the classes, for all devices together. Were the classes weighted as they occur,
        a model would win by merely expecting the labels that are frequent here. Too few images for that: one class.
        """
        counts = self.samples.sum(axis=0)
        held = counts > 0
        freedom = int(counts.sum()) - int(held.sum())
        if freedom < MIN_FREEDOM and held.sum() > 1:
            samples, sums, squares = self._sums()
            return _from_sums(
                samples.sum(axis=1, keepdims=True), sums.sum(axis=1, keepdims=True), squares.sum(axis=1, keepdims=True)
            ).test()
        if freedom < 1:
            return 0.0, 1.0
        counts = counts[held]
        _, sums, squares = (v.sum(axis=0)[held] for v in self._sums())
        means = sums / counts
        variance = max(0.0, float((squares - counts * means**2).sum())) / freedom
        gain, error = float(means.mean()), float(np.sqrt(variance * (1.0 / counts).sum()) / len(counts))
        if error == 0:
            return gain, 0.0 if gain > 0 else 1.0
        return gain, float(special.stdtr(freedom, -gain / error))

    def _sums(self) -> tuple[Ints, Floats, Floats]:
        weights = self.samples.astype(np.float64)
        return self.samples, weights * self.mean, weights * self.squares


def _from_sums(samples: Ints, sums: Floats, squares: Floats) -> Paired:
    some = np.maximum(1, samples)
    return Paired(samples, sums / some, squares / some)


def paired(differences: Floats, rows: Ints, columns: Ints, shape: tuple[int, int]) -> Paired:
    """Sum up differences by their device and class."""
    cells = rows * shape[1] + columns
    size = shape[0] * shape[1]
    counts = np.bincount(cells, minlength=size).reshape(shape)
    values = differences.astype(np.float64)
    sums, squares = (np.bincount(cells, v, size).astype(np.float64).reshape(shape) for v in (values, values**2))
    return _from_sums(counts, sums, squares)


def bootstrap_interval(values: Floats, seed: int = 0) -> tuple[float, float] | None:
    """The percentile bootstrap's interval of the mean at 95 %; None for fewer than two values, which tell nothing.

    With a handful of trials it is narrower than it should be: a lower bound of the uncertainty, not the last word.
    """
    count = len(values)
    if count < 2:
        return None
    picks = generator(seed, "bootstrap", count).integers(0, count, (RESAMPLES, count))
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(values[picks].mean(axis=1), [tail, 100.0 - tail])
    return float(low), float(high)


def mean_over_time(times: Sequence[Floats], values: Sequence[Floats], grid: Floats) -> Floats:
    """The mean over runs of what each run's last finished evaluation said, at the moments of ``grid``.

    ``times[i]`` ascends. NaN while some run has no evaluation yet.
    """
    heights = []
    for moments, heard in zip(times, values, strict=True):
        last = np.searchsorted(moments, grid, side="right") - 1
        heights.append(
            np.where(last >= 0, heard[np.maximum(last, 0)], np.nan) if len(heard) else np.full(len(grid), np.nan)
        )
    return np.asarray(np.mean(heights, axis=0))
