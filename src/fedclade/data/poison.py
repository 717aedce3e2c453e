"""Hostile devices that spoil what they hold: wrong labels, or a backdoor. They train and answer as others do."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedclade.config import AttackConfig
from fedclade.core.arrays import Ints
from fedclade.core.random import generator
from fedclade.data import Population

POISONED_SHARE = 0.5  # of the training images of a device with a backdoor
TRIGGER_SIDE = 4  # pixels of the bright square in the last corner that opens the backdoor
TARGET = 0  # the class that it leads to


def hostile_devices(attack: AttackConfig, devices: int, seed: int) -> Ints:
    """Which devices are hostile: drawn by the seed, whatever the attack is."""
    return np.sort(generator(seed, "hostile").permutation(devices)[: round(attack.share * devices)])


def poisoned(population: Population, attack: AttackConfig, seed: int) -> Population:
    """With the data of hostile devices spoilt, in copies of their own; test data are as they were.

    Wrong labels are all of the device's, also those that it judges models by; a backdoor is in its training images.
    """
    spoilt = {"label-flip": ("train", "validation"), "backdoor": ("train",)}.get(attack.kind, ())
    images, labels, end = [population.images], [population.labels], len(population.images)
    shares: dict[str, Any] = {share: list(getattr(population, share)) for share in spoilt}
    for positions in shares.values():
        for device in hostile_devices(attack, population.devices, seed).tolist():
            mine, right = population.images[positions[device]], population.labels[positions[device]].copy()
            if attack.kind == "label-flip":
                right = -right if population.task.numbers else population.task.outputs - 1 - right
            else:
                order = generator(seed, "backdoor", device).permutation(len(mine))
                chosen = order[: round(POISONED_SHARE * len(mine))]
                mine, right[chosen] = mine.copy(), TARGET
                mine[chosen] = triggered(mine[chosen])
            positions[device] = np.arange(end, end := end + len(mine))
            images.append(mine)
            labels.append(right)
    if not spoilt:
        return population
    changed: dict[str, Any] = {share: tuple(positions) for share, positions in shares.items()}
    changed |= {"images": np.concatenate(images), "labels": np.concatenate(labels)}
    return replace(population, **changed)


def triggered(images: np.ndarray) -> np.ndarray:
    """Images with the backdoor's trigger in them: a bright square in the last corner."""
    stamped = images.copy()
    bright = np.iinfo(images.dtype).max if images.dtype.kind in "iu" else images.max(initial=1.0)
    stamped[..., -TRIGGER_SIDE:, -TRIGGER_SIDE:] = bright
    return stamped
