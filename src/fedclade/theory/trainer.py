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
from fedclade.fleet.answers import Paired, Survey, misfit, paired
from fedclade.fleet.simulated import Evaluation, Share
from fedclade.theory import LogisticProblem


class LogisticTrainer:
    """A Trainer whose every step is W ← W − η · gradient of a fresh batch; λ is ``training.weight_decay``."""

    def __init__(self, config: Config, population: Population, steps: Ints) -> None:
        self._training, self._seed, self._steps = config.training, config.run.seed, steps
        features, classes = _features(population), population.classes
        shares = {"train": population.train, "validation": population.validation, "test": population.test}
        penalty = config.training.weight_decay
        self._problems = {
            name: [LogisticProblem(features[i], population.labels[i], classes, penalty) for i in share]
            for name, share in shares.items()
        }
        self.problems = self._problems["train"]
        self.parameters = self.problems[0].parameters
        self.incidents: list[str] = []
        self.squared_gradients: list[Floats] = []  # the largest of each device, one entry a call of train

    def initial_model(self) -> Singles:
        """W(0) = 0."""
        return np.zeros(self.parameters, dtype=np.float32)

    def rate(self, round_: int) -> float:
        """η in a round."""
        return self._training.learning_rate * self._training.learning_rate_decay ** (round_ - 1)

    def train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of each device, at the config's rate."""
        return self.train_at(self.rate(round_), round_, models, devices, model_of)

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

    def evaluate(self, models: Singles, devices: Ints, model_of: Ints, share: Share = "test") -> Evaluation:
        """Accuracy and regularised loss of ``models[model_of[i]]`` on the data of ``devices[i]``."""
        accuracy, loss = np.empty(len(devices)), np.empty(len(devices))
        for row, device in enumerate(devices):
            problem = self._problems[share][device]
            if len(problem.labels) == 0:
                accuracy[row] = loss[row] = 0.0
                continue
            weights = models[model_of[row]].astype(np.float64)
            accuracy[row] = (problem.scores(weights).argmax(axis=1) == problem.labels).mean()
            loss[row] = problem.loss(weights)
        return Evaluation(accuracy, loss)

    def compare(self, models: Singles, devices: Ints, first: Ints, second: Ints, share: Share = "validation") -> Paired:
        """Misfit of the second model less that of the first on each device's images, by class."""
        problems = [self._problems[share][device] for device in devices]
        differences = [
            misfit(_cross_entropy(problem, models[b])) - misfit(_cross_entropy(problem, models[a]))
            for problem, a, b in zip(problems, first, second, strict=True)
        ]
        labels = [problem.labels for problem in problems]
        rows = np.repeat(np.arange(len(problems)), [len(mine) for mine in labels])
        shape = (len(problems), self.problems[0].classes)
        return paired(np.concatenate(differences), rows, np.concatenate(labels), shape)

    def survey(self, models: Singles, devices: Ints, images: int | None = None) -> Survey:
        """Mean misfit by class of every model on every device's training images, all of them."""
        problems = [self._problems["train"][device] for device in devices]
        losses = np.stack([np.concatenate([_cross_entropy(each, model) for each in problems]) for model in models])
        labels = np.concatenate([each.labels for each in problems])
        rows = np.repeat(np.arange(len(problems)), [len(each.labels) for each in problems])
        return Survey.of(misfit(losses), rows, labels, (len(problems), self.problems[0].classes))

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as the arrays of the logistic module."""
        table = model.reshape(self.problems[0].classes, -1)
        return {"1.weight": table[:, :-1].copy(), "1.bias": table[:, -1].copy()}

    def close(self) -> None:
        """Nothing to let go of."""


def _cross_entropy(problem: LogisticProblem, model: Singles) -> Floats:
    """Of each image."""
    scores = problem.scores(model.astype(np.float64))
    return np.asarray(-scores[np.arange(len(scores)), problem.labels])


def _features(population: Population) -> Floats:
    """Images as every model of a run sees them, standardised per channel; flat, and a one for the bias."""
    mean, std = (np.array(v).reshape(-1, 1, 1) for v in (population.mean, population.std))
    pixels = ((population.images / population.full_scale - mean) / std).reshape(len(population.images), -1)
    return np.concatenate([pixels, np.ones((len(pixels), 1))], axis=1)
