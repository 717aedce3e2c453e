"""Tensors that stay on their device: ``model.local`` (FedPer keeps the head, FedBN what normalises batches).

A device trains its cluster's model with its own values in the place of the local tensors, keeps what became of them,
and uploads an update that is 0 there. So nobody else sees them, and neither norms nor similarities are made of them.
What all devices keep is a matrix, devices × local numbers, in the state between two rounds.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.fleet.questions import Examiner, WrappedExaminer
from fedclade.fleet.simulated.keeping import KeepingTrainer
from fedclade.fleet.simulated.trainer import Steering, Trainer
from fedclade.fleet.told import Share

SHARES: tuple[Share, ...] = ("train", "validation", "test")


def local_positions(tensors: Mapping[str, Singles], patterns: Sequence[str]) -> Ints:
    """Where in a flat model the tensors are whose names match; ``tensors`` are all of them, in the model's order."""
    ends = np.cumsum([array.size for array in tensors.values()])
    found = [np.arange(end - tensors[name].size, end) for name, end in zip(tensors, ends.tolist(), strict=True)]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in tensors):
            raise UserError(f"model.local = {pattern!r}: matches none of the model's tensors: {', '.join(tensors)}")
    chosen = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in tensors]
    if all(chosen):
        raise UserError(f"model.local = {list(patterns)}: matches all tensors; nothing would be left to share")
    return np.concatenate([np.arange(0), *(part for part, mine in zip(found, chosen, strict=True) if mine)])


def kept_tensors(tensors: Mapping[str, Singles], patterns: Sequence[str], kept: Singles) -> dict[str, Singles]:
    """What devices keep, as named arrays with one entry for each device; ``tensors`` are those of any model."""
    found, end = {}, 0
    for name, array in tensors.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            start, end = end, end + array.size
            found[name] = np.ascontiguousarray(kept[:, start:end].reshape(len(kept), *array.shape))
    return found


def with_own(models: Singles, local: Ints, own: Singles) -> Singles:
    """Models with somebody's own values in the place of the local tensors."""
    merged = models.copy()
    merged[:, local] = own
    return merged


class PersonalTrainer(KeepingTrainer):
    """What each device keeps are its own values of the local tensors."""

    def __init__(self, trainer: Trainer, local: Ints, kept: Singles) -> None:
        super().__init__(trainer, kept)
        self.local = local

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, 0 where it keeps its own."""
        starts = with_own(models[model_of], self.local, self.kept[devices])
        updates = self.trainer.train(round_, starts, devices, np.arange(len(devices)), steering)
        self.after = self.kept.copy()
        self.after[devices] += updates[:, self.local]
        updates[:, self.local] = 0.0
        return updates


def personal(trainer: Trainer, patterns: Sequence[str], devices: int) -> PersonalTrainer:
    """A trainer whose devices keep some tensors, which at first are those of w0."""
    first = trainer.initial_model()
    local = local_positions(trainer.named_tensors(first), patterns)
    return PersonalTrainer(trainer, local, np.tile(first[local], (devices, 1)))


class PersonalExaminer(WrappedExaminer):
    """An Examiner that puts every model to a device with the device's own values in it."""

    def __init__(self, examiner: Examiner, local: Ints, kept: Singles) -> None:
        super().__init__(examiner)
        self._local, self._kept = local, kept
        parts = [(k, examiner.positions(k, share)) for k in range(len(kept)) for share in SHARES]
        self._owner = np.full(1 + max((int(part.max()) for _, part in parts if len(part)), default=0), -1)
        for device, part in parts:
            self._owner[part] = device

    def scores(self, model: Singles, positions: Ints) -> tuple[Floats, Floats]:
        """For each image a model's score and its loss."""
        scores, losses = np.empty(len(positions)), np.empty(len(positions))
        for mine, models in self._by_owner(model[None], positions):
            scores[mine], losses[mine] = self._examiner.scores(models[0], positions[mine])
        return scores, losses

    def losses(self, models: Singles, positions: Ints) -> Floats:
        """The loss of each model (row) on each image (column)."""
        losses = np.empty((len(models), len(positions)))
        for mine, own in self._by_owner(models, positions):
            losses[:, mine] = self._examiner.losses(own, positions[mine])
        return losses

    def _by_owner(self, models: Singles, positions: Ints) -> list[tuple[Ints, Singles]]:
        """For each device that has some of the images: which, and the models with its own values in them."""
        owner = self._owner[positions]
        return [
            (np.flatnonzero(owner == device), with_own(models, self._local, self._kept[device]))
            for device in np.unique(owner).tolist()
        ]
