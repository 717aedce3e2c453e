"""Which device is in which planted group, and which classes it may hold; what differs: ``fedclade.data.variations``."""

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.data.variations import find_module


def group_of_devices(weights: tuple[int, ...], devices: int) -> Ints:
    """Group number of each device; sizes in proportion to the weights (largest remainder), none empty."""
    exact = np.array(weights) * (devices / sum(weights))
    sizes = np.maximum(1, np.floor(exact)).astype(np.int64)
    while sizes.sum() > devices:
        sizes[np.argmax(np.where(sizes > 1, sizes - exact, -np.inf))] -= 1
    for group in np.argsort(-(exact - sizes), kind="stable")[: devices - sizes.sum()]:
        sizes[group] += 1
    return np.repeat(np.arange(len(weights)), sizes)


def groups_to_plant(config: Config) -> Ints:
    """The planted group of each device; all are one group where nothing is planted."""
    weights = config.incongruence.groups if config.incongruence.kind != "none" else (1,)
    return group_of_devices(weights, config.population.devices)


def allowed_classes(config: Config, classes: Ints, group: Ints) -> list[Ints]:
    """The classes that each device may hold: all that occur, unless what varies by group is that."""
    kind = config.incongruence.kind
    own = None if kind == "none" or ":" in kind else getattr(find_module(kind), "allowed_classes", None)
    found: list[Ints] = [classes] * len(group) if own is None else own(config, classes, group)
    return found
