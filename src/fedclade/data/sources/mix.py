"""MIX: devices of different data sets in one population, each set being a planted group; after PACFL's MIX-4.

``population.mix`` names the sets, all of them pools of images (Vahidian et al., arXiv 2209.10526, mix CIFAR-10, SVHN,
Fashion-MNIST and USPS). Images are scaled to the height and width of the largest, grey ones become coloured where any
set is, and class c of one set is class c of every other: models have as many outputs as the set of most classes.
Devices are divided among the sets by ``incongruence.groups``, or evenly; within a set its samples are dealt out as the
population section says.
"""

from dataclasses import replace

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.data.partition import deal
from fedclade.data.planted_groups import group_of_devices
from fedclade.data.source import Source, standardised


def read(config: Config) -> Source:
    """The samples of all sets, device by device; standardised by their common mean and deviation."""
    names, devices = config.population.mix, config.population.devices
    pools = [_pool(config, name) for name in names]
    weights = config.incongruence.groups if len(config.incongruence.groups) == len(names) else (1,) * len(names)
    if devices < len(names):
        raise UserError(
            f"population.devices = {devices}: must be at least {len(names)}, one for each of population.mix"
        )
    shape = tuple(max(pool.x.shape[axis] for pool in pools) for axis in (1, 2, 3))
    group = group_of_devices(weights, devices)
    samples, labels, owner = [], [], []
    for number, pool in enumerate(pools):
        mine = np.flatnonzero(group == number)
        part = config.population.model_copy(update={"devices": len(mine), "samples": None})
        dealt = deal(part, pool.y, pool.writer, [np.unique(pool.y)] * len(mine), config.run.seed)
        positions = np.concatenate(dealt)
        samples.append(scaled(pool.x[positions], shape))
        labels.append(pool.y[positions])
        owner.append(np.repeat(mine, [len(positions) for positions in dealt]))
    classes = max(pool.classes for pool in pools)
    mixed = Source(np.concatenate(samples), np.concatenate(labels), classes, device=np.concatenate(owner), group=group)
    return standardised(mixed.checked('population.source = "mix"'))


def _pool(config: Config, name: str) -> Source:
    from fedclade.data.sources import read_source  # which knows this module by its name

    if name == "mix":
        raise UserError("population.mix: names 'mix' itself; must name other sources")
    alone = config.population.model_copy(update={"source": name})
    pool = read_source(config.model_copy(update={"population": alone}))
    if pool.device is not None or pool.x.dtype != np.uint8 or pool.x.ndim != 4 or pool.numbers:
        raise UserError(f"population.mix: {name!r} is no pool of 8-bit images with classes, such as mnist5k or digits")
    return replace(pool, mean=(0.0,), std=(1.0,))


def scaled(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images of C×H×W by linear interpolation; grey ones are the same in every channel."""
    from scipy import ndimage

    channels, *sides = shape
    if images.shape[1] != channels:
        images = np.repeat(images[:, :1], channels, axis=1)
    factors = [wanted / side for wanted, side in zip(sides, images.shape[2:], strict=True)]
    if factors == [1.0, 1.0]:
        return images
    larger: np.ndarray = ndimage.zoom(images, (1, 1, *factors), order=1, mode="nearest", grid_mode=True)
    return larger
