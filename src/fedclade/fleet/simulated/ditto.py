"""Ditto: a personal model on each device beside its cluster's, which it is drawn to.

"Ditto: Fair and Robust Federated Learning Through Personalization" (Li, Hu, Beirami, Smith; ICML 2021; arXiv
2012.04221), Algorithm 1. In every round in which a device takes part, it trains its cluster's model w as ever, and its
own v by v ← v − η (g(v) + λ (v − w)), with w as it was sent. At first v is w0. Nothing more is sent, but a device
computes twice as much. Here both are trained for E epochs.
"""

import numpy as np

from fedclade.core.arrays import Ints, Singles
from fedclade.fleet.simulated.keeping import KeepingTrainer
from fedclade.fleet.simulated.trainer import Steering, Trainer


class DittoTrainer(KeepingTrainer):
    """What each device keeps is its personal model v."""

    def __init__(self, trainer: Trainer, pull: float, kept: Singles) -> None:
        super().__init__(trainer, kept)
        self._pull = pull

    def train_round(self, round_: int, models: Singles, devices: Ints, model_of: Ints, samples: Ints) -> Singles:
        """Δw of each device; and its personal model is trained."""
        own, sent = self.kept[devices], models[model_of[devices]]
        drawn = Steering(np.float32(self._pull) * (own - sent), self._pull)  # λ (v − w) where v begins, and on the way
        self.after = self.kept.copy()
        self.after[devices] += self.trainer.train(round_, own, devices, np.arange(len(devices)), drawn)
        return self.trainer.train(round_, models, devices, model_of[devices])


def ditto(trainer: Trainer, pull: float, devices: int) -> DittoTrainer:
    """A trainer whose devices have personal models, which at first are w0."""
    return DittoTrainer(trainer, pull, np.tile(trainer.initial_model(), (devices, 1)))
