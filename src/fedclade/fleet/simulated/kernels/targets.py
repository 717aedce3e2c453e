"""What a model's outputs are held against: classes, or numbers; see ``fedclade.core.task``.

The gradient of either loss by the outputs is what the outputs say less what they should say. For classes the former is
a softmax, the latter 1 for the right class and else 0; for numbers both are the numbers. So every kernel learns both.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch.nn import functional

from fedclade.core.task import Task


class Targets(Protocol):
    """How a kind of targets is learnt."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean over the samples."""
        ...

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each sample."""
        ...

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each sample; their mean is the score of a device."""
        ...

    def wanted(self, targets: torch.Tensor) -> torch.Tensor:
        """What outputs should say, samples × outputs."""
        ...

    def said(self, outputs: torch.Tensor, axis: int) -> torch.Tensor:
        """What outputs say, in memory that may be written to; an axis is that of the outputs."""
        ...

    def say(self, outputs: torch.Tensor, axis: int, out: torch.Tensor) -> Callable[[], object]:
        """The operation that writes what outputs say into ``out``."""
        ...


class Classes:
    """Cross-entropy; a sample's score is 1 if its class has the highest output, else 0."""

    def __init__(self, count: int) -> None:
        self._count = count

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean over the samples."""
        return functional.cross_entropy(outputs, targets)

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each sample."""
        return functional.cross_entropy(outputs, targets, reduction="none")

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 or 0."""
        return outputs.argmax(1) == targets

    def wanted(self, targets: torch.Tensor) -> torch.Tensor:
        """1 for the class, else 0."""
        return functional.one_hot(targets, self._count).float()

    def said(self, outputs: torch.Tensor, axis: int) -> torch.Tensor:
        """Probabilities."""
        return torch.softmax(outputs, axis)

    def say(self, outputs: torch.Tensor, axis: int, out: torch.Tensor) -> Callable[[], object]:
        """Probabilities."""
        return partial(torch.softmax, outputs, axis, out=out)


class Numbers:
    """Half the squared error, added up over the numbers; a sample's score is 1 less the mean squared error."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean over the samples."""
        return self.losses(outputs, targets).mean()

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each sample."""
        return (outputs - targets).square().sum(1) / 2

    def scores(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """From 1 downwards: targets are standardised, so that the mean of these is R²."""
        return 1.0 - (outputs - targets).square().mean(1)

    def wanted(self, targets: torch.Tensor) -> torch.Tensor:
        """The numbers."""
        return targets

    def said(self, outputs: torch.Tensor, axis: int) -> torch.Tensor:
        """The outputs."""
        return outputs

    def say(self, outputs: torch.Tensor, axis: int, out: torch.Tensor) -> Callable[[], object]:
        """The outputs."""
        return partial(out.copy_, outputs)


def targets_of(task: Task) -> Targets:
    """How a task's targets are learnt."""
    return Numbers() if task.numbers else Classes(task.outputs)
