"""Nets of many devices as one stacked tensor program.

The devices' weights are the rows of one matrix. A dense layer is one batched GEMM over all of them; convolutional nets
are left to ``torch.func.vmap``, which makes grouped convolutions of them: that pays on a graphics card. Devices are
sorted by their number of local steps, so at any moment those still training are the first rows: short ones do not pay
for long ones. An epoch's last, smaller batch is filled up with samples of weight zero.
"""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import nn

from fedclade.config import TrainingConfig
from fedclade.core.arrays import Ints, Singles
from fedclade.fleet.simulated.kernels.flat import is_plain_stack
from fedclade.fleet.simulated.kernels.targets import Targets
from fedclade.fleet.simulated.trainer import Steering

CPU = torch.device("cpu")
STACK_BYTES = 1 << 20  # weights of the devices stacked together; more would not stay in a core's cache
CARD_BYTES, CARD_DEVICES = 1 << 28, 64  # the same on a graphics card; and so many devices' activations have room there
STACKED = (nn.Conv2d, nn.Linear, nn.MaxPool2d, nn.AvgPool2d, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.Flatten)


class Stack(ABC):
    """Mini-batch SGD of many devices at once."""

    def __init__(self, module: nn.Module, targets: Targets, device: torch.device = CPU) -> None:
        self._targets, self._device = targets, device
        self.parameters = sum(p.numel() for p in module.parameters())
        bytes_at_once = STACK_BYTES if device.type == "cpu" else CARD_BYTES
        self.devices_at_once = max(1, bytes_at_once // (4 * self.parameters))

    @abstractmethod
    def _gradients(
        self, weights: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, share: torch.Tensor
    ) -> None:
        """Of each device's mean loss, into ``gradient``; x is devices × batch × features."""

    @torch.no_grad()
    def train(
        self,
        config: TrainingConfig,
        rate: float,
        start: Singles,
        images: list[torch.Tensor],
        wanted: list[torch.Tensor],
        orders: list[list[Ints]],
        steering: Steering | None = None,
    ) -> Singles:
        """Δw of each device: row i starts from ``start[i]`` on its images (n × features), in its epochs' orders.

        ``wanted`` is what the outputs should say of them, n × outputs."""
        plans = [_batches(epochs, config.batch_size) for epochs in orders]
        by_length = sorted(range(len(plans)), key=lambda i: -len(plans[i][0]))
        steps = np.array([len(plans[i][0]) for i in by_length])
        offsets = np.cumsum([0, *(len(images[i]) for i in by_length)])[:-1]
        samples = torch.cat([images[i] for i in by_length])
        targets = torch.cat([wanted[i] for i in by_length])
        picks = torch.from_numpy(_stack([plans[i][0] for i in by_length], offsets)).to(self._device)
        shares = torch.from_numpy(_stack([plans[i][1] for i in by_length])).to(self._device)

        proximal = config.proximal if steering is None else steering.proximal
        vectors = None if steering is None else torch.from_numpy(steering.vectors[by_length]).to(self._device)
        begun = torch.from_numpy(start[by_length]).to(self._device)
        weights = begun.clone()
        gradient = torch.zeros_like(weights)
        momentum = torch.zeros_like(weights) if config.momentum else None
        for step in range(steps[0]):
            active = int(np.searchsorted(-steps, -step, side="left"))
            chosen = picks[:active, step].flatten()
            x, y = (rows.index_select(0, chosen).view(active, -1, rows.shape[1]) for rows in (samples, targets))
            self._gradients(weights[:active], gradient[:active], x, y, shares[:active, step])
            move = gradient[:active]
            if proximal:
                move.add_(weights[:active] - begun[:active], alpha=proximal)
            if vectors is not None:
                move.add_(vectors[:active])
            if config.weight_decay:
                move.add_(weights[:active], alpha=config.weight_decay)
            if momentum is not None:
                move = momentum[:active].mul_(config.momentum).add_(move)
            weights[:active].add_(move, alpha=-rate)
        updates = np.empty_like(start)
        updates[by_length] = weights.sub_(begun).cpu().numpy()
        return updates


class DenseStack(Stack):
    """Flatten, then dense layers with ReLU between them."""

    def __init__(self, module: nn.Module, targets: Targets, device: torch.device = CPU) -> None:
        super().__init__(module, targets, device)
        self._shapes = [tuple(layer.weight.shape) for layer in module.children() if isinstance(layer, nn.Linear)]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether a module is such a net."""
        if not is_plain_stack(module):
            return False
        kinds = [type(layer) for layer in module if type(layer) is not nn.Flatten]
        biased = all(layer.bias is not None for layer in module if isinstance(layer, nn.Linear))
        return biased and kinds == [nn.Linear, *([nn.ReLU, nn.Linear] * (len(kinds) // 2))]

    def _gradients(
        self, weights: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, share: torch.Tensor
    ) -> None:
        inputs: list[torch.Tensor] = []
        layers, layer_gradients = self._layers(weights), self._layers(gradient)
        for depth, (weight, bias) in enumerate(layers):
            inputs.append(x if depth == 0 else x.clamp_min_(0))
            x = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
        flow = self._targets.said(x, 2).sub_(y).mul_(share[:, :, None])
        for depth in range(len(layers) - 1, -1, -1):
            weight_gradient, bias_gradient = layer_gradients[depth]
            torch.bmm(flow.transpose(1, 2), inputs[depth], out=weight_gradient)
            bias_gradient.copy_(flow.sum(1))
            if depth:
                flow = torch.bmm(flow, layers[depth][0])
                torch.ops.aten.threshold_backward.grad_input(flow, inputs[depth], 0, grad_input=flow)

    def _layers(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each layer's weights and biases as views of the rows."""
        layers, end = [], 0
        for out, into in self._shapes:
            start, middle, end = end, end + out * into, end + out * into + out
            layers.append((torch.unflatten(flat[:, start:middle], 1, (out, into)), flat[:, middle:end]))
        return layers


class ConvolutionStack(Stack):
    """Layers one after the other that keep nothing and draw nothing; on the processor as on a graphics card."""

    def __init__(self, module: nn.Module, targets: Targets, device: torch.device, shape: tuple[int, ...]) -> None:
        """``shape`` of one sample."""
        super().__init__(module, targets, device)
        self.devices_at_once = max(1, min(CARD_DEVICES, CARD_BYTES // (4 * self.parameters)))
        self._module, self._shape = module, shape
        self._sizes = {name: parameter.shape for name, parameter in module.named_parameters()}
        self._gradients_of = torch.func.vmap(torch.func.grad(self._loss))

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether a module is such a net."""
        return is_plain_stack(module) and all(type(layer) in STACKED for layer in module)

    def _loss(self, weights: torch.Tensor, x: torch.Tensor, y: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        parts = torch.split(weights, [size.numel() for size in self._sizes.values()])
        named = {name: part.view(size) for (name, size), part in zip(self._sizes.items(), parts, strict=True)}
        outputs = torch.func.functional_call(self._module, named, (x,))
        return (self._targets.losses(outputs, y) * share).sum()

    def _gradients(
        self, weights: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, share: torch.Tensor
    ) -> None:
        gradient.copy_(self._gradients_of(weights, torch.unflatten(x, 2, self._shape), y, share))


def stack_of(
    module: nn.Module, targets: Targets, device: torch.device, shape: tuple[int, ...]
) -> DenseStack | ConvolutionStack | None:
    """The stack that a module fits, if there is one; ``shape`` of one sample."""
    if DenseStack.fits(module):
        return DenseStack(module, targets, device)
    return ConvolutionStack(module, targets, device, shape) if ConvolutionStack.fits(module) else None


def _batches(epochs: list[Ints], size: int) -> tuple[Ints, Singles]:
    """All steps of a device: which samples, and the weight of each in the mean of its batch."""
    picks, shares = [], []
    for order in epochs:
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            picks.append(np.resize(batch, size))
            shares.append(np.where(np.arange(size) < len(batch), 1.0 / len(batch), 0.0))
    return np.array(picks), np.array(shares, dtype=np.float32)


def _stack(plans: list[np.ndarray], offsets: np.ndarray | None = None) -> np.ndarray:
    """Plans of different lengths as one array; rows behind a plan's end are never read."""
    stacked = np.zeros((len(plans), len(plans[0]), plans[0].shape[1]), dtype=plans[0].dtype)
    for i, plan in enumerate(plans):
        stacked[i, : len(plan)] = plan if offsets is None else plan + offsets[i]
    return stacked
