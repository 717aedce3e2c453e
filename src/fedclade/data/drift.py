"""Drift: from one round on some devices hold other data than before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.random import generator
from fedclade.core.task import Task
from fedclade.data import Population


@dataclass(frozen=True)
class Drift:
    """Who changes, when, and what everybody holds afterwards.

    ``population`` has a row for every device as it is at first. What devices change to is in further rows, or, where
    two swap their data, in each other's.
    """

    round: int  # the first with the new data
    devices: Ints  # those that change, ascending
    group_before: Ints  # planted group of every device
    group_after: Ints
    row_after: Ints  # for every device the row of the population that is its own from then on
    population: Population

    def rows(self, round_: int) -> Ints:
        """For every device the row of the population that it holds in a round."""
        return self.row_after if round_ >= self.round else np.arange(len(self.row_after))

    def group(self, round_: int) -> Ints:
        """The planted group of every device in a round."""
        return self.group_after if round_ >= self.round else self.group_before

    def samples(self, round_: int) -> Ints:
        """D_k in a round."""
        return self.population.samples[self.rows(round_)]

    def told(self, round_: int) -> Mapping[int, Mapping[str, int]]:
        """What is to be told of the devices that change in a round: from which group to which."""
        pairs = zip(self.group_before.tolist(), self.group_after.tolist(), strict=True)
        changes = [{"from": before, "to": after} for before, after in pairs]
        return {device: changes[device] for device in self.devices.tolist() if round_ == self.round}


def drift_of(config: Config, population: Population, replanted: Callable[[Ints], Population]) -> Drift | None:
    """What the section ``drift`` says of a population; None where nothing changes.

    ``replanted`` gives the same population as if each device were in the group that it is told.
    """
    kind, count, seed = config.drift.kind, population.devices, config.run.seed
    if kind == "none":
        return None
    order = generator(seed, "drift").permutation(count)
    wanted = max(1, round(config.drift.share * count))
    if kind == "swap":
        return _swapped(config.drift.round, population, _pairs(order, population.group, max(1, wanted // 2)))
    devices = np.sort(order[:wanted])
    group = population.group.copy()
    group[devices] = (group[devices] + 1) % len(config.incongruence.groups)
    row_after = np.arange(count)
    row_after[devices] = count + np.arange(len(devices))
    extended = _extended(population, devices, replanted(group))
    return Drift(config.drift.round, devices, population.group, group, row_after, extended)


def _extended(population: Population, devices: Ints, after: Population) -> Population:
    """With one more row for each of the devices: its samples as they are in the population ``after``."""
    images, labels = list[Any]([population.images]), list[Any]([population.labels])
    shares: dict[str, list[Ints]] = {name: list(getattr(population, name)) for name in ("train", "validation", "test")}
    end = len(population.labels)
    for device in devices.tolist():
        for name, rows in shares.items():
            mine = getattr(after, name)[device]
            images.append(after.images[mine])
            labels.append(_as_learnt(after.labels[mine], after.task, population.task))
            rows.append(np.arange(end, end := end + len(mine)))
    changed: dict[str, Any] = {name: tuple(rows) for name, rows in shares.items()}
    changed |= {"images": np.concatenate(images), "labels": np.concatenate(labels)}
    return replace(population, group=np.append(population.group, after.group[devices]), **changed)


def _as_learnt(targets: np.ndarray, before: Task, after: Task) -> np.ndarray:
    """Numbers that are standardised in one way, standardised in another."""
    return after.standardised(before.restored(targets)) if before.numbers else targets


def _pairs(order: Ints, group: Ints, wanted: int) -> list[tuple[int, int]]:
    """So many pairs of devices of different groups, if there are so many; of any where there is one group only."""
    any_two, free = len(np.unique(group)) == 1, order.tolist()
    pairs = list[tuple[int, int]]()
    while free and len(pairs) < wanted:
        one = free.pop(0)
        other = next((device for device in free if any_two or group[device] != group[one]), None)
        if other is not None:
            free.remove(other)
            pairs.append((one, other))
    return pairs


def _swapped(round_: int, population: Population, pairs: list[tuple[int, int]]) -> Drift:
    """The devices of each pair hold each other's data."""
    row_after = np.arange(population.devices)
    for one, other in pairs:
        row_after[[one, other]] = other, one
    devices = np.flatnonzero(row_after != np.arange(population.devices))
    return Drift(round_, devices, population.group, population.group[row_after], row_after, population)
