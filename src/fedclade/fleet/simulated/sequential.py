"""Training in this process: the plain reference that every faster engine is held to, and the lean and batched steps."""

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.errors import Interrupted
from fedclade.data import Population
from fedclade.fleet.questions import Examiner
from fedclade.fleet.simulated.net import Step
from fedclade.fleet.simulated.sgd import Local
from fedclade.fleet.simulated.trainer import Steering, StopRequested


class SequentialTrainer:
    """A Trainer without other processes; by default with nothing clever in it."""

    def __init__(
        self,
        config: Config,
        population: Population,
        stop_requested: StopRequested = lambda: False,
        *,
        step: Step = "autograd",
    ) -> None:
        self.local = Local(config, population, step)
        self.examiner: Examiner = self.local
        self._stop_requested = stop_requested
        self.parameters = len(self.local.initial)
        self.incidents: list[str] = []

    def initial_model(self, variant: int = 0) -> Singles:
        """w0: depends on the seed and the variant alone."""
        return self.local.initial_model(variant)

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, in the order given."""
        updates = np.empty((len(devices), self.parameters), dtype=np.float32)
        size = self.local.devices_at_once
        for first in range(0, len(devices), size):
            if self._stop_requested():
                raise Interrupted
            rows = slice(first, first + size)
            steered = None if steering is None else steering.only(rows)
            updates[rows] = self.local.train_many(round_, models, devices[rows], model_of[rows], steered)
        return updates

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        return self.local.named_tensors(model)

    def close(self) -> None:
        """Nothing to let go of."""
