"""Multinomial logistic regression: one dense layer."""

from torch import nn

from fedclade.config import ModelConfig
from fedclade.models import Shape


def build(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))
