"""Texts as bags of words: the mean of the tokens' embeddings, and one dense layer."""

from torch import nn

from fedclade.config import ModelConfig
from fedclade.models import Shape

TOKENS = True  # fed with token ids instead of numbers


def build(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """Token 0 fills up short texts and counts for nothing."""
    return nn.Sequential(
        nn.Flatten(),
        nn.EmbeddingBag(config.vocabulary, config.hidden, mode="mean", padding_idx=0),
        nn.Linear(config.hidden, classes),
    )
