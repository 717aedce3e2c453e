"""What models are to tell of a sample: its class, or numbers. Whatever depends on which of the two is here.

A class is learnt by cross-entropy and scored by accuracy. Numbers are learnt by half the squared error and scored by
R². Both losses are the logarithm of a likelihood, so that all that is made of losses is the same for both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedclade.core.arrays import Ints, Singles

# Of standardised numbers: within about a quarter of those of a normal distribution each.
STRATUM_ENDS = (-0.674, 0.0, 0.674)


@dataclass(frozen=True)
class Score:
    """How well a model serves a device, in one number that is the higher the better, and how people read it."""

    name: str  # in summary.json, run.db and CSV files
    title: str
    meaning: str
    factor: float  # from the number to what is shown
    decimals: int
    unit: str  # behind it
    points: str  # behind a difference of two
    least: float  # no score is lower

    def text(self, value: float | None) -> str:
        """As it is read in a table."""
        return "–" if value is None or math.isnan(value) else f"{self.factor * value:.{self.decimals}f}{self.unit}"

    def bottom(self, lowest: float) -> float:
        """Where the axis of a chart begins whose lowest value is given: what is far below 0 is not worth its room."""
        return 0.0 if self.least == 0 or not lowest < 0 else max(-1.0, lowest)

    def difference(self, value: float, sign: str = "") -> str:
        """A difference of two, without its unit; with ``sign = "+"`` it is told of what is above 0, too."""
        return f"{self.factor * value:{sign}.{self.decimals}f}"


ACCURACY = Score(
    "accuracy", "accuracy", "share of the samples whose class is told right", 100.0, 1, " %", " points", 0.0
)
R2 = Score(
    "r2",
    "R²",
    "1 less the mean squared error over the variance of all devices' targets: 1 is perfect, 0 as good as their mean",
    1.0,
    3,
    "",
    "",
    -1e12,  # there is no end, but a device that tells of more is not believed
)
SCORES = {score.name: score for score in (ACCURACY, R2)}


@dataclass(frozen=True)
class Task:
    """What a model gives for a sample.

    Parameters
    ----------
    outputs : int
        How many numbers: a score for each class, or the numbers that are wanted.
    mean, std : one number for each output
        By which numbers are standardised before anybody learns them. Empty where samples have classes.
    """

    outputs: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """The inverse of ``dataclasses.asdict``, also after a way through JSON."""
        return cls(int(facts["outputs"]), tuple(facts["mean"]), tuple(facts["std"]))

    @property
    def numbers(self) -> bool:
        """Whether samples have numbers instead of a class."""
        return bool(self.mean)

    @property
    def score(self) -> Score:
        """How well a model serves a device."""
        return R2 if self.numbers else ACCURACY

    @property
    def strata(self) -> int:
        """Kinds of samples that are looked at apart: classes, or low and high numbers."""
        return len(STRATUM_ENDS) + 1 if self.numbers else self.outputs

    def stratum(self, targets: np.ndarray) -> Ints:
        """The kind of each sample: its class, or how high the first of its numbers is."""
        return np.searchsorted(STRATUM_ENDS, targets[:, 0]) if self.numbers else targets

    def standardised(self, numbers: np.ndarray) -> Singles:
        """Numbers as they are learnt."""
        return np.asarray((numbers - np.array(self.mean)) / np.array(self.std), dtype=np.float32)

    def restored(self, standardised: np.ndarray) -> np.ndarray:
        """The inverse of ``standardised``."""
        return np.asarray(standardised * np.array(self.std) + np.array(self.mean))
