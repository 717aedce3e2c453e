"""Hostile devices: a Trainer that hands on what another one trains, and spoils the updates of some."""

import numpy as np

from fedclade.config import AttackConfig
from fedclade.core.arrays import Ints, Singles
from fedclade.core.random import generator
from fedclade.fleet.questions import Examiner
from fedclade.fleet.simulated.trainer import Trainer

HUGE = 100.0


class HostileTrainer:
    """Everything but the updates of the hostile devices is the honest trainer's."""

    def __init__(self, honest: Trainer, attack: AttackConfig, devices: int, seed: int) -> None:
        self._honest, self._attack, self._seed = honest, attack, seed
        self.hostile = np.sort(generator(seed, "hostile").permutation(devices)[: round(attack.share * devices)])
        self.parameters, self.incidents = honest.parameters, honest.incidents

    @property
    def examiner(self) -> Examiner:
        """The honest trainer's: hostile devices do not lie when they are asked."""
        return self._honest.examiner

    def initial_model(self, variant: int = 0) -> Singles:
        """w0."""
        return self._honest.initial_model(variant)

    def train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of each device, as it says."""
        updates = self._honest.train(round_, models, devices, model_of)
        for row in np.flatnonzero(np.isin(devices, self.hostile)):
            updates[row] = self._spoilt(updates[row], round_, int(devices[row]))
        return updates

    def _spoilt(self, update: Singles, round_: int, device: int) -> Singles:
        if self._attack.kind == "not-finite":
            return np.full_like(update, np.nan)
        if self._attack.kind == "huge":
            return update * np.float32(HUGE)
        if self._attack.kind == "sign-flip":
            return -update
        noise = generator(self._seed, "attack", round_, device).standard_normal(len(update), dtype=np.float32)
        return np.asarray(noise * (np.linalg.norm(update) / np.linalg.norm(noise)), dtype=np.float32)

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        return self._honest.named_tensors(model)

    def close(self) -> None:
        """Let go of processes and memory."""
        self._honest.close()
