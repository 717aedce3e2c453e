"""A small convolutional net for 28×28 images.

Max pooling comes before ReLU: the two commute, and pooling first leaves ReLU a quarter of the work.
"""

from typing import TYPE_CHECKING

from fedclade.config import ModelConfig
from fedclade.core.errors import UserError
from fedclade.models import Shape, convolution, dense, image_sides

if TYPE_CHECKING:
    from torch import nn


def build(config: ModelConfig, shape: Shape, classes: int) -> "nn.Module":
    """conv(6)-conv(16)-dense, 5×5 kernels: 18,506 parameters on FEMNIST."""
    from torch import nn

    height, width = _sides(shape)
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * height * width, classes),
    )


def parameters(config: ModelConfig, shape: Shape, classes: int) -> int:
    """How many there are."""
    height, width = _sides(shape)
    return convolution(shape[0], 6, 5) + convolution(6, 16, 5) + dense(16 * height * width, classes)


def _sides(shape: Shape) -> list[int]:
    """Height and width of what is left of an image behind the second pooling."""
    side = [((edge - 4) // 2 - 4) // 2 for edge in image_sides("cnn", shape)]
    if min(side) < 1:
        raise UserError(f'model.name = "cnn": needs images of at least 16×16, not {shape[1]}×{shape[2]}; use mlp')
    return side
