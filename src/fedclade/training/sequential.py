"""The plain Trainer: one device after the other, one module, mini-batch SGD. The reference for every faster engine."""

from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedclade.arrays import Ints, Singles
from fedclade.config import Config
from fedclade.errors import Interrupted
from fedclade.models import build_model
from fedclade.population import Population
from fedclade.randomness import derived_seed, generator
from fedclade.training import Evaluation, StopRequested

EVALUATION_BATCH = 512


class SequentialTrainer:
    """Trains from any row of a model matrix; the module's parameters are views of one flat vector."""

    def __init__(self, config: Config, population: Population, stop_requested: StopRequested = lambda: False) -> None:
        torch.set_num_threads(1)
        self._config, self._seed = config.training, config.run.seed
        self._stop_requested = stop_requested
        self._images, self._labels = torch.from_numpy(population.images), torch.from_numpy(population.labels)
        self._shares = {"train": population.train, "test": population.test}
        _, channels, height, width = population.images.shape
        self._scale = 1.0 / (255.0 * torch.tensor(population.std).reshape(-1, 1, 1))
        self._shift = torch.tensor(population.mean).reshape(-1, 1, 1) / torch.tensor(population.std).reshape(-1, 1, 1)
        self._module = build_model(config.model, (channels, height, width), population.classes, self._seed)
        self._weights, self._gradient = _flatten(self._module)
        self._initial = self._weights.numpy().copy()
        self.parameters = len(self._initial)

    def initial_model(self) -> Singles:
        """w0: depends on the seed alone."""
        return self._initial.copy()

    def train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of each device, in the order given."""
        updates = np.empty((len(devices), self.parameters), dtype=np.float32)
        rate = self._config.learning_rate * self._config.learning_rate_decay ** (round_ - 1)
        for row, (device, model) in enumerate(zip(devices, model_of, strict=True)):
            if self._stop_requested():
                raise Interrupted
            updates[row] = self._train_one(round_, torch.from_numpy(models[model]), int(device), rate)
        return updates

    def _train_one(self, round_: int, start: torch.Tensor, device: int, rate: float) -> Singles:
        self._module.train()
        self._weights.copy_(start)
        positions = torch.from_numpy(self._shares["train"][device])
        images, labels = self._inputs(positions), self._labels[positions]
        momentum = torch.zeros_like(self._weights) if self._config.momentum else None
        shuffles = generator(self._seed, "batches", round_, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(self._seed, "dropout", round_, device))
            for _ in range(self._config.epochs):
                order = torch.from_numpy(shuffles.permutation(len(positions)))
                for batch in torch.split(order, self._config.batch_size):
                    self._gradient.zero_()
                    functional.cross_entropy(self._module(images[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
                    self._descend(rate, momentum)
        update: Singles = (self._weights - start).numpy()
        return update

    def _descend(self, rate: float, momentum: torch.Tensor | None) -> None:
        """One step of SGD, as torch.optim.SGD defines it."""
        step = self._gradient
        if self._config.weight_decay:
            step.add_(self._weights, alpha=self._config.weight_decay)
        if momentum is not None:
            step = momentum.mul_(self._config.momentum).add_(step)
        self._weights.add_(step, alpha=-rate)

    @torch.no_grad()
    def evaluate(
        self, models: Singles, devices: Ints, model_of: Ints, share: Literal["train", "test"] = "test"
    ) -> Evaluation:
        """All devices of one model together, in large batches; then the per-device means."""
        self._module.eval()
        accuracy, loss = np.empty(len(devices)), np.empty(len(devices))
        for model in np.unique(model_of):
            rows = np.flatnonzero(model_of == model)
            self._weights.copy_(torch.from_numpy(models[model]))
            parts = [self._shares[share][devices[row]] for row in rows]
            right, losses = self._scores(torch.from_numpy(np.concatenate(parts)))
            ends = np.cumsum([len(part) for part in parts])
            for row, start, end in zip(rows, [0, *ends], ends, strict=False):
                accuracy[row], loss[row] = right[start:end].mean(), losses[start:end].mean()
        return Evaluation(accuracy, loss)

    def _scores(self, positions: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        right, losses = [], []
        for batch in torch.split(positions, EVALUATION_BATCH):
            logits, labels = self._module(self._inputs(batch)), self._labels[batch]
            right.append(logits.argmax(1) == labels)
            losses.append(functional.cross_entropy(logits, labels, reduction="none"))
        return torch.cat(right).numpy(), torch.cat(losses).double().numpy()

    def _inputs(self, positions: torch.Tensor) -> torch.Tensor:
        return self._images[positions].float() * self._scale - self._shift

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        tensors, end = {}, 0
        for name, parameter in self._module.named_parameters():
            start, end = end, end + parameter.numel()
            tensors[name] = model[start:end].reshape(tuple(parameter.shape)).copy()
        return tensors


def _flatten(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Rebind the parameters and gradients as views of two flat vectors."""
    parameters = list(module.parameters())
    weights = torch.cat([parameter.detach().reshape(-1).float() for parameter in parameters])
    gradient = torch.zeros_like(weights)
    end = 0
    for parameter in parameters:
        start, end = end, end + parameter.numel()
        parameter.data = weights[start:end].view(parameter.shape)
        parameter.grad = gradient[start:end].view(parameter.shape)
    return weights, gradient
