"""What each device holds: one shared array of samples, devices are index lists into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Inputs, Ints
from fedclade.core.errors import UserError
from fedclade.core.lists import Lists
from fedclade.data.partition import deal, given_shares, split_shares
from fedclade.data.planted_groups import allowed_classes, group_of_devices, plant
from fedclade.data.redraw import redrawn
from fedclade.data.source import Source, full_scale, is_tokens, standardised
from fedclade.data.sources import read_source

__all__ = ["Population", "Source", "build_population", "populate", "read_source"]


class Sample(NamedTuple):
    """What one sample looks like, which is all that a model is built from."""

    shape: tuple[int, ...]  # channels, height, width; 1, 1, features
    tokens: bool = False  # whether its numbers are token ids


@dataclass(frozen=True)
class Population:
    """All devices' data: index lists into one shared array.

    Each device's samples lie side by side in it, unless devices draw from a common pool (``population.redraw``).
    """

    images: Inputs  # N × C × H × W, or of more axes; features and token ids have C = H = 1
    labels: Ints
    train: Sequence[Ints]  # per device, positions in images
    validation: Sequence[Ints]  # held out for the server's questions; may be empty
    test: Sequence[Ints]
    group: Ints  # planted group of each device: the truth clustering is scored against; all 0 where there is none
    classes: int
    mean: tuple[float, ...]  # one, or one for each channel or feature, of samples divided by full_scale
    std: tuple[float, ...]

    @property
    def devices(self) -> int:
        """K."""
        return len(self.train)

    @property
    def samples(self) -> Ints:
        """D_k: training samples per device."""
        return self.train.lengths if isinstance(self.train, Lists) else np.array([len(mine) for mine in self.train])

    @property
    def full_scale(self) -> float:
        """What a stored number is divided by for the model: 8-bit pixels come to [0, 1], others stay as they are."""
        return full_scale(self.images)

    @property
    def sample(self) -> Sample:
        """What one sample looks like."""
        return Sample(self.images.shape[1:], is_tokens(self.images))

    @property
    def bits_per_sample(self) -> int:
        """Of one sample as it is stored."""
        return int(np.prod(self.images.shape[1:])) * self.images.itemsize * 8


def build_population(config: Config) -> Population:
    """Read the source, deal it out unless its devices are given, plant the groups."""
    return populate(config, read_source(config))


def populate(config: Config, source: Source) -> Population:
    """Give each device its samples of a checked source, as its planted group sees them, in three shares."""
    seed = config.run.seed
    if config.population.standardise:
        source = standardised(source)
    if config.population.redraw:
        group = _groups_to_plant(config)
        pool, lists = redrawn(config, source, group)
        return Population(pool.x, pool.y, *lists, group, source.classes, source.mean, source.std)
    group, dealt = _deal_out(config, source) if source.device is None else _take_over(config, source)
    images = np.empty((sum(map(len, dealt)), *source.x.shape[1:]), dtype=source.x.dtype)
    labels = np.empty(len(images), dtype=np.int64)
    shares, end = [], 0
    for device, positions in enumerate(dealt):
        mine = slice(end, end := end + len(positions))
        images[mine], labels[mine] = plant(
            config.incongruence, source.x[positions], source.y[positions], int(group[device]), source.classes, seed
        )
        places = np.arange(mine.start, mine.stop)
        if source.split is None:
            shares.append(split_shares(places, config.population.test_share, config.validation_share, seed, device))
        else:
            shares.append(given_shares(places, source.split[positions], validation_share_of_training(config), seed))
    train, validation, test = (Lists.of(parts) for parts in zip(*shares, strict=True))
    truth = group if source.group is None else source.group
    return Population(images, labels, train, validation, test, truth, source.classes, source.mean, source.std)


def validation_share_of_training(config: Config) -> float:
    """What is held out for split tests of samples from which the test share is already gone."""
    return config.validation_share / (1.0 - config.population.test_share)


def _deal_out(config: Config, source: Source) -> tuple[Ints, list[Ints]]:
    """Of a pool: each device's group, and the positions of its samples."""
    group = _groups_to_plant(config)
    allowed = allowed_classes(config.incongruence, np.unique(source.y), group, config.run.seed)
    return group, deal(config.population, source.y, source.writer, allowed, config.run.seed)


def _take_over(config: Config, source: Source) -> tuple[Ints, list[Ints]]:
    """The same of a source whose devices are given: their number and their samples are the source's."""
    population, kind = config.population, config.incongruence.kind
    given = int(source.device.max()) + 1
    if population.devices != given:
        raise UserError(
            f"population.devices = {population.devices}: source {population.source} gives {given} devices; set {given}"
        )
    if kind != "none" and source.group is not None:
        raise UserError(f'incongruence.kind = "{kind}": source {population.source} has groups of its own; set "none"')
    if kind == "disjoint-classes":
        raise UserError(f'incongruence.kind = "{kind}": source {population.source} says itself which device holds what')
    by_device = np.argsort(source.device, kind="stable")
    ends = np.cumsum(np.bincount(source.device))
    return _groups_to_plant(config), np.split(by_device, ends[:-1])


def _groups_to_plant(config: Config) -> Ints:
    weights = config.incongruence.groups if config.incongruence.kind != "none" else (1,)
    return group_of_devices(weights, config.population.devices)
