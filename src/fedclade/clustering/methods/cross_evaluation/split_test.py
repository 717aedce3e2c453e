"""The split test: a cut is a hypothesis, and the devices try it.

Nothing here has a scale, so learning rate, epochs, model size and the amount of data change a test's power, not its
level.

1. *Propose.* A cut by what the devices' training images say of one another's models (``affinity``), and one by the
   similarity of the updates, for groups that hold different classes.
2. *Test.* ``SplitTest``, on images nobody trained on. Do the two children's devices differ in which child's model
   they prefer, among images of the same class? Two models may differ class by class as much as they like, because
   they saw different labels: if there are no groups, that is the same for the devices of both. And it must pay: by its
   own model against the parent's, one child gains beyond doubt and the other does not seem to lose. (Beside two
   devices of twenty the others have nothing to gain.)
3. *Control.* That holds where nothing but its group makes a device differ from another. Where every device is its own,
   as writers are, a device's own update helps its own images, and any cut passes. So random cuts of one side are put
   to the devices, too. If these pass, devices differ one by one, and from then on they judge cuts by models from which
   they leave their own update out (``without_own``).
4. *Wait.* After a refused cut the cluster waits half its age, so a cluster of n rounds has had about 2.5 ln n tests.
   Where devices differ one by one it waits less, and still less where not all are heard: less is learnt in a round.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Bools
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
        gain, p_value = group_effect(side, first_over_second, settings.shared_classes)
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

    def refused(self, round_: int, born_round: int, p_value: float = 1.0, share: float = 0.5) -> "Outlook":
        """After a test in vain, or after none because there was no cut: wait for this share of the cluster's age."""
        wait = max(1, int(share * (round_ - born_round)))
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
