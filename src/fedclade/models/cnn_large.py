"""A larger convolutional net for FEMNIST."""

from typing import TYPE_CHECKING

from fedclade.config import ModelConfig
from fedclade.models import Shape, convolution, dense, image_sides

if TYPE_CHECKING:
    from torch import nn


def build(config: ModelConfig, shape: Shape, classes: int) -> "nn.Module":
    """The larger FEMNIST net with two hidden convolutions: conv(32)-conv(64)-dense(512), 1.69 M parameters."""
    from torch import nn

    side = [edge // 2 // 2 for edge in image_sides("cnn-large", shape)]
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


def parameters(config: ModelConfig, shape: Shape, classes: int) -> int:
    """How many there are."""
    height, width = (edge // 2 // 2 for edge in image_sides("cnn-large", shape))
    return convolution(shape[0], 32, 5) + convolution(32, 64, 5) + dense(64 * height * width, 512) + dense(512, classes)
