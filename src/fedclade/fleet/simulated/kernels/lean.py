"""The lean step: forward and backward of small nets written out, without autograd, with the batch as the last axis.

Found by measuring on one core (``make bench``): at the usual batch of 32 a small convolutional net spends most of its
time not in arithmetic but in pooling, strided access, fresh memory, and the bookkeeping of autograd and Python. So:

- in the layout channels × height × width × batch every window of an image is a run of whole vectors, so gathering
  columns for a GEMM is a plain copy;
- a convolution with 2×2 max pooling behind it is worked out in blocks of the four outputs that are pooled: a quarter of
  the columns, each a little longer, make a GEMM of four times the rows, which is a far better shape for few channels,
  and pooling is a few maxima of whole matrices, its gradient a few fused thresholds;
- a dense layer is one GEMM without a transpose, and gradients go straight into one flat vector;
- all memory and all views of it are made once for each batch size: a step is a fixed list of operations.

``compile_lean`` gives None for a module with anything else in it, or with so many channels that oneDNN's convolutions
are faster; such a module is trained with autograd.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from fedclade.fleet.simulated.kernels.flat import is_plain_stack
from fedclade.fleet.simulated.kernels.targets import Targets

FEW_CHANNELS = 16  # with more output channels than this, oneDNN's convolutions are faster

Operation: TypeAlias = Callable[[], object]
# from the gradient of a layer's output: that of its input (None if nobody needs it), and how both are worked out
Backward: TypeAlias = Callable[[torch.Tensor], tuple[torch.Tensor | None, list[Operation]]]

# the same for pooling; it leaves what ReLU lets through of the gradient in the second tensor
PoolBackward: TypeAlias = Callable[[torch.Tensor, torch.Tensor], list[Operation]]


class _Planned(NamedTuple):
    """A layer for one batch size: where its output will be, how it gets there, and the way back."""

    out: torch.Tensor
    forward: list[Operation]
    backward: Backward


# How to plan a layer: from its input, and whether anything below it has parameters.
Layer: TypeAlias = Callable[[torch.Tensor, bool], _Planned]


class LeanProgram:
    """A whole net; ``gradients`` runs one batch forward and backward and leaves the gradients in place."""

    def __init__(self, layers: list[Layer], with_parameters: list[bool], targets: Targets) -> None:
        self._layers, self._targets = layers, targets
        self._first = with_parameters.index(True)
        self._plans: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor, list[Operation]]] = {}
        self._looks: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor, list[Operation]]] = {}

    def gradients(self, features: torch.Tensor, wanted: torch.Tensor, batch: torch.Tensor, shape: torch.Size) -> None:
        """Of the mean loss of one batch: columns of ``features`` (pixels × samples) and of ``wanted`` (outputs)."""
        key = (len(batch), *shape)
        if key not in self._plans:
            self._plans[key] = self._plan(shape, len(batch), len(wanted))
        images, targets, operations = self._plans[key]
        torch.index_select(features, 1, batch, out=images)
        torch.index_select(wanted, 1, batch, out=targets)
        for operation in operations:
            operation()

    def logits(self, features: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        """Of a batch, one column each; overwritten by the next call."""
        key = (features.shape[1], *shape)
        if key not in self._looks:
            images = torch.empty(shape.numel(), key[0])
            out, forward, _ = self._way_there(images.view(*shape, key[0]))
            self._looks[key] = images, out, forward
        images, out, operations = self._looks[key]
        images.copy_(features)
        for operation in operations:
            operation()
        return out

    def _way_there(self, x: torch.Tensor) -> tuple[torch.Tensor, list[Operation], list[Backward]]:
        operations: list[Operation] = []
        ways_back: list[Backward] = []
        for depth, layer in enumerate(self._layers):
            x, forward, backward = layer(x, depth <= self._first)
            operations += forward
            ways_back.append(backward)
        return x, operations, ways_back

    def _plan(self, shape: torch.Size, n: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor, list[Operation]]:
        images, targets = torch.empty(shape.numel(), n), torch.empty(outputs, n)
        x, operations, ways_back = self._way_there(images.view(*shape, n))
        error = torch.empty_like(x)
        array = error.numpy()
        operations += [
            self._targets.say(x, 0, error),
            partial(np.subtract, array, targets.numpy(), array),
            partial(np.multiply, array, np.float32(1.0 / n), array),
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


def _convolution(module: nn.Conv2d, side: int, split: bool, x: torch.Tensor, first: bool) -> _Planned:
    """Stride 1, by GEMM on columns; with ``side = 2`` also 2×2 max pooling and ReLU.

    A column holds all the pixels that a block of side × side outputs sees, so for each of the block's outputs there is
    a row of kernels, shifted to its place. Sizes: channels c to o, kernel a × b, blocks p × q, batch n.

    With ``split`` the lines of the output have their even places first, then the odd ones, as two axes: the windows of
    a next layer, which are two places apart, then lie in memory as longer runs.
    """
    bias = module.bias
    assert bias is not None
    weight = module.weight.data
    o, c, a, b = weight.shape
    top, left = (int(edge) for edge in module.padding)
    forward: list[Operation] = []
    padded = x
    if top or left:
        padded = torch.zeros(c, x.shape[1] + 2 * top, x.shape[2] + 2 * left, x.shape[3])
        forward.append(partial(_inside(padded, top, left).copy_, x))
    n = padded.shape[-1]
    p, q = (padded.shape[1] - a + 1) // side, (padded[0, 0].numel() // n - b + 1) // side
    split = split and q % 2 == 0
    high, wide = a + side - 1, b + side - 1  # what a block sees
    seen = _windows(padded, (high, wide), (p, q), side, split)
    columns = torch.empty(c * high * wide, p * q * n)
    kernels = torch.zeros(side, side, o, c, high, wide)
    rows = kernels.view(side * side * o, -1)
    outputs = torch.empty(side, side, o, p * q * n)
    forward += [
        partial(np.copyto, _shifted(kernels, weight.shape), weight.numpy()),
        partial(columns.view(seen.shape).copy_, seen),
        partial(torch.mm, rows, columns, out=outputs.view(len(rows), -1)),
    ]
    if side == 1:
        out, pool_back = outputs[0, 0], None
        forward.append(partial(out.add_, bias.data[:, None]))
    else:
        out, more, pool_back = _pool_relu(outputs, bias.data[:, None])
        forward += more

    def backward(gradient: torch.Tensor) -> tuple[torch.Tensor | None, list[Operation]]:
        """In the memory of the way there, where it can be: less of it stays in the cache."""
        flat = torch.empty_like(out) if pool_back else out
        operations: list[Operation] = [partial(flat.view(gradient.shape).copy_, gradient)]
        if pool_back:
            operations = pool_back(gradient, flat)
        operations.append(partial(torch.sum, flat, 1, out=_gradient(bias)))
        of_kernels, of_rows = torch.empty_like(kernels), outputs.view(len(rows), -1)
        if o < 8:  # few rows are faster
            few = outputs.view(side * side, o, -1), columns.t().expand(side * side, -1, -1)
            operations.append(partial(torch.bmm, *few, out=of_kernels.view(side * side, o, -1)))
        else:
            operations.append(partial(torch.mm, of_rows, columns.t(), out=of_kernels.view(len(rows), -1)))
        places = _shifted(torch.arange(kernels.numel()).view(kernels.shape), weight.shape).reshape(side * side, -1)
        shares, target = np.empty(places.shape, dtype=np.float32), _gradient(module.weight).view(-1).numpy()
        operations += [
            partial(of_kernels.numpy().take, places, None, shares, "clip"),  # "raise" would copy once more
            partial(shares.sum, 0, out=target),
        ]
        if first:
            return None, operations
        below = torch.empty_like(padded)
        operations += [partial(torch.mm, rows.t(), of_rows, out=columns), below.zero_]
        windows, by_pixel = _windows(below, (high, wide), (p, q), side, split), columns.view(seen.shape)
        across = side // seen.shape[3]
        for i in range(0, high, side):  # pixels that are as far apart as blocks are never the same one
            for j in range(0, seen.shape[2], across):
                some = (slice(None), slice(i, i + side), slice(j, j + across))
                operations.append(partial(windows[some].add_, by_pixel[some]))
        return _inside(below, top, left), operations

    return _Planned(out.view(o, p, *((2, q // 2) if split else (q,)), n), forward, backward)


def _windows(x: torch.Tensor, size: tuple[int, int], count: tuple[int, int], step: int, split: bool) -> torch.Tensor:
    """A view of an image's windows: channels, a window's height and width (as two axes), rows and columns, batch."""
    if x.dim() == 4:
        x = x[:, :, None]
    (high, wide), (along_c, along_h, odd, along_w, _), parts = size, x.stride(), x.shape[2]
    strides = (along_c, along_h, along_w, odd, step * along_h, step // parts * along_w, 1)
    windows = x.as_strided((len(x), high, wide // parts, parts, *count, x.shape[4]), strides)
    return torch.unflatten(windows, 5, (count[1] // 2, 2)).transpose(5, 6) if split else windows


def _shifted(kernels: torch.Tensor, shape: torch.Size) -> np.ndarray:
    """A view of the kernels within what a block sees: for output (r, s) of the block shifted by (r, s)."""
    r, s, o, c, i, j = kernels.stride()
    return kernels.as_strided((*kernels.shape[:2], *shape), (r + i, s + j, o, c, i, j)).numpy()


def _inside(padded: torch.Tensor, top: int, left: int) -> torch.Tensor:
    return padded[:, top : padded.shape[1] - top, left : padded.shape[2] - left]


def _pool_relu(blocks: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, list[Operation], PoolBackward]:
    """Max pooling of blocks (2 × 2 × channels × positions), bias, ReLU; and the way back.

    A gradient goes to the first of several largest inputs, as torch does it; it takes the place of the blocks.
    """
    lines, out = torch.empty(blocks.shape[1:]), torch.empty(blocks.shape[2:])
    forward: list[Operation] = [
        partial(torch.maximum, blocks[:, 0], blocks[:, 1], out=lines),
        partial(torch.maximum, lines[0], lines[1], out=out),
        partial(out.add_, bias),  # the largest plus the bias is the largest of all plus the bias
        partial(out.clamp_min_, 0),
    ]

    def backward(gradient: torch.Tensor, flat: torch.Tensor) -> list[Operation]:
        return [
            _where_positive(gradient, out.view(gradient.shape), flat.view(gradient.shape)),
            *_share(flat, lines[0], lines[1]),
            *_share(lines, blocks[:, 0], blocks[:, 1]),
        ]

    return out, forward, backward


def _share(gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> list[Operation]:
    """The gradient of a maximum of two, in their place: the second's where it is strictly larger, else the first's."""
    return [
        partial(second.sub_, first),
        _where_positive(gradient, second, second),
        partial(torch.sub, gradient, second, out=first),
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


def compile_lean(module: nn.Module, targets: Targets) -> LeanProgram | None:
    """The module's layers written out, or None if one of them is not known here. Call after ``flat.bind``."""
    if not is_plain_stack(module):
        return None
    layers: list[Layer] = []
    with_parameters: list[bool] = []
    modules = list(module)
    while modules:
        layer, length = _layer(modules)
        if layer is None:
            return None
        layers.append(layer)
        with_parameters.append(any(True for _ in modules[0].parameters()))
        del modules[:length]
    return LeanProgram(layers, with_parameters, targets)


def _layer(modules: list[nn.Module]) -> tuple[Layer | None, int]:
    """How to plan the next layer, and how many modules it is: a convolution with pooling and ReLU is one."""
    module = modules[0]
    match module:
        case nn.Linear(bias=torch.Tensor()):
            return partial(_dense, module), 1
        case nn.Conv2d(
            stride=(1, 1), dilation=(1, 1), groups=1, padding_mode="zeros", bias=torch.Tensor(), padding=(_, _)
        ) if module.out_channels <= FEW_CHANNELS:
            if not _pooled(modules):
                return partial(_convolution, module, 1, False), 1
            following = modules[3] if _pooled(modules[3:]) else None
            split = (
                isinstance(following, nn.Conv2d) and following.padding == (0, 0) and following.kernel_size[1] % 2 == 1
            )
            return partial(_convolution, module, 2, split), 3
        case nn.ReLU():
            return _relu, 1
        case nn.Flatten(start_dim=1, end_dim=-1):
            return _flatten, 1
    return None, 0


def _pooled(modules: list[nn.Module]) -> bool:
    """Whether the first is followed by plain 2×2 max pooling and ReLU."""
    match modules[1:3]:
        case [
            nn.MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False, return_indices=False),
            nn.ReLU(),
        ]:
            return True
    return False
