"""The work that is measured: devices with random images, and a model."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedclade import config as configuration
from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.task import Task
from fedclade.data import Population
from fedclade.data.source import standard_axes
from fedclade.models import build_model

SHAPE, CLASSES = (1, 28, 28), 62  # as FEMNIST
MEAN, STD = 0.5, 0.29  # of uniform noise


def work_config(model: str, devices: int, epochs: int) -> Config:
    """A run of conventional federated learning by everybody."""
    return configuration.load(
        {
            "run": {"rounds": 200, "evaluate_every": 10**6},
            "population": {"devices": devices},
            "model": {"name": model, "hidden": 64},
            "training": {"epochs": epochs, "batch_size": 32, "learning_rate": 0.01},
            "scheduling": {"policy": "full"},
            "clustering": {"method": "none"},
        }
    )


def random_population(devices: int, images: int) -> Population:
    """Noise with random labels: a step costs the same on it as on real images. Test images are the training images."""
    rng = np.random.default_rng(0)
    count = devices * images
    mine = tuple(np.arange(k * images, (k + 1) * images) for k in range(devices))
    return Population(
        images=rng.integers(0, 256, (count, *SHAPE), dtype=np.uint8),
        labels=rng.integers(0, CLASSES, count),
        train=mine,
        validation=tuple(np.arange(0) for _ in mine),
        test=mine,
        group=np.zeros(devices, dtype=np.int64),
        task=Task(CLASSES),
        mean=(MEAN,),
        std=(STD,),
    )


def write_work(folder: Path, config: Config, population: Population, rounds: int, evaluate: bool = False) -> None:
    """What contestants read: for fedclade its config, for the others tensors and a module with the same weights.

    With ``evaluate`` every device tests the model after every round.
    """
    (folder / "config.toml").write_text(configuration.to_toml(config), "utf-8")
    task = {
        "epochs": config.training.epochs,
        "batch_size": config.training.batch_size,
        "learning_rate": config.training.learning_rate,
        "rounds": rounds,
        "evaluate": evaluate,
    }
    size = {"devices": population.devices, "images": len(population.train[0])}
    (folder / "work.json").write_text(json.dumps({"task": task, **size}))
    data = {"train": _tensors(population, population.train), "test": _tensors(population, population.test)}
    torch.save(data, folder / "data.pt")
    shape, outputs = population.images.shape[1:], population.task.outputs
    torch.save(build_model(config.model, shape, outputs, config.run.seed), folder / "model.pt")


def _tensors(population: Population, share: Sequence[Ints]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each device's images, standardised, and labels."""
    axes = standard_axes(population.images.shape[1:])
    mean, std = (torch.tensor(values).reshape(axes) for values in (population.mean, population.std))
    images = (torch.from_numpy(population.images).float() / population.full_scale - mean) / std
    labels = torch.from_numpy(population.labels)
    return [(images[mine], labels[mine]) for mine in map(torch.from_numpy, share)]


def population_in(folder: Path) -> Population:
    """The population of a written work of random images."""
    task = json.loads((folder / "work.json").read_text())
    return random_population(task["devices"], task["images"])
