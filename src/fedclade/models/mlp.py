"""A dense net with one hidden layer."""

import math

from torch import nn

from fedclade.config import ModelConfig
from fedclade.models import Shape


def build(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """One hidden layer."""
    pixels = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, config.hidden), nn.ReLU(), nn.Linear(config.hidden, classes))
