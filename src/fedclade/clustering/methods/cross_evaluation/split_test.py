"""The split test: a cut is a hypothesis, and the devices try it.

Nothing here has a scale: the questions are which of two models a device's own images fit better, class by class, and
how sure that is. So learning rate, epochs, model size and the amount of data change a test's power, not its level.

1. *Propose.* A cut by what the devices' training images say of one another's models (``affinity``), and one by the
   similarity of the updates, for groups that hold different classes.
2. *Test.* ``SplitTest``, on images nobody trained on. Do the two children's devices differ in which child's model
   they prefer, among images of the same class? Two models may differ class by class as much as they like, because
   they saw different labels: if there are no groups, that is the same for the devices of both. So the level is the
   rate of false splits by label skew and by chance alike, as long as nothing but its group makes a device differ from
   another. Where every device is its own (a writer's hand), a device must not judge a model that contains its own
   update, and devices, not images, are the units (``units = "devices"``). And it must pay: by its own model against
   the parent's, one child gains beyond doubt and the other does not seem to lose. (Beside two devices of twenty the
   others have nothing to gain.)
3. *Wait.* After a refused cut the cluster waits half its age, so a cluster of n rounds has had about 2.5 ln n tests.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Bools, Floats
from fedclade.fleet.answers import Paired, p_above_zero

DEFAULTS = CrossEvaluationConfig()


@dataclass(frozen=True)
class SplitTest:
    """What the devices of both children said: gains in fit, each with its p-value."""

    gain_group: float  # how much more the first child's devices like its model than the second child's do, by class
    p_group: float
    gain_parent: tuple[float, float]  # own child's model against the parent's; first child, second
    p_parent: tuple[float, float]
    cuts: float = 1.0  # it counts as so many: where several are tried, they share the level

    @classmethod
    def of(
        cls,
        side: Bools,
        first_over_second: Paired,
        own_over_parent: Paired,
        cuts: float = 1.0,
        settings: CrossEvaluationConfig = DEFAULTS,
    ) -> "SplitTest":
        """Sum up the answers of the devices; ``side``: membership in the second child."""
        effect = device_effect if settings.units == "devices" else group_effect
        gain, p_value = effect(side, first_over_second, settings.shared_classes)
        (a, p_a), (b, p_b) = (_pays(own_over_parent.among(child)) for child in (~side, side))
        return cls(gain, p_value, (a, b), (p_a, p_b), cuts)

    @property
    def p_value(self) -> float:
        """Of the groups, for one of several cuts."""
        return min(1.0, self.cuts * self.p_group)

    def passed(self, settings: CrossEvaluationConfig) -> bool:
        """Whether there are groups, and one gains by it beyond doubt, and the other does not seem to lose."""
        pays = min(self.p_parent) < settings.pays_level and max(self.p_parent) < settings.loses_level
        return self.p_value < settings.level and pays

    def evidence(self) -> dict[str, Any]:
        """As plain data."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def group_effect(
    side: Bools, first_over_second: Paired, shared_classes: float = DEFAULTS.shared_classes
) -> tuple[float, float]:
    """The difference between the children's devices in how much they prefer the first model, within classes; p-value.

    Least squares with an effect of each class and one of the child. Where the children hold different classes there is
    nothing to compare within; then each child's own preference, all its classes equal, must be beyond doubt.
    """
    (n_first, sum_first, squares_first), (n_second, sum_second, squares_second) = (
        tuple(v.sum(axis=0) for v in first_over_second.among(child).sums()) for child in (~side, side)
    )
    total = n_first.sum() + n_second.sum()
    if 2 * np.minimum(n_first, n_second).sum() < shared_classes * total:
        second_over_first = replace(first_over_second, mean=-first_over_second.mean)
        (a, p_a), (b, p_b) = first_over_second.among(~side).test(), second_over_first.among(side).test()
        return a + b, max(p_a, p_b)
    mean_first, mean_second = sum_first / np.maximum(1, n_first), sum_second / np.maximum(1, n_second)
    freedom = int(total - np.count_nonzero(n_first) - np.count_nonzero(n_second))
    weights = n_first * n_second / np.maximum(1, n_first + n_second)
    if freedom < 1:
        return 0.0, 1.0
    spread = (squares_first - n_first * mean_first**2).sum() + (squares_second - n_second * mean_second**2).sum()
    gain = float(weights @ (mean_first - mean_second) / weights.sum())
    return gain, p_above_zero(gain, float(np.sqrt(max(0.0, spread) / freedom / weights.sum())), freedom)


def device_effect(
    side: Bools, first_over_second: Paired, shared_classes: float = DEFAULTS.shared_classes
) -> tuple[float, float]:
    """The same as ``group_effect`` where the devices are the units, not their images: see ``_error``."""
    counts, means = first_over_second.samples.astype(np.float64), first_over_second.mean
    held = np.stack([counts[~side].sum(axis=0), counts[side].sum(axis=0)])  # images by child and class
    share = counts / np.maximum(1, held[side.astype(int)])  # of its child's images of a class that are a device's
    sign = np.where(side, -1.0, 1.0)[:, None]
    if 2 * np.minimum(*held).sum() >= shared_classes * held.sum():
        both = held[0] * held[1] / np.maximum(1, held.sum(axis=0))
        weights = [sign * share * both / max(both.sum(), 1e-12)]
    else:
        equal = (held > 0) / np.maximum(1, (held > 0).sum(axis=1, keepdims=True))
        weights = [sign * share * equal[child] * (side == child)[:, None] for child in (0, 1)]
    freedom = int(counts.any(axis=1).sum()) - 2
    if freedom < 1:
        return 0.0, 1.0
    gains = [float((each * means).sum()) for each in weights]
    errors = [_error(side, first_over_second, each) for each in weights]
    p_values = [p_above_zero(gain, error, freedom) for gain, error in zip(gains, errors, strict=True)]
    return sum(gains), max(p_values)


def _error(side: Bools, answers: Paired, weights: Floats) -> float:
    """Standard error of Σ weight · mean over devices and classes, where the images of a device are alike.

    What a device prefers differs from device to device whatever its images, so a hundred more of them do not make it
    a hundred devices. Its variance is pooled over both children, by the method of moments, because one of them may be
    of two devices only; that of the images is the one within each device's classes.
    """
    counts, sums, squares = answers.sums()
    images = counts.sum(axis=1)
    cells = np.count_nonzero(counts)
    within = (squares - sums**2 / np.maximum(1, counts)).sum()
    of_images = max(0.0, float(within)) / max(1.0, counts.sum() - cells)
    leaning, spare, expected = 0.0, -2.0, 0.0
    for child in (~side, side):
        mine, held = counts[child], counts[child].sum(axis=0)
        usual = sums[child].sum(axis=0) / np.maximum(1, held)
        size = images[child]
        leaning += float(((sums[child] - mine * usual).sum(axis=1) ** 2 / np.maximum(1, size)).sum())
        spare += np.count_nonzero(size)
        expected += size.sum() - (size**2).sum() / max(1.0, size.sum())
    of_devices = max(0.0, leaning - of_images * spare) / max(expected, 1e-12)
    shares = weights.sum(axis=1) ** 2
    variance = of_devices * shares.sum() + of_images * (weights**2 / np.maximum(1, counts)).sum()
    return float(np.sqrt(variance))


def _pays(own_over_parent: Paired) -> tuple[float, float]:
    """Gain and p-value, images as they come or all classes equal: a device may be served in either way."""
    return min((own_over_parent.test(), own_over_parent.regardless_of_class().test()), key=lambda test: test[1])


@dataclass(frozen=True)
class Outlook:
    """What a cluster's rounds so far say of its future."""

    next_test: int  # round
    tests: int = 0
    best_loss: float | None = None  # the lowest mean loss on held-out images
    best_round: int = 0
    p_value: float = 1.0  # of the last test

    def refused(self, round_: int, born_round: int, p_value: float = 1.0) -> "Outlook":
        """After a test in vain, or after none because there was no cut."""
        wait = max(1, (round_ - born_round) // 2)
        return replace(self, next_test=round_ + wait, tests=self.tests + 1, p_value=p_value)

    def seen(self, round_: int, loss: float, progress: float = DEFAULTS.progress) -> "Outlook":
        """One more round's loss on held-out images."""
        if self.best_loss is not None and loss >= progress * self.best_loss:
            return self
        return replace(self, best_loss=loss, best_round=round_)

    def stands_still(self, round_: int, settings: CrossEvaluationConfig) -> bool:
        """No progress for some rounds, and no cut that was worth it or may soon be."""
        patience = settings.patience * (1 if self.p_value > settings.suspect_level else settings.suspect_patience)
        return self.tests > 0 and round_ - self.best_round >= patience
