"""What each device holds: one shared array of samples, devices are index lists into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Inputs, Ints, Targets
from fedclade.core.errors import UserError
from fedclade.core.lists import Lists
from fedclade.core.task import Task
from fedclade.data.partition import deal, given_shares, split_shares
from fedclade.data.planted_groups import allowed_classes, groups_to_plant
from fedclade.data.redraw import redrawn
from fedclade.data.source import Source, full_scale, is_tokens, standardised
from fedclade.data.sources import read_source
from fedclade.data.variations import find_variation

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
    labels: Targets  # classes, or N × outputs numbers, standardised as the task says
    train: Sequence[Ints]  # per device, positions in images
    validation: Sequence[Ints]  # held out for the server's questions; may be empty
    test: Sequence[Ints]
    group: Ints  # planted group of each device: the truth clustering is scored against; all 0 where there is none
    task: Task
    mean: tuple[float, ...]  # one, or one for each channel or feature, of samples divided by full_scale
    std: tuple[float, ...]

    @property
    def devices(self) -> int:
        """K."""
        return len(self.train)

    @property
    def samples(self) -> Ints:
        """D_k: training samples per device."""
        return _lengths(self.train)

    @property
    def held_out(self) -> Ints:
        """Samples per device that are held out for the server's questions."""
        return _lengths(self.validation)

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


def _lengths(lists: Sequence[Ints]) -> Ints:
    return lists.lengths if isinstance(lists, Lists) else np.array([len(mine) for mine in lists])


def build_population(config: Config) -> Population:
    """Read the source, deal it out unless its devices are given, plant the groups."""
    return populate(config, read_source(config))


def populate(config: Config, source: Source, seen_by: Ints | None = None) -> Population:
    """Give each device its samples of a checked source, as its planted group sees them, in three shares.

    ``seen_by`` are other groups as which the devices see the same samples.
    """
    seed = config.run.seed
    if config.population.standardise:
        source = standardised(source)
    if config.population.redraw:
        group = groups_to_plant(config) if seen_by is None else seen_by
        pool, lists = redrawn(config, source, group)
        return _population(source, pool.x, pool.y, lists, group)
    group, dealt = _deal_out(config, source) if source.device is None else _take_over(config, source)
    group = group if seen_by is None else seen_by
    vary = find_variation(config, source)
    images = np.empty((sum(map(len, dealt)), *source.x.shape[1:]), dtype=source.x.dtype)
    labels = np.empty((len(images), *source.y.shape[1:]), dtype=source.y.dtype)
    shares, end = [], 0
    for device, positions in enumerate(dealt):
        mine = slice(end, end := end + len(positions))
        images[mine], labels[mine] = vary(source.x[positions], source.y[positions], int(group[device]))
        places = np.arange(mine.start, mine.stop)
        if source.split is None:
            shares.append(split_shares(places, config.population.test_share, config.validation_share, seed, device))
        else:
            shares.append(given_shares(places, source.split[positions], validation_share_of_training(config), seed))
    parts = [Lists.of(each) for each in zip(*shares, strict=True)]
    return _population(source, images, labels, parts, group if source.group is None else source.group)


def _population(source: Source, x: Inputs, y: Targets, lists: Sequence[Lists], group: Ints) -> Population:
    """Of what devices hold; numbers are standardised by their mean and deviation, unless the source says by which."""
    task = Task(source.classes)
    if source.numbers:
        deviation = np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
        mean, std = source.y_mean or y.mean(axis=0).tolist(), source.y_std or deviation.tolist()
        task = Task(source.classes, tuple(mean), tuple(std))
        y = task.standardised(y)
    train, validation, test = lists
    return Population(x, y, train, validation, test, group, task, source.mean, source.std)


def validation_share_of_training(config: Config) -> float:
    """What is held out for split tests of samples from which the test share is already gone."""
    return config.validation_share / (1.0 - config.population.test_share)


def _deal_out(config: Config, source: Source) -> tuple[Ints, list[Ints]]:
    """Of a pool: each device's group, and the positions of its samples."""
    group = groups_to_plant(config)
    labels = source.labels
    allowed = allowed_classes(config, np.unique(labels), group)
    return group, deal(config.population, labels, source.writer, allowed, config.run.seed)


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
    return groups_to_plant(config), np.split(by_device, ends[:-1])
