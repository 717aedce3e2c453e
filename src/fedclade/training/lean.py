"""The lean step: forward and backward of small nets written out, without autograd, with the batch as the last axis.

Found by measuring on one core (``make bench``): at the usual batch of 32 a small convolutional net spends most of its
time not in arithmetic but in pooling, strided access, fresh memory, and the bookkeeping of autograd and Python. So:

- in the layout channels × height × width × batch every window of an image is a run of whole vectors: gathering columns
  for a GEMM is a plain copy, 2×2 max pooling a few vectorised maxima, its gradient a few fused thresholds;
- a dense layer is one GEMM without a transpose, and gradients go straight into one flat vector;
- all memory and all views of it are made once for each batch size: a step is a fixed list of operations.

``compile_lean`` gives None for a module with anything else in it, or with so many channels that oneDNN's convolutions
are faster; such a module is trained with autograd.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import nn

FEW_CHANNELS = 16  # with more output channels than this, oneDNN's convolutions are faster

Operation: TypeAlias = Callable[[], object]
# from the gradient of a layer's output: that of its input (None if nobody needs it), and how both are worked out
Backward: TypeAlias = Callable[[torch.Tensor], tuple[torch.Tensor | None, list[Operation]]]


class _Planned(NamedTuple):
    """A layer for one batch size: where its output will be, how it gets there, and the way back."""

    out: torch.Tensor
    forward: list[Operation]
    backward: Backward


# How to plan a layer: from its input, and whether anything below it has parameters.
Layer: TypeAlias = Callable[[torch.Tensor, bool], _Planned]


class LeanProgram:
    """A whole net; ``gradients`` runs one batch forward and backward and leaves the gradients in place."""

    def __init__(self, layers: list[Layer], with_parameters: list[bool]) -> None:
        self._layers = layers
        self._first = with_parameters.index(True)
        self._plans: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor, list[Operation]]] = {}

    def gradients(self, features: torch.Tensor, one_hot: torch.Tensor, batch: torch.Tensor, shape: torch.Size) -> None:
        """Of the mean cross-entropy of one batch: columns of ``features`` (pixels × samples) and of ``one_hot``."""
        key = (len(batch), *shape)
        if key not in self._plans:
            self._plans[key] = self._plan(shape, len(batch), len(one_hot))
        images, targets, operations = self._plans[key]
        torch.index_select(features, 1, batch, out=images)
        torch.index_select(one_hot, 1, batch, out=targets)
        for operation in operations:
            operation()

    def _plan(self, shape: torch.Size, n: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, list[Operation]]:
        images, targets = torch.empty(shape.numel(), n), torch.empty(classes, n)
        x = images.view(*shape, n)
        operations: list[Operation] = []
        ways_back: list[Backward] = []
        for depth, layer in enumerate(self._layers):
            x, forward, backward = layer(x, depth <= self._first)
            operations += forward
            ways_back.append(backward)
        error = torch.empty_like(x)
        operations += [
            partial(torch.ops.aten._softmax.out, x, 0, False, out=error),
            partial(error.sub_, targets),
            partial(error.mul_, 1.0 / n),
        ]
        gradient: torch.Tensor | None = error
        for backward in reversed(ways_back):
            if gradient is None:
                break
            gradient, back = backward(gradient)
            operations += back
        return images, targets, operations


def _dense(module: nn.Linear, x: torch.Tensor, first: bool) -> _Planned:
    weight, bias = module.weight.data, module.bias.data[:, None]
    out = torch.empty(len(weight), x.shape[1])

    def backward(gradient: torch.Tensor) -> tuple[torch.Tensor | None, list[Operation]]:
        operations: list[Operation] = [
            partial(torch.mm, gradient, x.t(), out=_gradient(module.weight)),
            partial(torch.sum, gradient, 1, out=_gradient(module.bias)),
        ]
        if first:
            return None, operations
        below = torch.empty_like(x)
        return below, [*operations, partial(torch.mm, weight.t(), gradient, out=below)]

    return _Planned(out, [partial(torch.addmm, bias, weight, x, out=out)], backward)


def _convolution(module: nn.Conv2d, x: torch.Tensor, first: bool) -> _Planned:
    """Stride 1, by GEMM on columns. Sizes: channels c to o, kernel a × b, padded input h × w, output p × q, batch n."""
    bias = module.bias
    assert bias is not None
    weight = module.weight.data
    o, c, a, b = weight.shape
    top, left = (int(side) for side in module.padding)
    forward: list[Operation] = []
    padded = x
    if top or left:
        padded = torch.zeros(c, x.shape[1] + 2 * top, x.shape[2] + 2 * left, x.shape[3])
        forward.append(partial(_inside(padded, top, left).copy_, x))
    _, h, w, n = padded.shape
    p, q = h - a + 1, w - b + 1
    along_c, along_h, along_w, _ = padded.stride()
    columns = torch.empty(c * a * b, p * q * n)
    windows = padded.as_strided((c, a, b, p, q * n), (along_c, along_h, along_w, along_h, 1))
    out = torch.empty(o, p * q * n)
    forward += [
        partial(columns.view(c, a, b, p, q * n).copy_, windows),
        partial(torch.mm, weight.view(o, -1), columns, out=out),
        partial(out.add_, bias.data[:, None]),
    ]

    def backward(gradient: torch.Tensor) -> tuple[torch.Tensor | None, list[Operation]]:
        flat = gradient.view(o, -1)
        operations: list[Operation] = [partial(torch.sum, flat, 1, out=_gradient(bias))]
        target = _gradient(module.weight).view(o, -1)
        if o < 8:  # few rows: one GEMM for each line of the output, then their sum
            lines = torch.empty(p, o, c * a * b)
            pair = flat.view(o, p, -1).transpose(0, 1), columns.view(-1, p, q * n).permute(1, 2, 0)
            operations += [partial(torch.bmm, *pair, out=lines), partial(torch.sum, lines, 0, out=target)]
        else:
            turned = torch.empty(c * a * b, o)
            operations += [partial(torch.mm, columns, flat.t(), out=turned), partial(target.copy_, turned.t())]
        if first:
            return None, operations
        below, more = _full_convolution(weight, gradient, (h, w))
        return _inside(below, top, left), operations + more

    return _Planned(out.view(o, p, q, n), forward, backward)


def _inside(padded: torch.Tensor, top: int, left: int) -> torch.Tensor:
    return padded[:, top : padded.shape[1] - top, left : padded.shape[2] - left]


def _full_convolution(
    weight: torch.Tensor, gradient: torch.Tensor, size: tuple[int, int]
) -> tuple[torch.Tensor, list[Operation]]:
    """The gradient of a convolution's input: along the width by columns, along the height by adding up lines."""
    o, c, a, b = weight.shape
    (h, w), (_, p, q, n) = size, gradient.shape
    wide = torch.zeros(o, p, q + 2 * (b - 1), n)  # its border stays zero
    along_o, along_p, along_q, _ = wide.stride()
    columns = torch.empty(o * b, p * w * n)
    lines = torch.empty(c * a, p * w * n)
    backwards, flipped, kernel = torch.arange(b - 1, -1, -1), torch.empty_like(weight), torch.empty(c * a, o * b)
    result = torch.empty(c, h, w * n)
    by_line = lines.view(c, a, p, w * n)
    operations: list[Operation] = [
        partial(wide[:, :, b - 1 : b - 1 + q].copy_, gradient),
        partial(columns.view(o, b, p, w * n).copy_, wide.as_strided((o, b, p, w * n), (along_o, along_q, along_p, 1))),
        partial(torch.index_select, weight, 3, backwards, out=flipped),
        partial(kernel.view(c, a, o, b).copy_, flipped.permute(1, 2, 0, 3)),
        partial(torch.mm, kernel, columns, out=lines),
        result.zero_,
        *(partial(result[:, i : i + p].add_, by_line[:, i]) for i in range(a)),
    ]
    return result.view(c, h, w, n), operations


def _pool_relu(x: torch.Tensor, first: bool) -> _Planned:
    """2×2 max pooling, then ReLU; a gradient goes to the first of several largest inputs, as torch does it."""
    c, height, width, n = x.shape
    h, w = height // 2, width // 2
    upper, lower = x[:, 0 : 2 * h : 2, : 2 * w], x[:, 1 : 2 * h : 2, : 2 * w]
    rows, out = torch.empty(c, h, 2 * w, n), torch.empty(c, h, w, n)
    left, right = rows[:, :, 0::2], rows[:, :, 1::2]
    forward: list[Operation] = [
        partial(torch.maximum, upper, lower, out=rows),
        partial(torch.maximum, left, right, out=out),
        partial(out.clamp_min_, 0),
    ]

    def backward(gradient: torch.Tensor) -> tuple[torch.Tensor | None, list[Operation]]:
        of_rows, below = torch.empty_like(rows), torch.zeros_like(x)  # an odd last line stays zero
        even = below[:, : 2 * h, : 2 * w]
        return below, [
            _where_positive(gradient, out, gradient),
            *_share(gradient, (left, right), (of_rows[:, :, 0::2], of_rows[:, :, 1::2])),
            *_share(of_rows, (upper, lower), (even[:, 0::2], even[:, 1::2])),
        ]

    return _Planned(out, forward, backward)


def _share(
    gradient: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], out: tuple[torch.Tensor, torch.Tensor]
) -> list[Operation]:
    """The gradient of a maximum: to the second of the pair where it is strictly larger, else to the first."""
    difference = torch.empty(gradient.shape)
    return [
        partial(torch.sub, pair[1], pair[0], out=difference),
        _where_positive(gradient, difference, out[1]),
        partial(torch.sub, gradient, out[1], out=out[0]),
    ]


def _where_positive(gradient: torch.Tensor, x: torch.Tensor, out: torch.Tensor) -> Operation:
    """The gradient where x > 0, else 0: one fused, vectorised operation."""
    return partial(torch.ops.aten.threshold_backward.grad_input, gradient, x, 0, grad_input=out)


def _relu(x: torch.Tensor, first: bool) -> _Planned:
    out = torch.empty_like(x)
    forward: list[Operation] = [partial(torch.clamp_min, x, 0, out=out)]
    return _Planned(out, forward, lambda gradient: (gradient, [_where_positive(gradient, out, gradient)]))


def _flatten(x: torch.Tensor, first: bool) -> _Planned:
    return _Planned(x.view(-1, x.shape[-1]), [], lambda gradient: (gradient.view(x.shape), []))


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def compile_lean(module: nn.Module) -> LeanProgram | None:
    """The module's layers written out, or None if one of them is not known here. Call after ``flat.bind``."""
    if type(module) is not nn.Sequential:
        return None
    layers: list[Layer] = []
    with_parameters: list[bool] = []
    modules = list(module)
    while modules:
        layer = _layer(modules)
        if layer is None:
            return None
        layers.append(layer)
        with_parameters.append(any(True for _ in modules[0].parameters()))
        del modules[: 2 if layer is _pool_relu else 1]
    return LeanProgram(layers, with_parameters)


def _layer(modules: list[nn.Module]) -> Layer | None:
    """How to plan the next layer; pooling and the ReLU behind it are one."""
    module = modules[0]
    match module:
        case nn.Linear(bias=torch.Tensor()):
            return partial(_dense, module)
        case nn.Conv2d(
            stride=(1, 1), dilation=(1, 1), groups=1, padding_mode="zeros", bias=torch.Tensor(), padding=(_, _)
        ):
            return partial(_convolution, module) if module.out_channels <= FEW_CHANNELS else None
        case nn.MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False, return_indices=False):
            return _pool_relu if len(modules) > 1 and type(modules[1]) is nn.ReLU else None
        case nn.ReLU():
            return _relu
        case nn.Flatten(start_dim=1, end_dim=-1):
            return _flatten
    return None
