"""Training of the strongly convex case, exactly as the convergence theorem has it: NumPy, double precision, no torch.

Differs from a run's training in two things only. Every batch is drawn anew from all of the device's images: a run's
epochs deal each image once, so that a step is not independent of those before. And the largest gradient of each call is
noted, for ϱ.
"""

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.random import generator
from fedclade.data import Population
from fedclade.data.source import standard_axes
from fedclade.fleet.questions import Examiner
from fedclade.fleet.simulated.trainer import Steering
from fedclade.fleet.told import Share
from fedclade.theory import LogisticProblem


class LogisticTrainer:
    """A Trainer whose every step is W ← W − η · gradient of a fresh batch; λ is ``training.weight_decay``."""

    def __init__(self, config: Config, population: Population, steps: Ints) -> None:
        self._training, self._seed, self._steps = config.training, config.run.seed, steps
        self._features, self._labels, self.classes = _features(population), population.labels, population.task.outputs
        self._shares = {"train": population.train, "validation": population.validation, "test": population.test}
        penalty = config.training.weight_decay
        self.problems = [
            LogisticProblem(self._features[i], self._labels[i], self.classes, penalty) for i in population.train
        ]
        self.parameters = self.problems[0].parameters
        self.incidents: list[str] = []
        self.squared_gradients: list[Floats] = []  # the largest of each device, one entry a call of train

    def initial_model(self, variant: int = 0) -> Singles:
        """W(0) = 0, whatever the variant."""
        return np.zeros(self.parameters, dtype=np.float32)

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, at the config's rate; nothing steers it."""
        assert steering is None
        return self.train_at(self._training.rate(round_), round_, models, devices, model_of)

    def train_at(self, rate: float, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of each device, at any rate."""
        updates, largest = np.empty((len(devices), self.parameters), dtype=np.float32), np.zeros(len(devices))
        for row, device in enumerate(devices):
            start = models[model_of[row]].astype(np.float64)
            end, largest[row] = self._descend(rate, round_, int(device), start)
            updates[row] = end - start
        self.squared_gradients.append(largest)
        return updates

    def _descend(self, rate: float, round_: int, device: int, weights: Floats) -> tuple[Floats, float]:
        """The model after the device's local steps, and its largest ‖gradient‖² on the way."""
        problem, draws = self.problems[device], generator(self._seed, "fresh-batches", round_, device)
        count, size, largest = len(problem.labels), self._training.batch_size, 0.0
        for _ in range(self._steps[device]):
            batch = problem.batch(draws.permutation(count)[:size]) if size < count else problem
            _, gradient = batch.loss_and_gradient(weights)
            largest = max(largest, float(gradient @ gradient))
            weights = weights - rate * gradient
        return weights, largest

    @property
    def examiner(self) -> Examiner:
        """Questions look at the same features."""
        return self

    def positions(self, device: int, share: Share) -> Ints:
        """Where a share of a device's images lies."""
        return self._shares[share][device]

    def labels(self, positions: Ints) -> Ints:
        """The classes of images."""
        return self._labels[positions]

    def features(self, positions: Ints) -> Singles:
        """Images as the model sees them, one flat row each."""
        return self._features[positions, :-1].astype(np.float32)

    def scores(self, model: Singles, positions: Ints) -> tuple[Floats, Floats]:
        """For each image whether the model is right, and its cross-entropy."""
        problem = LogisticProblem(self._features[positions], self._labels[positions], self.classes, 0.0)
        scores = problem.scores(model.astype(np.float64))
        right = scores.argmax(axis=1) == problem.labels
        return right.astype(np.float64), np.asarray(-scores[np.arange(len(scores)), problem.labels])

    def losses(self, models: Singles, positions: Ints) -> Floats:
        """The cross-entropy of each model (row) on each image (column)."""
        return np.stack([self.scores(model, positions)[1] for model in models])

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as the arrays of the logistic module."""
        table = model.reshape(self.problems[0].classes, -1)
        return {"1.weight": table[:, :-1].copy(), "1.bias": table[:, -1].copy()}

    def close(self) -> None:
        """Nothing to let go of."""


def _features(population: Population) -> Floats:
    """Samples as every model of a run sees them, standardised per channel or feature; flat, and a one for the bias."""
    per_input = standard_axes(population.sample.shape)
    mean, std = (np.array(v).reshape(per_input) for v in (population.mean, population.std))
    pixels = ((population.images / population.full_scale - mean) / std).reshape(len(population.images), -1)
    return np.concatenate([pixels, np.ones((len(pixels), 1))], axis=1)
