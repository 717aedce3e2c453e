"""One device's local training, and evaluation: what every engine runs, in its own process or in a worker's."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.random import derived_seed, generator
from fedclade.data import Population
from fedclade.fleet.answers import Paired, Survey, misfit, paired
from fedclade.fleet.simulated import Evaluation, Share
from fedclade.fleet.simulated.kernels.batched import DenseStack
from fedclade.fleet.simulated.kernels.dual import DualProgram
from fedclade.fleet.simulated.kernels.flat import bind
from fedclade.fleet.simulated.kernels.lean import LeanProgram, compile_lean
from fedclade.models import build_model

EVALUATION_BATCH = 512
LOOK_BATCH = 64  # of images that stay in the cache on their way through a small net

Step: TypeAlias = Literal["autograd", "lean", "batched"]


class Local:
    """One module whose parameters are views of a flat vector, and the devices' data.

    ``step = "autograd"`` is the plain reference; ``"lean"`` writes forward and backward out, ``"batched"`` stacks dense
    nets of several devices, each where the model allows it.
    """

    def __init__(self, config: Config, population: Population, step: Step) -> None:
        torch.set_num_threads(1)  # on few shared cores more threads are slower, and one process per core is faster
        self.config, self._seed = config.training, config.run.seed
        self._device = _torch_device(config.training.device)
        self._images = torch.from_numpy(population.images).to(self._device)
        self._labels = torch.from_numpy(population.labels).to(self._device)
        self._shares = {"train": population.train, "validation": population.validation, "test": population.test}
        std, mean = (torch.tensor(v, device=self._device).reshape(-1, 1, 1) for v in (population.std, population.mean))
        self._scale, self._shift = 1.0 / (population.full_scale * std), mean / std
        _, channels, height, width = population.images.shape
        shape = (channels, height, width)
        self._module = build_model(config.model, shape, population.classes, self._seed).to(self._device)
        self._weights, self._gradient, self._order = bind(self._module)
        self.initial: Singles = self._weights.cpu().numpy().copy()
        self._classes = population.classes
        on_cpu = self._device.type == "cpu"
        self._program = compile_lean(self._module) if step == "lean" and on_cpu else None
        if step == "lean" and on_cpu and self._program is None:  # autograd, but in the layout oneDNN likes best
            self._weights, self._gradient, self._order = bind(self._module, channels_last=True)
        dense = on_cpu and DenseStack.fits(self._module)
        plain = not config.training.momentum and not config.training.weight_decay
        self._dual = DualProgram(self._module) if step == "lean" and dense and plain else None
        self._stack = DenseStack(self._module) if step == "batched" and dense else None
        self.devices_at_once = self._stack.devices_at_once if self._stack else 1

    def inputs(self, positions: torch.Tensor) -> torch.Tensor:
        """Images as the model sees them: float, standardised per channel."""
        images = self._images[positions].float().mul_(self._scale).sub_(self._shift)
        return images if self._order is None else images.contiguous(memory_format=torch.channels_last)

    def _load(self, model: Singles) -> torch.Tensor:
        """Put a model into the module; gives the vector that is there now."""
        start = torch.from_numpy(model).to(self._device)
        return self._weights.copy_(start if self._order is None else start[self._order])

    def rate(self, round_: int) -> float:
        """η in a round."""
        return self.config.learning_rate * self.config.learning_rate_decay ** (round_ - 1)

    def train(self, round_: int, start: Singles, device: int) -> Singles:
        """Δw of one device: E epochs of mini-batch SGD from ``start``."""
        self._module.train()
        before = self._load(start).clone()
        positions = torch.from_numpy(self._shares["train"][device]).to(self._device)
        orders, rate = self.orders(round_, device), self.rate(round_)
        if self._dual and self._dual.pays(len(positions), self.config.epochs):
            images, labels = self.inputs(positions).flatten(1), self._labels[positions]
            self._dual.train(images, labels.numpy(), orders, self.config.batch_size, rate)
        else:
            self._steps(positions, orders, rate, derived_seed(self._seed, "dropout", round_, device))
        difference = self._weights - before
        if self._order is not None:
            difference = torch.empty_like(difference).index_copy_(0, self._order, difference)
        update: Singles = difference.cpu().numpy()
        return update

    def _steps(self, positions: torch.Tensor, orders: list[Ints], rate: float, dropout_seed: int) -> None:
        gradients = self._lean_gradients(positions) if self._program else self._autograd_gradients(positions)
        momentum = torch.zeros_like(self._weights) if self.config.momentum else None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(dropout_seed)
            for order in orders:
                for batch in torch.split(torch.from_numpy(order).to(self._device), self.config.batch_size):
                    gradients(batch)
                    self._descend(rate, momentum)

    def _autograd_gradients(self, positions: torch.Tensor) -> Callable[[torch.Tensor], None]:
        images, labels = self.inputs(positions), self._labels[positions]

        def gradients(batch: torch.Tensor) -> None:
            self._gradient.zero_()
            functional.cross_entropy(self._module(images[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]

        return gradients

    def _lean_gradients(self, positions: torch.Tensor) -> Callable[[torch.Tensor], None]:
        images = self.inputs(positions)
        shape, features = images.shape[1:], images.flatten(1).t().contiguous()
        one_hot = functional.one_hot(self._labels[positions], self._classes).t().float().contiguous()
        program = self._program
        assert program is not None

        @torch.inference_mode()
        def gradients(batch: torch.Tensor) -> None:
            program.gradients(features, one_hot, batch, shape)

        return gradients

    def train_many(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of several devices, one row each: stacked where the model allows it, else one after the other."""
        if self._stack is None:
            pairs = zip(devices.tolist(), model_of.tolist(), strict=True)
            return np.stack([self.train(round_, models[model], device) for device, model in pairs])
        positions = [torch.from_numpy(self._shares["train"][device]) for device in devices]
        return self._stack.train(
            self.config,
            self.rate(round_),
            models[model_of],
            [self.inputs(mine).flatten(1) for mine in positions],
            [self._labels[mine] for mine in positions],
            [self.orders(round_, int(device)) for device in devices],
        )

    def orders(self, round_: int, device: int) -> list[Ints]:
        """The order of a device's samples in each epoch: the same for every engine."""
        shuffles = generator(self._seed, "batches", round_, device)
        return [shuffles.permutation(len(self._shares["train"][device])) for _ in range(self.config.epochs)]

    def _descend(self, rate: float, momentum: torch.Tensor | None) -> None:
        """One step of SGD, as torch.optim.SGD defines it."""
        step = self._gradient
        if self.config.weight_decay:
            step.add_(self._weights, alpha=self.config.weight_decay)
        if momentum is not None:
            step = momentum.mul_(self.config.momentum).add_(step)
        self._weights.add_(step, alpha=-rate)

    def evaluate(self, model: Singles, devices: Ints, share: Share) -> Evaluation:
        """One model on several devices' data: all together, in large batches; then the per-device means."""
        parts = [self._shares[share][device] for device in devices]
        right, losses = self._scores(model, parts)
        return Evaluation(_means(right, parts), _means(losses, parts))

    def compare(self, models: Singles, devices: Ints, first: Ints, second: Ints, share: Share) -> Paired:
        """Misfit of the second model less that of the first on each device's images, by class."""
        parts = [self._shares[share][device] for device in devices]
        ends = np.cumsum([len(part) for part in parts])
        differences = np.zeros(ends[-1] if len(ends) else 0)
        for chosen, sign in ((first, -1.0), (second, 1.0)):
            for model in np.unique(chosen):
                rows = np.flatnonzero(chosen == model)
                _, losses = self._scores(models[model], [parts[row] for row in rows])
                places = [np.arange(ends[row] - len(parts[row]), ends[row]) for row in rows]
                differences[np.concatenate(places)] += sign * misfit(losses)
        rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        labels = self._labels[np.concatenate(parts)].cpu().numpy() if len(rows) else rows
        return paired(differences, rows, labels, (len(parts), self._classes))

    def survey(self, models: Singles, devices: Ints, images: int | None = None) -> Survey:
        """Mean misfit by class of every model on training images of every device: all, or about so many."""
        whole = [self._shares["train"][device] for device in devices]
        parts = whole if images is None else [self._some(mine, images) for mine in whole]
        positions = np.concatenate(parts)
        if self._program:
            losses = self._lean_losses(self._program, models, torch.from_numpy(positions))
        else:
            losses = np.stack([self._scores(model, parts)[1] for model in models])
        labels = self._labels[positions].cpu().numpy()
        rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        held = [np.bincount(self._labels[mine].cpu().numpy(), minlength=self._classes) for mine in whole]
        return replace(Survey.of(misfit(losses), rows, labels, (len(parts), self._classes)), samples=np.stack(held))

    def _some(self, positions: Ints, images: int) -> Ints:
        """About so many of a device's images, the same share of each class and at least one."""
        labels = self._labels[positions].cpu().numpy()
        order = np.argsort(labels, kind="stable")
        sorted_labels = labels[order]
        rank = np.arange(len(labels)) - np.searchsorted(sorted_labels, sorted_labels)
        share = min(1.0, images / len(labels))
        return np.asarray(positions[np.sort(order[np.floor(rank * share) > np.floor((rank - 1) * share)])])

    @torch.inference_mode()
    def _lean_losses(self, program: LeanProgram, models: Singles, positions: torch.Tensor) -> np.ndarray:
        """Of each model (row) on each image (column)."""
        images, labels, losses = self.inputs(positions), self._labels[positions], []
        features = images.flatten(1).t().contiguous()
        for model in models:
            self._load(model)
            looks = [program.logits(batch, images.shape[1:]).clone() for batch in torch.split(features, LOOK_BATCH, 1)]
            losses.append(functional.cross_entropy(torch.cat(looks, 1).t(), labels, reduction="none"))
        return torch.stack(losses).double().numpy()

    @torch.no_grad()
    def _scores(self, model: Singles, parts: list[Ints]) -> tuple[np.ndarray, np.ndarray]:
        """For each image of the parts, one after the other: whether the model is right, and its loss."""
        self._module.eval()
        self._load(model)
        positions = torch.from_numpy(np.concatenate(parts)).to(self._device)
        right, losses = [], []
        for batch in torch.split(positions, EVALUATION_BATCH):
            logits, labels = self._module(self.inputs(batch)), self._labels[batch]
            right.append(logits.argmax(1) == labels)
            losses.append(functional.cross_entropy(logits, labels, reduction="none"))
        return torch.cat(right).double().cpu().numpy(), torch.cat(losses).double().cpu().numpy()

    def flat(self, tensors: Mapping[str, Singles]) -> Singles:
        """The inverse of ``named_tensors``."""
        return np.concatenate([tensors[name].ravel() for name, _ in self._module.named_parameters()])

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        tensors, end = {}, 0
        for name, parameter in self._module.named_parameters():
            start, end = end, end + parameter.numel()
            tensors[name] = model[start:end].reshape(tuple(parameter.shape)).copy()
        return tensors


def _means(values: np.ndarray, parts: list[Ints]) -> np.ndarray:
    """The mean over each part; 0 for an empty one."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    part_of = np.repeat(np.arange(len(parts)), lengths)
    return np.bincount(part_of, values, len(parts)) / np.maximum(lengths, 1)


def _torch_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError('training.device = "cuda": torch finds no CUDA device here; use "cpu"')
    return torch.device(name)
