"""A dense net with one hidden layer."""

import math
from typing import TYPE_CHECKING

from fedclade.config import ModelConfig
from fedclade.models import Shape, dense

if TYPE_CHECKING:
    from torch import nn


def build(config: ModelConfig, shape: Shape, classes: int) -> "nn.Module":
    """One hidden layer."""
    from torch import nn

    pixels = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, config.hidden), nn.ReLU(), nn.Linear(config.hidden, classes))


def parameters(config: ModelConfig, shape: Shape, classes: int) -> int:
    """How many there are."""
    return dense(math.prod(shape), config.hidden) + dense(config.hidden, classes)
