r"""A model for texts of your own: words one after the other through a small recurrent net.

From this folder::

    fedclade run own-data --set population.source=own_text:reports --set population.devices=10 \
        --set model.name=own_text_model:small_recurrent_net --set training.learning_rate=0.5
"""

import torch
from torch import nn

VOCABULARY, WIDTH = 1000, 32


class Recurrent(nn.Module):
    """Token ids in, N×1×1×words; the state after the last word decides. Token 0 only fills up short texts."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.read = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.score = nn.Linear(WIDTH, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        words = tokens.flatten(1)
        states, _ = self.read(self.embed(words))
        last = (words != 0).sum(1).clamp(min=1) - 1
        scores: torch.Tensor = self.score(states[torch.arange(len(words)), last])
        return scores


def small_recurrent_net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """For whatever length the texts have."""
    return Recurrent(classes)
