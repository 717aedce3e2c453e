"""Automatic splitting: a cut is a hypothesis, and the devices try it.

Nothing here has a scale: the questions are which of two models a device's own images fit better, by class, and how
sure that is. So learning rate, epochs, model size and the amount of data change the power of a trial, not its level.

1. *Propose.* The cut by similarity is a first guess. ``refined`` moves each device to the child whose model serves its
   training images better, class by class, and the children's models are made again, until nobody moves.
2. *Test.* ``Trial``: on images nobody trained on, both children must do better under their own model than under the
   other's, and than under the parent's, each at the stated level. Where there are no groups, a child's model is the
   parent's with fewer devices' data in it, hence worse: the level is an upper bound of the rate of false splits.
3. *Repeat.* A split needs two trials in a row that are passed by about the same cut (``agreement``). After a refused
   trial the cluster waits half its age, so a cluster of n rounds has had about 2.5 ln n trials.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.arrays import Bools, Floats
from fedclade.statistics import Paired

AGREEMENT = 0.9  # of two cuts that are about the same
STILL = 0.99  # a loss above this share of the best one before is no progress


@dataclass(frozen=True)
class Trial:
    """What the devices of both children said: gain in loss and its p-value, first child and second."""

    gain_other: tuple[float, float]  # own child's model against the other's
    p_other: tuple[float, float]
    gain_parent: tuple[float, float]  # own child's model against the parent's
    p_parent: tuple[float, float]

    @classmethod
    def of(cls, side: Bools, against_other: Paired, against_parent: Paired) -> "Trial":
        """Sum up the answers of the devices; ``side``: membership in the second child."""
        other = [against_other.among(child).test() for child in (~side, side)]
        parent = [against_parent.among(child).test() for child in (~side, side)]
        return cls(*_columns(other), *_columns(parent))

    @property
    def p_value(self) -> float:
        """Of the weakest of the four comparisons: all must hold."""
        return max(*self.p_other, *self.p_parent)

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Trial":
        """From its fields, tuples written as lists."""
        return cls(**{name: (value[0], value[1]) for name, value in facts.items()})


def _columns(rows: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], tuple[float, float]]:
    (gain_a, p_a), (gain_b, p_b) = rows
    return (gain_a, gain_b), (p_a, p_b)


@dataclass(frozen=True)
class Outlook:
    """What a cluster's rounds so far say of its future."""

    next_trial: int  # round
    passed: tuple[int, ...] = ()  # second child of the last trial's cut if it was passed, among
    asked: tuple[int, ...] = ()  # the devices asked then
    trials: int = 0
    best_loss: float | None = None  # the lowest mean loss on held-out images
    best_round: int = 0

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Outlook":
        """From its fields, tuples written as lists."""
        return cls(**facts | {"passed": tuple(facts["passed"]), "asked": tuple(facts["asked"])})

    def refused(self, round_: int, born_round: int) -> "Outlook":
        """After a trial in vain."""
        wait = max(1, (round_ - born_round) // 2)
        return replace(self, next_trial=round_ + wait, passed=(), asked=(), trials=self.trials + 1)

    def seen(self, round_: int, loss: float) -> "Outlook":
        """One more round's loss on held-out images."""
        if self.best_loss is not None and loss >= STILL * self.best_loss:
            return self
        return replace(self, best_loss=loss, best_round=round_)


def refined(side: Bools, own_over_other: Floats) -> Bools:
    """The cut with every device in the other child whose own child's model serves its images worse."""
    return np.where(own_over_other < 0, ~side, side)


def agreement(one: set[int], other: set[int], asked: set[int]) -> float:
    """Share of the devices asked both times that two cuts put together alike, whichever child is called the second."""
    if not asked:
        return 0.0
    same = sum((device in one) == (device in other) for device in asked) / len(asked)
    return max(same, 1.0 - same)
