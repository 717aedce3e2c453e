"""What is trained: small nets for 28×28, 32×32 and 8×8 images, or the user's own factory.

Max pooling comes before ReLU: the two commute, and pooling first leaves ReLU a quarter of the work.
"""

from collections.abc import Callable

import torch
from torch import nn

from fedclade.config import ModelConfig
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, near_miss
from fedclade.core.random import derived_seed

Shape = tuple[int, int, int]  # channels, height, width


def _logistic(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))


def _mlp(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """One hidden layer."""
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, config.hidden), nn.ReLU(), nn.Linear(config.hidden, classes))


def _cnn(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """conv(6)-conv(16)-dense, 5×5 kernels: 18,506 parameters on FEMNIST."""
    side = [((edge - 4) // 2 - 4) // 2 for edge in shape[1:]]
    if min(side) < 1:
        raise UserError(f'model.name = "cnn": needs images of at least 16×16, not {shape[1]}×{shape[2]}; use mlp')
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * side[0] * side[1], classes),
    )


def _cnn_large(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """The larger FEMNIST net with two hidden convolutions: conv(32)-conv(64)-dense(512), 1.69 M parameters."""
    side = [edge // 2 // 2 for edge in shape[1:]]
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * side[0] * side[1], 512),
        nn.ReLU(),
        nn.Linear(512, classes),
    )


def _alexnet(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """AlexNet for 32×32: 5 convolutions, 3 pools, 2 dropouts, 3 dense layers (the paper's 13)."""
    c1, c2, c3, c4, c5, dense = (max(1, round(w * config.width)) for w in (64, 192, 384, 256, 256, 512))
    side = [((edge + 1) // 2) // 2 // 2 // 2 for edge in shape[1:]]
    if min(side) < 1:
        raise UserError(f'model.name = "alexnet": needs images of at least 16×16, not {shape[1]}×{shape[2]}')
    return nn.Sequential(
        nn.Conv2d(shape[0], c1, 3, stride=2, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(c1, c2, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(c2, c3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(c3, c4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(c4, c5, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(c5 * side[0] * side[1], dense),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(dense, dense),
        nn.ReLU(),
        nn.Linear(dense, classes),
    )


_builders: dict[str, Callable[[ModelConfig, Shape, int], nn.Module]] = {
    "logistic": _logistic,
    "mlp": _mlp,
    "cnn": _cnn,
    "cnn-large": _cnn_large,
    "alexnet": _alexnet,
}


def build_model(config: ModelConfig, shape: Shape, classes: int, seed: int) -> nn.Module:
    """The module with its initial weights, which depend on the seed alone.

    A user's factory is called as ``factory(shape, classes)`` and gives a module from images to class scores.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        if ":" in config.name:
            factory = load("model.name", config.name)
            if not callable(factory):
                raise UserError(f'model.name = "{config.name}": must be a function of (shape, classes)')
            module = factory(shape, classes)
        elif config.name in _builders:
            module = _builders[config.name](config, shape, classes)
        else:
            raise UserError(f'model.name = "{config.name}": no such model; {near_miss(config.name, _builders)}')
    if not isinstance(module, nn.Module):
        raise UserError(f'model.name = "{config.name}": the factory gave a {type(module).__name__}, not a Module')
    if any(True for _ in module.buffers()):
        raise UserError(
            f'model.name = "{config.name}": has buffers (batch norm?), which devices cannot share; use group norm'
        )
    return module
