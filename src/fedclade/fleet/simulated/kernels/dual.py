"""Dense nets on few samples: the first layer's weights stay untouched until a device has trained.

SGD moves the first layer by outer products of gradients and images: W = W0 + A'X, where X has a row for each image and
A a row of hidden units for each. The steps see nothing of W but what the layer makes of the images, Z = XW' + bias, and
Z moves by (XX' + 1)A, where the 1 is the bias. So the products XX' and the first Z are worked out once; a step takes
its rows of Z, goes through the layers above, and adds the products with its images, times its gradient, to Z: one
GEMM as long as the number of images instead of two as long as the number of pixels. In the end one GEMM gives W.

Matrices this small are multiplied by SciPy's BLAS, whose calls cost a third of torch's; both work on the same memory.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.linalg.blas import sgemm
from torch import nn

from fedclade.core.arrays import Ints, Singles
from fedclade.core.threads import blas_threads
from fedclade.fleet.simulated.kernels.batched import DenseStack
from fedclade.fleet.simulated.kernels.targets import Targets

Operation: TypeAlias = Callable[[], object]


class _Plan(NamedTuple):
    """A step for one size of batch: what goes in, what the first layer's outputs are to move by, and the way there."""

    outputs: Singles
    targets: Singles
    scale: Singles  # minus the rate, over the size of the batch
    move: Singles
    operations: list[Operation]


class DualProgram:
    """Plain SGD, without momentum and weight decay, of a net that fits a DenseStack. Make it after ``flat.bind``."""

    def __init__(self, module: nn.Module, targets: Targets) -> None:
        assert DenseStack.fits(module)
        self._targets = targets
        self._first, *self._above = (layer for layer in module.children() if isinstance(layer, nn.Linear))
        self._outputs = [self._first, *self._above][-1].out_features
        self._plans: dict[int, _Plan] = {}

    def pays(self, samples: int, epochs: int) -> bool:
        """Whether it is less arithmetic than the usual steps."""
        into, out = self._first.in_features, self._first.out_features
        usual = epochs * 4 * into * out
        return 2 * samples * into + 4 * into * out + epochs * 2 * samples * out < usual

    @torch.inference_mode()
    def train(self, images: torch.Tensor, targets: Singles, orders: list[Ints], batch_size: int, rate: float) -> None:
        """Train the module in place: a row of ``images`` and ``targets`` for each sample, an order for each epoch."""
        weight, bias = self._first.weight.data, self._first.bias.data
        outputs = torch.addmm(bias, images, weight.t()).numpy()
        products = torch.mm(images, images.t()).add_(1.0).numpy()
        moves, epoch_moves = np.zeros_like(outputs), np.empty_like(outputs)
        with blas_threads(1):  # more threads: other bits, and slower
            for order in orders:
                for first in range(0, len(order), batch_size):
                    batch = order[first : first + batch_size]
                    plan = self._plans.get(len(batch)) or self._plan(len(batch))
                    outputs.take(batch, 0, plan.outputs, "clip")  # "raise" would copy once more
                    targets.take(batch, 0, plan.targets, "clip")
                    plan.scale.fill(-rate / len(batch))
                    for operation in plan.operations:
                        operation()
                    epoch_moves[first : first + batch_size] = plan.move
                    sgemm(1.0, plan.move.T, products.take(batch, 0).T, 1.0, outputs.T, 0, 1, 1)
                moves[order] += epoch_moves
        total = torch.from_numpy(moves)
        weight.addmm_(total.t(), images)
        bias.add_(total.sum(0))

    def _plan(self, size: int) -> _Plan:
        """Through the layers above, which move on the way back: their gradients are added to them as they are made."""
        x = start = torch.empty(size, self._first.out_features)
        below = move = torch.empty_like(start)
        there: list[Operation] = []
        back: list[Operation] = []
        for layer in self._above:
            out, gradient = torch.empty(size, layer.out_features), torch.empty(size, layer.out_features)
            weight, bias = layer.weight.data.numpy(), layer.bias.data
            there += [
                partial(torch.relu_, x),
                partial(np.copyto, out.numpy(), bias.numpy()),
                _product(out.numpy(), x.numpy(), weight.T, keep=1.0),
            ]
            back[:0] = [
                _product(below.numpy(), gradient.numpy(), weight),
                partial(torch.ops.aten.threshold_backward.grad_input, below, x, 0, grad_input=below),
                _product(weight, gradient.numpy().T, x.numpy(), keep=1.0),
                partial(bias.addmv_, gradient.t(), torch.ones(size)),
            ]
            x, below = out, gradient
        error, targets = below.numpy(), np.empty((size, self._outputs), dtype=np.float32)
        scale = np.empty((), dtype=np.float32)
        descent: list[Operation] = [
            self._targets.say(x, 1, below),
            partial(np.subtract, error, targets, error),
            partial(np.multiply, error, scale, error),
        ]
        self._plans[size] = _Plan(start.numpy(), targets, scale, move.numpy(), there + descent + back)
        return self._plans[size]


def _product(out: Singles, left: Singles, right: Singles, keep: float = 0.0) -> Operation:
    """out = left @ right + keep · out. All are contiguous or transposes of such; BLAS sees each of them transposed."""
    (a, a_turned), (b, b_turned) = (
        (matrix.T, 0) if matrix.flags.c_contiguous else (matrix, 1) for matrix in (right, left)
    )
    return partial(sgemm, 1.0, a, b, keep, out.T, a_turned, b_turned, 1)
