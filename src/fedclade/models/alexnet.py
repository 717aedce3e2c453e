"""AlexNet, for images of 32×32."""

from itertools import pairwise
from typing import TYPE_CHECKING

from fedclade.config import ModelConfig
from fedclade.core.errors import UserError
from fedclade.models import Shape, convolution, dense, image_sides

if TYPE_CHECKING:
    from torch import nn


def build(config: ModelConfig, shape: Shape, classes: int) -> "nn.Module":
    """AlexNet for 32×32: 5 convolutions, 3 pools, 2 dropouts, 3 dense layers (the paper's 13)."""
    from torch import nn

    c1, c2, c3, c4, c5, hidden = _widths(config)
    height, width = _sides(shape)
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
        nn.Linear(c5 * height * width, hidden),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def parameters(config: ModelConfig, shape: Shape, classes: int) -> int:
    """How many there are."""
    c1, c2, c3, c4, c5, hidden = _widths(config)
    height, width = _sides(shape)
    channels = (shape[0], c1, c2, c3, c4, c5)
    return (
        sum(convolution(into, out, 3) for into, out in pairwise(channels))
        + dense(c5 * height * width, hidden)
        + dense(hidden, hidden)
        + dense(hidden, classes)
    )


def _widths(config: ModelConfig) -> list[int]:
    """Channels of the five convolutions, and units of the hidden dense layers."""
    return [max(1, round(width * config.width)) for width in (64, 192, 384, 256, 256, 512)]


def _sides(shape: Shape) -> list[int]:
    """Height and width of what is left of an image behind the last pooling."""
    side = [((edge + 1) // 2) // 2 // 2 // 2 for edge in image_sides("alexnet", shape)]
    if min(side) < 1:
        raise UserError(f'model.name = "alexnet": needs images of at least 16×16, not {shape[1]}×{shape[2]}')
    return side
