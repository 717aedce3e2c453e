"""Who belongs where: whether devices prefer their cluster's model as its other members do."""

from dataclasses import dataclass

import numpy as np

from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Bools, Floats, Ints
from fedclade.fleet.answers import Paired, Survey, p_above_zero

DEFAULTS = CrossEvaluationConfig()


@dataclass(frozen=True)
class Belonging:
    """Whether devices share the preferences of their cluster's members or rather those of another's, class by class.

    ``middle`` is where the two clusters' members meet: halfway between their mean preferences for the device's own
    model over the other one, the device itself left out. A device has trained on the images it is surveyed on, which
    speaks for its own cluster; so whoever leans to another one means it.
    """

    nearest: Ints  # for each device, the other cluster it leans to most
    leaning: Floats  # preference for the own model above the middle, mean over its images; below 0: leans to the other
    middle: Floats  # device × class
    error: Floats  # device × class: squared, of the middle, in units of an image's variance; infinite: not comparable

    @classmethod
    def of(
        cls, survey: Survey, own: Ints, settings: CrossEvaluationConfig = DEFAULTS, looked_at: int | None = None
    ) -> "Belonging":
        """``survey``: of the clusters' models, on about so many images; ``own``: each device's cluster.

        Where a device holds hardly any class that other members of both clusters hold, its plain preference counts. A
        cluster of which a single device answers says nothing.
        """
        counts, everyone = survey.looked_at(looked_at), np.arange(len(own))
        clusters = np.arange(survey.misfit.shape[1])
        member = (own[:, None] == clusters).astype(np.float64)
        misfits = counts[:, None] * survey.misfit
        images, sums = member.T @ counts, np.einsum("kl,kmc->lmc", member, misfits)
        our_images, ours = (images[own] - counts)[:, None], sums[own] - misfits
        our_preference = (ours - ours[everyone, own][:, None]) / np.maximum(our_images, 1)
        their_preference = (sums[clusters, clusters] - sums[:, own].transpose(1, 0, 2)) / np.maximum(images, 1)
        comparable = (our_images > 0) & (images > 0)
        shared = (counts[:, None] * comparable).sum(axis=2) >= settings.shared_classes * counts.sum(axis=1)[:, None]
        middle = np.where(comparable & shared[:, :, None], (our_preference + their_preference) / 2, 0.0)
        error = np.where(comparable, (1 / np.maximum(our_images, 1) + 1 / np.maximum(images, 1)) / 4, np.inf)
        error[~shared] = 0.0
        counted = counts[:, None] * np.isfinite(error)
        beyond = survey.misfit - survey.misfit[everyone, own][:, None] - middle
        leaning = (counted * beyond).sum(axis=2) / np.maximum(counted.sum(axis=2), 1)
        heard = member.T @ counts.any(axis=1)
        few = heard < settings.min_speakers
        leaning[:, few] = leaning[few[own]] = leaning[everyone, own] = np.inf
        nearest = leaning.argmin(axis=1)
        return cls(nearest, leaning[everyone, nearest], middle[everyone, nearest], error[everyone, nearest])

    @property
    def doubtful(self) -> Bools:
        """Whether a device leans to another cluster."""
        return self.leaning < 0

    def test(self, row: int, own_over_other: Paired) -> tuple[float, float]:
        """How much a device gains beyond the middle by changing, and the p-value of its not belonging there."""
        counts, sums, squares = (each[0] for each in own_over_other.sums())
        held = (counts > 0) & np.isfinite(self.error[row])
        counts, sums, squares = counts[held], sums[held], squares[held]
        middle, total = self.middle[row][held], float(counts.sum())
        if total < 2:
            return 0.0, 1.0
        lean = float((sums - counts * middle).sum())
        spread = float((squares - 2 * sums * middle + counts * middle**2).sum()) - lean**2 / total
        variance = max(0.0, spread) / (total - 1)
        error = np.sqrt(variance * (counts + counts**2 * self.error[row][held]).sum())
        return -lean / total, p_above_zero(-lean, float(error), int(total) - 1)
