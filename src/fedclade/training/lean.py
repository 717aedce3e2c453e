"""The lean step: forward and backward of small nets written out, without autograd, with the batch as the last axis.

Found by measuring on one core (``make bench``): at the usual batch of 32 a small convolutional net spends most of its
time not in arithmetic but in pooling, strided access, fresh memory and the bookkeeping of autograd. With the layout
channels × height × width × batch

- every window of an image is a run of whole vectors, so that gathering columns for a GEMM is a plain copy;
- 2×2 max pooling is a few vectorised maxima, its gradient a few fused thresholds, with ReLU folded in;
- a dense layer is one GEMM without a transpose;
- gradients go straight into one flat vector, so that a step of SGD is one operation;
- all large intermediates live in buffers that are made once.

``compile_lean`` gives None for a module with anything else in it, or with so many channels that oneDNN's convolutions
are faster; such a module is trained with autograd.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

FEW_CHANNELS = 16  # with more output channels than this, oneDNN's convolutions are faster


class Layer(Protocol):
    """Keeps what backward needs. The batch is the last axis of everything."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output."""
        ...

    def backward(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """The gradient of its input, or None if nobody needs it; those of its parameters are written in place."""
        ...


class _Buffers:
    """Memory that is made once for each use and shape."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], torch.Tensor] = {}

    def __call__(self, use: str, *shape: int, zero: bool = False) -> torch.Tensor:
        key = (use, *shape)
        if key not in self._made:
            self._made[key] = torch.zeros(shape) if zero else torch.empty(shape)
        return self._made[key]


class _Dense:
    def __init__(self, module: nn.Linear, first: bool) -> None:
        self._weight, self._bias, self._first = module.weight.data, module.bias.data[:, None], first
        self._weight_gradient, self._bias_gradient = _gradient(module.weight), _gradient(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._input = x
        return torch.addmm(self._bias, self._weight, x)

    def backward(self, gradient: torch.Tensor) -> torch.Tensor | None:
        torch.mm(gradient, self._input.t(), out=self._weight_gradient)
        torch.sum(gradient, 1, out=self._bias_gradient)
        return None if self._first else torch.mm(self._weight.t(), gradient)


class _Convolution:
    """Stride 1, by GEMM on columns. Shapes: channels c, kernel a × b, input h × w, output p × q, batch n."""

    def __init__(self, module: nn.Conv2d, first: bool) -> None:
        self._first = first
        assert module.bias is not None
        self._weight, self._bias = module.weight.data, module.bias.data[:, None]
        self._weight_gradient, self._bias_gradient = _gradient(module.weight), _gradient(module.bias)
        height, width = (int(side) for side in module.padding)
        self._padding = (0, 0, width, width, height, height)
        self._buffer = _Buffers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if any(self._padding):
            x = functional.pad(x, self._padding)
        o, c, a, b = self._weight.shape
        _, h, w, n = self._shape = x.shape
        p, q = h - a + 1, w - b + 1
        along_c, along_h, along_w, _ = x.stride()
        columns = self._buffer("columns", c * a * b, p * q * n)
        windows = x.as_strided((c, a, b, p, q * n), (along_c, along_h, along_w, along_h, 1))
        columns.view(c, a, b, p, q * n).copy_(windows)
        self._columns = columns
        out = torch.mm(self._weight.view(o, -1), columns, out=self._buffer("out", o, p * q * n))
        return out.add_(self._bias).view(o, p, q, n)

    def backward(self, gradient: torch.Tensor) -> torch.Tensor | None:
        o, p, q, n = gradient.shape
        flat = gradient.view(o, -1)
        torch.sum(flat, 1, out=self._bias_gradient)
        if o < 8:  # few rows: one GEMM for each line of the output, then their sum
            lines = flat.view(o, p, -1).transpose(0, 1), self._columns.view(-1, p, q * n).permute(1, 2, 0)
            torch.sum(torch.bmm(*lines), 0, out=self._weight_gradient.view(o, -1))
        else:
            self._weight_gradient.view(o, -1).copy_(torch.mm(self._columns, flat.t()).t())
        return None if self._first else self._input_gradient(gradient)

    def _input_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        """A full convolution with the flipped kernel: along the width by columns, along the height by adding lines."""
        o, c, a, b = self._weight.shape
        _, h, w, n = self._shape
        _, p, q, _ = gradient.shape
        wide = self._buffer("wide", o, p, q + 2 * (b - 1), n, zero=True)  # its border stays zero
        wide[:, :, b - 1 : b - 1 + q] = gradient
        along_o, along_p, along_q, _ = wide.stride()
        columns = self._buffer("wide columns", o * b, p * w * n)
        columns.view(o, b, p, w * n).copy_(wide.as_strided((o, b, p, w * n), (along_o, along_q, along_p, 1)))
        kernel = self._weight.flip(3).permute(1, 2, 0, 3).reshape(c * a, o * b)
        lines = torch.mm(kernel, columns, out=self._buffer("lines", c * a, p * w * n)).view(c, a, p, w * n)
        result = self._buffer("input gradient", c, h, w * n).zero_()
        for i in range(a):
            result[:, i : i + p].add_(lines[:, i])
        left, top = self._padding[2], self._padding[4]
        return result.view(c, h, w, n)[:, top : h - top, left : w - left]


class _PoolRelu:
    """2×2 max pooling, then ReLU; a gradient goes to the first of several largest inputs, as torch does it."""

    def __init__(self) -> None:
        self._buffer = _Buffers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        c, h, w, n = self._shape = x.shape
        h, w = h // 2 * 2, w // 2 * 2
        self._rows = x[:, 0:h:2, :w], x[:, 1:h:2, :w]
        pooled = torch.maximum(*self._rows, out=self._buffer("rows", c, h // 2, w, n))
        self._columns = pooled[:, :, 0::2], pooled[:, :, 1::2]
        out = torch.maximum(*self._columns, out=self._buffer("out", c, h // 2, w // 2, n))
        self._out = out.clamp_min_(0)
        return out

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        c, h, w, n = self._shape
        gradient = _where_positive(gradient, self._out, torch.empty_like(gradient))
        by_rows = self._buffer("by rows", c, h // 2, w // 2 * 2, n)
        self._share(gradient, self._columns, (by_rows[:, :, 0::2], by_rows[:, :, 1::2]))
        full = self._buffer("full", c, h, w, n, zero=True)  # an odd last row or column stays zero
        even = full[:, : h // 2 * 2, : w // 2 * 2]
        self._share(by_rows, self._rows, (even[:, 0::2], even[:, 1::2]))
        return full

    @staticmethod
    def _share(
        gradient: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], out: tuple[torch.Tensor, torch.Tensor]
    ) -> None:
        """To the second of a pair where it is strictly larger, else to the first."""
        _where_positive(gradient, pair[1] - pair[0], out[1])
        torch.sub(gradient, out[1], out=out[0])


class _Relu:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._out = torch.clamp_min(x, 0)
        return self._out

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        return _where_positive(gradient, self._out, gradient)


class _Flatten:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._shape = x.shape
        return x.reshape(-1, x.shape[-1])

    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.view(self._shape)


def _where_positive(gradient: torch.Tensor, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """The gradient where x > 0, else 0: one fused, vectorised operation."""
    result: torch.Tensor = torch.ops.aten.threshold_backward.grad_input(gradient, x, 0, grad_input=out)
    return result


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


class LeanProgram:
    """A whole net; ``gradients`` runs one batch forward and backward and leaves the gradients in place."""

    def __init__(self, layers: list[Layer]) -> None:
        self._layers = layers

    def gradients(self, images: torch.Tensor, one_hot: torch.Tensor) -> None:
        """Of the mean cross-entropy of one batch; images are c × h × w × n, labels classes × n."""
        x = images
        for layer in self._layers:
            x = layer.forward(x)
        gradient: torch.Tensor | None = torch.softmax(x, 0).sub_(one_hot).mul_(1.0 / one_hot.shape[1])
        for layer in reversed(self._layers):
            if gradient is None:  # nothing below the first layer with parameters needs one
                return
            gradient = layer.backward(gradient)


def compile_lean(module: nn.Module) -> LeanProgram | None:
    """The module's layers written out, or None if one of them is not known here. Call after ``flat.bind``."""
    if type(module) is not nn.Sequential:
        return None
    layers: list[Layer] = []
    modules, first = list(module), True
    while modules:
        made = _layer(modules, first)
        if made is None:
            return None
        layers.append(made())
        first = first and not isinstance(layers[-1], _Dense | _Convolution)
        del modules[: 2 if isinstance(layers[-1], _PoolRelu) else 1]
    return LeanProgram(layers)


def _layer(modules: list[nn.Module], first: bool) -> Callable[[], Layer] | None:
    """How to make the next layer; pooling and the ReLU behind it are one."""
    module = modules[0]
    match module:
        case nn.Linear(bias=torch.Tensor()):
            return lambda: _Dense(module, first)
        case nn.Conv2d(
            stride=(1, 1), dilation=(1, 1), groups=1, padding_mode="zeros", bias=torch.Tensor(), padding=(_, _)
        ):
            return (lambda: _Convolution(module, first)) if module.out_channels <= FEW_CHANNELS else None
        case nn.MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False, return_indices=False):
            return _PoolRelu if len(modules) > 1 and type(modules[1]) is nn.ReLU else None
        case nn.ReLU():
            return _Relu
        case nn.Flatten(start_dim=1, end_dim=-1):
            return _Flatten
    return None
