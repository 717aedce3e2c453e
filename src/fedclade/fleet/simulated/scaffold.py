"""SCAFFOLD: control variates that keep devices from drifting apart as they train.

"SCAFFOLD: Stochastic Controlled Averaging for Federated Learning" (Karimireddy, Kale, Mohri, Reddi, Stich, Suresh;
ICML 2020; arXiv 1910.06378), Algorithm 1 with option II. A device takes K steps y ← y − η (g(y) − c_i + c) from the
model x, and then c_i ← c_i − c + (x − y) / (K η). The server's c is the mean of all c_i, which the paper keeps up to
date by their changes; both c and the changes travel, so that each round has twice the bits in either direction.

Each cluster has a c of its own, of its members: so a split, a move or a merger needs nothing but the c_i. The mean is
weighted by data, as that of the updates is. A device whose upload was lost or refused keeps the c_i that it had.
"""

import numpy as np

from fedclade.config import TrainingConfig
from fedclade.core.arrays import Ints, Singles
from fedclade.edge.latency import local_steps
from fedclade.fleet.simulated.keeping import KeepingTrainer
from fedclade.fleet.simulated.trainer import Steering, Trainer


class ScaffoldTrainer(KeepingTrainer):
    """What each device keeps is its control variate c_i."""

    goes_with_upload = True

    def __init__(self, trainer: Trainer, training: TrainingConfig, kept: Singles) -> None:
        super().__init__(trainer, kept)
        self._training = training

    def train_round(self, round_: int, models: Singles, devices: Ints, model_of: Ints, samples: Ints) -> Singles:
        """Δw of each device, trained with its cluster's variate and its own."""
        means = controls(self.kept, model_of, samples, len(models))
        aside = means[model_of[devices]] - self.kept[devices]
        updates = self.trainer.train(round_, models, devices, model_of[devices], Steering(aside))
        steps = local_steps(self._training, samples[devices])
        way = np.asarray(self._training.rate(round_) * steps, dtype=np.float32)  # K η
        self.after = self.kept.copy()
        self.after[devices] -= means[model_of[devices]] + updates / way[:, None]
        return updates


def controls(kept: Singles, model_of: Ints, samples: Ints, models: int) -> Singles:
    """c of each model: the mean of its devices' c_i, weighted by data."""
    shares = np.zeros((models, len(kept)))
    shares[model_of, np.arange(len(kept))] = samples
    shares /= np.maximum(1e-30, shares.sum(axis=1, keepdims=True))
    return np.asarray(shares.astype(np.float32) @ kept, dtype=np.float32)


def scaffold(trainer: Trainer, training: TrainingConfig, devices: int) -> ScaffoldTrainer:
    """A trainer whose devices have control variates, which are 0 at first."""
    return ScaffoldTrainer(trainer, training, np.zeros((devices, trainer.parameters), dtype=np.float32))
