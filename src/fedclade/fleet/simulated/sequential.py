"""Training in this process: the plain reference that every faster engine is held to, and the lean and batched steps."""

import hashlib
from collections import OrderedDict

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.errors import Interrupted
from fedclade.data import Population
from fedclade.fleet.answers import Paired, Survey
from fedclade.fleet.simulated import Evaluation, Share, StopRequested
from fedclade.fleet.simulated.sgd import Local, Step

REMEMBERED_MODELS = 256  # whose evaluations are kept


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
        self._local = Local(config, population, step)
        self._stop_requested = stop_requested
        self.parameters = len(self._local.initial)
        self.incidents: list[str] = []
        self._known: OrderedDict[tuple[bytes, str], dict[int, tuple[float, float]]] = OrderedDict()

    def initial_model(self) -> Singles:
        """w0: depends on the seed alone."""
        return self._local.initial.copy()

    def train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of each device, in the order given."""
        updates = np.empty((len(devices), self.parameters), dtype=np.float32)
        size = self._local.devices_at_once
        for first in range(0, len(devices), size):
            if self._stop_requested():
                raise Interrupted
            rows = slice(first, first + size)
            updates[rows] = self._local.train_many(round_, models, devices[rows], model_of[rows])
        return updates

    def evaluate(self, models: Singles, devices: Ints, model_of: Ints, share: Share = "test") -> Evaluation:
        """Accuracy and mean loss of ``models[model_of[i]]`` on the data of ``devices[i]``, if not known already."""
        accuracy, loss = np.empty(len(devices)), np.empty(len(devices))
        for model in np.unique(model_of):
            rows = np.flatnonzero(model_of == model)
            known = self._remembered(models[model], share)
            new = np.array([device for device in devices[rows] if device not in known], dtype=np.int64)
            if len(new):
                answer = self._local.evaluate(models[model], new, share)
                known.update(zip(new.tolist(), zip(answer.accuracy, answer.loss, strict=True), strict=True))
            accuracy[rows], loss[rows] = np.array([known[int(device)] for device in devices[rows]]).T
        return Evaluation(accuracy, loss)

    def compare(self, models: Singles, devices: Ints, first: Ints, second: Ints, share: Share = "validation") -> Paired:
        """Misfit of the second model less that of the first on each device's images, by class."""
        return self._local.compare(models, devices, first, second, share)

    def survey(self, models: Singles, devices: Ints, images: int | None = None) -> Survey:
        """Mean misfit by class of every model on every device's training images."""
        return self._local.survey(models, devices, images)

    def _remembered(self, model: Singles, share: str) -> dict[int, tuple[float, float]]:
        """What is known of a model: a stopped or frozen one is evaluated once, not every round."""
        key = (hashlib.blake2b(model.tobytes(), digest_size=16).digest(), share)
        known = self._known.setdefault(key, {})
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED_MODELS:
            self._known.popitem(last=False)
        return known

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        return self._local.named_tensors(model)

    def close(self) -> None:
        """Nothing to let go of."""
