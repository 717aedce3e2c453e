"""A model of your own: a function from the shape of a sample and the number of classes to a torch module.

From this folder::

    fedclade run quickstart --set model.name=own_model:small_residual_net
"""

import torch
from torch import nn


class Residual(nn.Module):
    """A convolution whose output is added to its input; group norm needs no statistics of batches."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(channels, channels, 3, padding=1)
        self.normalise = nn.GroupNorm(2, channels)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.normalise(self.convolve(images)))


def small_residual_net(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Convolution, one residual block, pooling to 4×4, one dense layer."""
    channels, _, _ = shape  # a sample's channels, height and width
    first = nn.Conv2d(channels, 8, 3, stride=2, padding=1)
    return nn.Sequential(first, Residual(8), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(8 * 16, classes))
