"""One device's local training: what every engine runs, in its own process or in a worker's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.random import derived_seed, generator
from fedclade.data import Population
from fedclade.fleet.simulated.kernels.batched import DenseStack, stack_of
from fedclade.fleet.simulated.kernels.dual import DualProgram
from fedclade.fleet.simulated.net import Net, Step
from fedclade.fleet.simulated.trainer import Steering
from fedclade.models import outputs_of


def longest_first(samples: Ints, size: int) -> Iterator[Ints]:
    """Positions of devices with so many samples each, ``size`` at a time, those that train longest first."""
    order = np.argsort(-samples, kind="stable")
    for first in range(0, len(order), size):
        yield order[first : first + size]


@dataclass(frozen=True)
class Aside:
    """What one device's steps follow beside the loss: a pull to where it started, and a vector."""

    start: torch.Tensor
    proximal: float
    vector: torch.Tensor | None = None


class Local(Net):
    """E epochs of mini-batch SGD on a device's data.

    ``step = "autograd"`` is the plain reference; ``"lean"`` writes forward and backward out, ``"batched"`` stacks the
    nets of several devices, each where the model allows it.
    """

    def __init__(self, config: Config, population: Population, step: Step) -> None:
        super().__init__(config, population, step)
        self.config, self._refit_from = config.training, config.refit_from
        if sum(parameter.numel() for parameter in self._module.parameters()) < len(self.initial):
            _refuse_steps_through_buffers(config)
        self._least_batch = 2 if any(isinstance(layer, _BatchNorm) for layer in self._module.modules()) else 1
        dense = self._device.type == "cpu" and DenseStack.fits(self._module)
        training = config.training
        plain = not (training.momentum or training.weight_decay or training.proximal)
        self._dual = DualProgram(self._module, self._targets) if step == "lean" and dense and plain else None
        stack = stack_of(self._module, self._targets, self._device, self._shape) if step == "batched" else None
        self._stack = None if self._tokens else stack
        self.devices_at_once = self._stack.devices_at_once if self._stack else 1

    def train(self, round_: int, start: Singles, device: int, steering: Steering | None = None) -> Singles:
        """Δw of one device: E epochs of mini-batch SGD from ``start``; its steering has one row."""
        self._set_training(True)
        before = self._load(start).clone()
        positions = torch.from_numpy(self._trained_on(round_, device)).to(self._device)
        orders, rate = self.orders(round_, device), self.config.rate(round_)
        if self._dual and steering is None and self._dual.pays(len(positions), self.config.epochs):
            images, wanted = self.inputs(positions).flatten(1), self._targets.wanted(self._labels[positions])
            self._dual.train(images, wanted.numpy(), orders, self.config.batch_size, rate)
        else:
            seed, aside = derived_seed(self._seed, "dropout", round_, device), self._aside(before, steering)
            self._steps(aside, positions, orders, rate, seed)
        difference = self._weights - before
        if self._order is not None:
            difference = torch.empty_like(difference).index_copy_(0, self._order, difference)
        update: Singles = difference.cpu().numpy()
        return update

    def _aside(self, start: torch.Tensor, steering: Steering | None) -> Aside:
        """What every step follows beside the loss and the penalty, with vectors in the module's order."""
        if steering is None:
            return Aside(start, self.config.proximal)
        vector = torch.from_numpy(steering.vectors[0]).to(self._device)
        return Aside(start, steering.proximal, vector if self._order is None else vector[self._order])

    def _steps(self, aside: Aside, positions: torch.Tensor, orders: list[Ints], rate: float, dropout_seed: int) -> None:
        gradients = self._lean_gradients(positions) if self._program else self._autograd_gradients(positions)
        momentum = torch.zeros_like(self._weights) if self.config.momentum else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(dropout_seed)
            for order in orders:
                for batch in torch.split(torch.from_numpy(order).to(self._device), self.config.batch_size):
                    if len(batch) < self._least_batch:  # batch norm has nothing to normalise one sample by
                        continue
                    gradients(batch)
                    self._descend(aside, rate, momentum)

    def _autograd_gradients(self, positions: torch.Tensor) -> Callable[[torch.Tensor], None]:
        images, labels = self.inputs(positions), self._labels[positions]

        def gradients(batch: torch.Tensor) -> None:
            self._gradient.zero_()
            self._targets.loss(outputs_of(self._module, images[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]

        return gradients

    def _lean_gradients(self, positions: torch.Tensor) -> Callable[[torch.Tensor], None]:
        images = self.inputs(positions)
        shape, features = images.shape[1:], images.flatten(1).t().contiguous()
        wanted = self._targets.wanted(self._labels[positions]).t().contiguous()
        program = self._program
        assert program is not None

        @torch.inference_mode()
        def gradients(batch: torch.Tensor) -> None:
            program.gradients(features, wanted, batch, shape)

        return gradients

    def train_many(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of several devices, one row each: stacked where the model allows it, else one after the other."""
        if self._stack is None:
            one_by_one = enumerate(zip(devices.tolist(), model_of.tolist(), strict=True))
            own = [None if steering is None else steering.only(slice(row, row + 1)) for row in range(len(devices))]
            return np.stack(
                [self.train(round_, models[model], device, own[row]) for row, (device, model) in one_by_one]
            )
        positions = [torch.from_numpy(self._trained_on(round_, int(device))).to(self._device) for device in devices]
        return self._stack.train(
            self.config,
            self.config.rate(round_),
            models[model_of],
            [self.inputs(mine).flatten(1) for mine in positions],
            [self._targets.wanted(self._labels[mine]) for mine in positions],
            [self.orders(round_, int(device)) for device in devices],
            steering,
        )

    def train_chunk(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of any number of devices, stacked as worker processes stack them."""
        samples = np.array([len(self._shares["train"][device]) for device in devices.tolist()])
        updates = np.empty((len(devices), models.shape[1]), dtype=np.float32)
        for rows in longest_first(samples, self.devices_at_once):
            steered = None if steering is None else steering.only(rows)
            updates[rows] = self.train_many(round_, models, devices[rows], model_of[rows], steered)
        return updates

    def orders(self, round_: int, device: int) -> list[Ints]:
        """The order of a device's samples in each epoch: the same for every engine."""
        shuffles = generator(self._seed, "batches", round_, device)
        count = len(self._trained_on(round_, device))
        return [shuffles.permutation(count) for _ in range(self.config.epochs)]

    def _trained_on(self, round_: int, device: int) -> Ints:
        """Where the samples lie that a device trains on: in the last rounds those that it held out, too."""
        train = self._shares["train"][device]
        return train if round_ < self._refit_from else np.concatenate([train, self._shares["validation"][device]])

    def _descend(self, aside: Aside, rate: float, momentum: torch.Tensor | None) -> None:
        """One step of SGD, as torch.optim.SGD defines it; FedProx adds the pull towards where the device started."""
        step = self._gradient
        if aside.proximal:
            step.add_(self._weights - aside.start, alpha=aside.proximal)
        if aside.vector is not None:
            step.add_(aside.vector)
        if self.config.weight_decay:
            for parameter in self._module.parameters():
                if parameter.requires_grad and parameter.grad is not None:
                    parameter.grad.add_(parameter.data, alpha=self.config.weight_decay)
        if momentum is not None:
            step = momentum.mul_(self.config.momentum).add_(step)
        self._weights.add_(step, alpha=-rate)


def _refuse_steps_through_buffers(config: Config) -> None:
    """A running mean or variance, as batch norm has them, can be averaged; a step of an optimiser would break it."""
    optimiser, scaffold = config.aggregation.optimiser, config.training.scaffold
    if optimiser != "none" or scaffold:
        setting = "training.scaffold = true" if scaffold else f'aggregation.optimiser = "{optimiser}"'
        raise UserError(
            f"{setting}: is for models without buffers, and {config.model.name} has some, as batch norm does"
        )
