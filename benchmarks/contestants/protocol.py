"""What all contestants share: the same work, and one round for each line on standard input.

A contestant is a script that is given the folder of the work, does its start-up, and then answers each line with one
line of JSON: the seconds of the round, the samples it trained on, and how far the model moved. So the driver can take
turns between contestants. Needs torch alone: it also runs where fedclade is not installed.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Work:
    """One round: E epochs of mini-batch SGD on each device's images, then the mean of the models.

    ``train`` and ``test`` are each device's standardised images and their labels. With ``evaluate`` every device
    tests the mean, too.
    """

    train: list[tuple[torch.Tensor, torch.Tensor]]
    test: list[tuple[torch.Tensor, torch.Tensor]]
    epochs: int
    batch_size: int
    learning_rate: float
    rounds: int
    evaluate: bool
    threads: int
    processes: int
    folder: str

    def model(self) -> nn.Module:
        """The module with its initial weights."""
        module = torch.load(Path(self.folder, "model.pt"), weights_only=False)
        assert isinstance(module, nn.Module)
        return module


@cache
def work(folder: str, setting: str) -> Work:
    """The work of a folder in a setting; sets the number of torch threads."""
    task = json.loads(Path(folder, "work.json").read_text())["task"] | json.loads(setting)
    torch.set_num_threads(task["threads"])
    return Work(**torch.load(Path(folder, "data.pt")), folder=folder, **task)


@cache
def process_module(folder: str, setting: str) -> nn.Module:
    """The one module of a process that trains many devices."""
    return work(folder, setting).model()


def work_from_command_line() -> Work:
    return work(sys.argv[1], sys.argv[2])


def flat(module: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def batches(count: int, size: int) -> tuple[torch.Tensor, ...]:
    """One epoch: random batches of positions."""
    return torch.split(torch.randperm(count), size)


def train_as_usual(module: nn.Module, images: torch.Tensor, labels: torch.Tensor, work: Work) -> int:
    """The plain torch loop as usually written; gives the number of samples trained on."""
    optimizer = torch.optim.SGD(module.parameters(), lr=work.learning_rate)
    module.train()
    samples = 0
    for _ in range(work.epochs):
        for batch in batches(len(images), work.batch_size):
            optimizer.zero_grad()
            loss = functional.cross_entropy(module(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            samples += len(batch)
    return samples


@torch.no_grad()
def tested(module: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Accuracy and loss of a module on a device's images."""
    module.eval()
    scores = module(images)
    return float((scores.argmax(1) == labels).float().mean()), float(functional.cross_entropy(scores, labels))


class Turns:
    """The contestant's side of the conversation. Whatever else is printed goes to standard error."""

    def __init__(self, start: torch.Tensor) -> None:
        self._weights = start
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._began = 0.0

    def wait(self) -> str:
        """For the driver's word; an empty one means the end."""
        word = sys.stdin.readline()
        self._began = time.perf_counter()
        return word

    def done(self, samples: int, weights: torch.Tensor) -> None:
        """A round is over."""
        seconds = time.perf_counter() - self._began
        moved = float((weights - self._weights).norm())
        self._weights = weights
        print(json.dumps({"seconds": seconds, "samples": samples, "moved": moved}), file=self._answers)
