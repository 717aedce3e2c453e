"""Devices that keep something of their own from round to round: tensors, control variates or personal models."""

import copy
from typing import Self

from fedclade.core.arrays import Ints, Singles
from fedclade.fleet.questions import Examiner
from fedclade.fleet.simulated.trainer import Steering, Trainer


class KeepingTrainer:
    """A Trainer that lets another one train. ``kept`` has a row for each device, and ``after`` what becomes of it.

    ``train`` is for what is trained on the side, and ``train_round`` for a round of the run.
    """

    goes_with_upload = False  # whether a device keeps what is new only where its upload arrives and is used

    def __init__(self, trainer: Trainer, kept: Singles) -> None:
        self.trainer, self.kept, self.after = trainer, kept, kept
        self.parameters, self.incidents = trainer.parameters, trainer.incidents

    def holding(self, kept: Singles) -> Self:
        """The same with other rows."""
        other = copy.copy(self)
        other.kept = other.after = kept
        return other

    def train_round(self, round_: int, models: Singles, devices: Ints, model_of: Ints, samples: Ints) -> Singles:
        """Δw of each device. ``model_of`` and ``samples`` are of all devices, also of those that do not train."""
        return self.train(round_, models, devices, model_of[devices])

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, as the other trainer trains it."""
        return self.trainer.train(round_, models, devices, model_of, steering)

    @property
    def examiner(self) -> Examiner:
        """The other trainer's."""
        return self.trainer.examiner

    def initial_model(self, variant: int = 0) -> Singles:
        """w0."""
        return self.trainer.initial_model(variant)

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        return self.trainer.named_tensors(model)

    def close(self) -> None:
        """Let go of processes and memory."""
        self.trainer.close()
