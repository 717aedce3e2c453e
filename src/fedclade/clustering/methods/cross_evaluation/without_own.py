"""Cuts of devices that differ one by one: judged by models in which the judge has no part.

Where every device has a hand, a voice or a place of its own, its own update helps its own images, and any cut seems
to pay. So every device leaves its own update out of whatever it judges. What is left says what the *others* of its
child do for it, against what all others do: of a crowd cut in two each half has lost half of its teachers, and at
least one of them learns less; of two groups each is rid of the teachers who taught it something else.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Bools, Floats
from fedclade.fleet.answers import Survey, p_above_zero

FITS = 15  # turns in which the effects of class and side are told apart
PARENT, START = 2, 3  # of the models that devices are asked about: after those of both children


@dataclass(frozen=True)
class PayTest:
    """What a cut is worth to the devices of either child, by models in which they have no part."""

    gain: tuple[float, float]  # the own child's model over the parent's, in misfit; mean over devices of either child
    p_gain: tuple[float, float]  # of gaining so much by chance, with devices as units
    mean_gain: float  # over all devices
    step: float  # the good that this round's training together did to them

    @classmethod
    def of(cls, side: Bools, answers: list[Survey]) -> "PayTest":
        """Of the children's models, their parent's and the one before, by several shares of the devices' images."""
        images = np.maximum(sum(answer.samples.sum(axis=1) for answer in answers), 1)
        misfit = sum((answer.samples[:, None] * answer.misfit).sum(axis=2) for answer in answers) / images[:, None]
        own = np.where(side, misfit[:, 1], misfit[:, 0])
        gains = misfit[:, PARENT] - own
        (a, p_a), (b, p_b) = (_above_zero(gains[child]) for child in (~side, side))
        return cls((a, b), (p_a, p_b), float(gains.mean()), float((misfit[:, START] - misfit[:, PARENT]).mean()))

    @property
    def p_value(self) -> float:
        """How likely both children seem to gain by chance."""
        return max(self.p_gain)

    def passed(self, settings: CrossEvaluationConfig, best_step: float) -> bool:
        """Whether both children gain, one beyond doubt, and one a good part of what training together did at best."""
        sure = min(self.p_gain) < settings.pays_level
        return sure and min(self.gain) > 0 and max(self.gain) >= settings.pays_share * best_step

    def evidence(self) -> dict[str, Any]:
        """As plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def _above_zero(values: Floats) -> tuple[float, float]:
    """The mean of some devices' values, and the p-value of its being 0 or less in truth."""
    count = len(values)
    if count < 2:
        return float(values.sum()), 1.0
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(count))
    return mean, p_above_zero(mean, error, count - 1)


def resettled(side: Bools, answers: list[Survey]) -> Bools:
    """The cut with every device on the side whose devices it agrees with, class by class, in which child is better.

    The preference for the first child's model is fitted by an effect of each class and one of the side; a device's own
    is what is left of it beyond the classes' effects and halfway between the sides.
    """
    counts = np.asarray(sum(answer.samples for answer in answers), dtype=np.float64)
    sums = sum(answer.samples * (answer.misfit[:, 1] - answer.misfit[:, 0]) for answer in answers)
    of_class, of_side, member = np.zeros(counts.shape[1]), np.zeros(2), side.astype(np.int64)
    for _ in range(FITS):
        rest = sums - counts * of_side[member][:, None]
        of_class = rest.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
        left, images = (sums - counts * of_class).sum(axis=1), counts.sum(axis=1)
        of_side = np.bincount(member, left, 2) / np.maximum(np.bincount(member, images, 2), 1)
        of_class, of_side = of_class + of_side.mean(), of_side - of_side.mean()
    leaning = (sums - counts * of_class).sum(axis=1)
    return np.asarray(np.where(images > 0, leaning < 0, side))
