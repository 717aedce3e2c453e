"""What devices answer: how models fit their images, summed up by class, each number with its uncertainty."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from fedclade.core.arrays import Bools, Floats, Ints, Singles

MIN_FREEDOM = 3


@dataclass(frozen=True)
class Evaluation:
    """How well models serve devices; one entry for each pair of them that was asked about."""

    score: Floats  # accuracy or R², see ``fedclade.core.task``; NaN where a device did not answer
    loss: Floats  # mean over the images
    samples: Ints  # images looked at


@dataclass(frozen=True)
class Paired:
    """Differences of pairs, summed up for each device (row) and class (column)."""

    samples: Ints  # how many
    mean: Floats
    squares: Floats  # mean of their squares

    def among(self, chosen: Ints | Bools) -> "Paired":
        """Of some of the devices."""
        return Paired(self.samples[chosen], self.mean[chosen], self.squares[chosen])

    def regardless_of_class(self) -> "Paired":
        """The same with all images of a device as one class."""
        return _from_sums(*(np.asarray(v.sum(axis=1, keepdims=True)) for v in self.sums()))

    def test(self) -> tuple[float, float]:
        """The mean difference with all classes equally weighted, and the p-value of its being 0 or less in truth.

        A t-test on what varies within the classes, for all devices together. Were the classes weighted as they occur,
        a model would win by merely expecting the labels that are frequent here. Too few images for that: one class.
        """
        counts, sums, squares = (v.sum(axis=0) for v in self.sums())
        held = counts > 0
        freedom = int(counts.sum()) - int(held.sum())
        if freedom < MIN_FREEDOM and held.sum() > 1:
            return self.regardless_of_class().test()
        if freedom < 1:
            return 0.0, 1.0
        counts, means = counts[held], sums[held] / counts[held]
        variance = max(0.0, float((squares[held] - counts * means**2).sum())) / freedom
        error = float(np.sqrt(variance * (1.0 / counts).sum()) / len(counts))
        return float(means.mean()), p_above_zero(float(means.mean()), error, freedom)

    def sums(self) -> tuple[Floats, Floats, Floats]:
        """Number, sum and sum of squares of the differences."""
        weights = self.samples.astype(np.float64)
        return weights, weights * self.mean, weights * self.squares


@dataclass(frozen=True)
class CutOpinion:
    """What devices think of a cut: of one child's model against the other's, and of their own child's."""

    preference: Paired  # how much better the first child's model fits than the second child's
    gain: Paired  # how much better their own child's model fits than their parent's


@dataclass(frozen=True)
class Spans:
    """What the images of devices span: of each device that answered."""

    vectors: dict[int, Singles]  # class × vector × feature; a vector that does not exist is zero
    samples: dict[int, int]  # images that were looked at


@dataclass(frozen=True)
class Survey:
    """What devices said of models: their mean misfit by class."""

    samples: Ints  # device × class: images that are held; 0 everywhere: no answer
    misfit: Floats  # device × model × class, over those images or some of each class; 0 where there is no image

    @classmethod
    def of(cls, misfits: Floats, rows: Ints, labels: Ints, shape: tuple[int, int]) -> "Survey":
        """From each model's misfit (row) on each image (column), whose device and label are given."""
        cells, size = rows * shape[1] + labels, shape[0] * shape[1]
        counts = np.bincount(cells, minlength=size)
        sums = np.stack([np.bincount(cells, each, size) for each in misfits.astype(np.float64)])
        means = (sums / np.maximum(1, counts)).reshape(len(misfits), *shape)
        return cls(counts.reshape(shape), means.transpose(1, 0, 2))

    def looked_at(self, images: int | None, fraction: float = 0.0) -> Floats:
        """So many images of each device and class were looked at where these were asked for: see ``SurveyModels``."""
        held = self.samples.astype(np.float64)
        if images is None:
            return held
        share = np.minimum(1.0, np.maximum(fraction, images / np.maximum(1, held.sum(axis=1, keepdims=True))))
        return np.asarray(np.where(held > 0, np.floor((held - 1) * share) + 1, 0.0))


def misfit(losses: Floats) -> Floats:
    """How badly a model fits images, from 0 to 1: 1 less the root of the probability it gives to the label.

    For small differences that is half the cross-entropy's, times the root. But a cross-entropy has no upper end: an
    image on which a model is sure and wrong outweighs dozens, and a test has to tell groups from such images' noise.
    """
    return np.asarray(-np.expm1(losses / -2.0))


def p_above_zero(estimate: float, error: float, freedom: int) -> float:
    """One-sided t-test: how likely so high an estimate is, or a higher one, if in truth it is 0 or less."""
    if error == 0:
        return 0.0 if estimate > 0 else 1.0
    return float(special.stdtr(freedom, -estimate / error))


def _from_sums(counts: Floats, sums: Floats, squares: Floats) -> Paired:
    some = np.maximum(1, counts)
    return Paired(counts.astype(np.int64), sums / some, squares / some)


def paired(differences: Floats, rows: Ints, columns: Ints, shape: tuple[int, int]) -> Paired:
    """Sum up differences by their device and class."""
    cells = rows * shape[1] + columns
    size = shape[0] * shape[1]
    values = differences.astype(np.float64)
    return _from_sums(
        *(
            np.bincount(cells, v, size).astype(np.float64).reshape(shape)
            for v in (np.ones_like(values), values, values**2)
        )
    )
