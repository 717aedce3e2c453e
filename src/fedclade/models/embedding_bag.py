"""Texts as bags of words: the mean of the tokens' embeddings, and one dense layer."""

from typing import TYPE_CHECKING

from fedclade.config import ModelConfig
from fedclade.models import Shape, dense

if TYPE_CHECKING:
    from torch import nn

TOKENS = True  # fed with token ids instead of numbers


def build(config: ModelConfig, shape: Shape, classes: int) -> "nn.Module":
    """Token 0 fills up short texts and counts for nothing."""
    from torch import nn

    return nn.Sequential(
        nn.Flatten(),
        nn.EmbeddingBag(config.vocabulary, config.hidden, mode="mean", padding_idx=0),
        nn.Linear(config.hidden, classes),
    )


def parameters(config: ModelConfig, shape: Shape, classes: int) -> int:
    """How many there are."""
    return config.vocabulary * config.hidden + dense(config.hidden, classes)
