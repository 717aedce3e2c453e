"""A dense net with one hidden layer."""

from torch import nn

from fedclade.config import ModelConfig
from fedclade.models import Shape


def build(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """One hidden layer."""
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, config.hidden), nn.ReLU(), nn.Linear(config.hidden, classes))
