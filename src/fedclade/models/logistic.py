"""Multinomial logistic regression: one dense layer."""

import math

from torch import nn

from fedclade.config import ModelConfig
from fedclade.models import Shape


def build(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
