"""Cuts of devices that differ one by one: judged by models in which the judge has no part.

Where every device has a hand, a voice or a place of its own, its own update helps its own images, and any cut seems
to pay. So every device leaves its own update out of whatever it judges. What is left says what the *others* of its
child do for it, against what all others do, and against what those of the other child do. In a crowd everybody's
training is about as good for everybody; between groups that one model cannot serve, the other side's training is worth
little or does harm.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Bools, Floats, Singles
from fedclade.core.tree import Tree
from fedclade.fleet.answers import Survey, p_above_zero

PAIR = 2
FITS = 15  # turns in which the effects of class and side are told apart
PARENT, SHORTER = 2, slice(3, 5)  # of the models that devices are asked about: see ``with_shorter_steps``


class Costs(NamedTuple):
    """What the other child's model costs a device, beside its own child's; in misfit."""

    plain: float
    in_class: float  # beyond what all devices say of a class


FREE = Costs(0.0, 0.0)


@dataclass(frozen=True)
class PayTest:
    """What a cut is worth to the devices of either child, by models in which they have no part; in misfit."""

    gain: tuple[float, float]  # by a shorter step of the own child over the parent's; mean over devices of either child
    p_gain: tuple[float, float]  # of gaining so much by chance, with devices as units
    p_together: float  # the same of the gain of all devices
    cost: float  # of the other child's model over the own one's: mean over devices
    cost_in_class: float  # the same beyond what all devices say of a class: models that saw other labels differ in that
    smaller: int  # devices of the smaller child

    @classmethod
    def of(cls, side: Bools, answers: list[Survey], smaller: int | None = None) -> "PayTest":
        """Of the models of ``with_shorter_steps``, by several shares of the devices' images.

        ``smaller``: devices of the smaller child, if not all were asked.
        """
        misfit = mean_misfits(answers)
        own, other = np.where(side, misfit[:, 1::-1].T, misfit[:, :2].T)
        gains = misfit[:, PARENT] - np.where(side, *misfit[:, SHORTER].T[::-1])
        (a, p_a), (b, p_b), (_, p_together) = (_above_zero(gains[some]) for some in (~side, side, side | True))
        costs = float((other - own).mean()), cost_in_class(side, answers)
        return cls((a, b), (p_a, p_b), p_together, *costs, smaller or smaller_child(side))

    @property
    def p_value(self) -> float:
        """How likely both children seem to gain by chance."""
        return max(self.p_gain)

    def passed(self, settings: CrossEvaluationConfig, best_help: float, before: Costs = FREE) -> bool:
        """Whether no child loses, one or all gain beyond doubt, and the other side costs enough.

        A child gains nothing where the other's updates are left out already, as harmful.
        """
        sure = min(*self.p_gain, self.p_together) < settings.pays_level and min(self.gain) >= 0
        return sure and self.dear(settings, best_help, before)

    def dear(self, settings: CrossEvaluationConfig, best_help: float, before: Costs = FREE) -> bool:
        """Whether the other side costs much beside the best help, and not much less than it did ``before``.

        Within classes both sides count alike, and of a pair each judges its side by what the other one alone has
        learnt: less is enough.
        """
        part = settings.pays_pair if self.smaller == PAIR else 1.0
        enough = (max(settings.pays_share * best_help, settings.pays_deeper * each) for each in before)
        return all(cost >= least for cost, least in zip((self.cost, self.cost_in_class / part), enough, strict=True))

    def evidence(self) -> dict[str, Any]:
        """As plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def smaller_child(side: Bools) -> int:
    """How many devices the smaller child of a cut has."""
    return int(min(np.count_nonzero(~side), np.count_nonzero(side)))


def with_shorter_steps(models: Singles, own: Floats, side: Bools) -> tuple[Singles, Floats]:
    """Models of two children, their parent and the start, and the judges' part in each: with children's shorter steps.

    Without the judge's own update the step of a pair is one other device's alone, and all of that goes too far: the
    pair would seem to lose where it gains. So a child goes as much less far as its judges lose more than the parent's:
    of n devices each judge has (n - 1) / n left.
    """
    sizes = np.maximum(1, [np.count_nonzero(~side), np.count_nonzero(side)])
    part = np.asarray((1 - 1 / sizes) / (1 - 1 / len(side)), dtype=np.float32)
    shorter = models[-1] + part[:, None] * (models[:PARENT] - models[-1])
    parts = [own[:, :-1], part * own[:, :PARENT], own[:, -1:]]
    return np.concatenate([models[:-1], shorter, models[-1:]]), np.concatenate(parts, axis=1)


def costs_before(tree: Tree, name: str) -> Costs:
    """The most that the other side cost in the cuts that a cluster comes from; nothing where nobody said.

    A pair's model, of two devices, costs everybody else much in any case: there only that within classes tells.
    """
    ancestors = accumulate(name.split("."), "{}.{}".format)
    told = [split.evidence for split in (tree.nodes[each].split for each in ancestors) if split is not None]
    paid = [each for each in told if "cost_in_class" in each]
    plain = (
        each["cost"] if each.get("smaller", PAIR) > PAIR else min(each["cost"], each["cost_in_class"]) for each in paid
    )
    return Costs(max(plain, default=0.0), max((each["cost_in_class"] for each in paid), default=0.0))


def mean_misfits(answers: list[Survey]) -> Floats:
    """Of every model (column) over all images of each device (row)."""
    images = np.maximum(sum(answer.samples.sum(axis=1) for answer in answers), 1)
    sums = sum((answer.samples[:, None] * answer.misfit).sum(axis=2) for answer in answers)
    return np.asarray(sums / images[:, None])


def _above_zero(values: Floats) -> tuple[float, float]:
    """The mean of some devices' values, and the p-value of its being 0 or less in truth."""
    count = len(values)
    if count < 2:
        return float(values.sum()), 1.0
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(count))
    return mean, p_above_zero(mean, error, count - 1)


def cost_in_class(side: Bools, answers: list[Survey]) -> float:
    """How much better the own child's model is than the other's, beyond what devices of both say of each class.

    The preference for the first child's model is fitted by an effect of each class and one of the side; the latter is
    what is told: half of the difference between the two sides' devices.
    """
    counts = np.asarray(sum(answer.samples for answer in answers), dtype=np.float64)
    sums = sum(answer.samples * (answer.misfit[:, 1] - answer.misfit[:, 0]) for answer in answers)
    of_side, member = np.zeros(2), side.astype(np.int64)
    for _ in range(FITS):
        rest = sums - counts * of_side[member][:, None]
        of_class = rest.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
        left, images = (sums - counts * of_class).sum(axis=1), counts.sum(axis=1)
        of_side = np.bincount(member, left, 2) / np.maximum(np.bincount(member, images, 2), 1)
    return float(of_side[0] - of_side[1]) / 2
