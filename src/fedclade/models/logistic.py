"""Multinomial logistic regression: one dense layer."""

import math
from typing import TYPE_CHECKING

from fedclade.config import ModelConfig
from fedclade.models import Shape, dense

if TYPE_CHECKING:
    from torch import nn


def build(config: ModelConfig, shape: Shape, classes: int) -> "nn.Module":
    """Multinomial logistic regression."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def parameters(config: ModelConfig, shape: Shape, classes: int) -> int:
    """How many there are."""
    return dense(math.prod(shape), classes)
