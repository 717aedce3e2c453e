"""Looks at models shared out among worker processes."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.fleet.simulated.net import LOOK_BATCH, Net
from fedclade.fleet.told import Share

WORTH_SHARING = 1000  # images times models: to look at fewer takes less time than to tell other processes of them
TASKS = 3  # for each worker: the one that ends first takes another

Part: TypeAlias = tuple[tuple[int, int], tuple[int, int]]  # from and to which model, from and to which image
# What ``Net.looks`` gives of all parts; None where there is nobody to share with.
Look: TypeAlias = Callable[[Singles, Ints, Sequence[Part]], Floats | None]


class SharedLooks:
    """An Examiner whose looks are shared out: some of the models to each process, or some of the images.

    Images are parted where one process parts its batches, so that the answers are the same to the byte.
    """

    def __init__(self, local: Net, look: Look, workers: int) -> None:
        self._local, self._look, self._workers = local, look, workers
        self.classes = local.classes

    def positions(self, device: int, share: Share) -> Ints:
        """Where a share of a device's images lies."""
        return self._local.positions(device, share)

    def labels(self, positions: Ints) -> Ints:
        """The classes of images."""
        return self._local.labels(positions)

    def features(self, positions: Ints) -> Singles:
        """Images as a model sees them, one flat row each."""
        return self._local.features(positions)

    def losses(self, models: Singles, positions: Ints) -> Floats:
        """The loss of each model (row) on each image (column)."""
        losses: Floats = self._looks(models, positions)[1]
        return losses

    def scores(self, model: Singles, positions: Ints) -> tuple[Floats, Floats]:
        """For each image whether a model is right (1 or 0), and its loss."""
        right, losses = self._looks(model[None], positions)
        return right[0], losses[0]

    def _looks(self, models: Singles, positions: Ints) -> Floats:
        worth = len(models) * len(positions) >= WORTH_SHARING
        parts = parts_of(len(models), len(positions), TASKS * self._workers) if worth else []
        shared = self._look(models, positions, parts) if len(parts) > 1 else None
        return self._local.looks(models, positions) if shared is None else shared


def parts_of(models: int, images: int, most: int) -> list[Part]:
    """At most about so many parts of like size: by models, and by whole batches of images where models are few."""
    by_models = min(models, most)
    by_images = min(max(1, most // by_models), -(-images // LOOK_BATCH))
    size = -(-images // (by_images * LOOK_BATCH)) * LOOK_BATCH
    rows = [models * i // by_models for i in range(by_models + 1)]
    columns = [*range(0, images, size), images]
    return [(some, others) for some in pairwise(rows) for others in pairwise(columns)]
