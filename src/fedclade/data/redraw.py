"""More devices than there are images for: every device draws its own from one pool, as if nobody else did.

The pool is kept once for each planted group, as that group sees it, and devices are index lists into it. So 100,000
devices take the memory of their lists, about 250 bytes each, and not that of their images. An image is for training,
for validation or for testing whoever holds it: what a model is tested on, nobody trained on.
"""

import numpy as np

from fedclade.config import Config, PopulationConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.lists import Lists
from fedclade.core.random import generator
from fedclade.data.partition import device_sizes, held_out_of
from fedclade.data.planted_groups import allowed_classes
from fedclade.data.source import Source
from fedclade.data.variations import find_variation

UNLIMITED = 1 << 50  # images there are to hand out


def redrawn(config: Config, source: Source, group: Ints) -> tuple[Source, tuple[Lists, Lists, Lists]]:
    """The pool as every group sees it, and each device's training, validation and test share of it.

    What a device draws depends on its number, its size and its group alone.
    """
    population, seed = config.population, config.run.seed
    if source.device is not None:
        raise UserError(f"population.redraw: source {population.source} says itself which device holds what")
    sizes = _sizes(population, seed)
    if population.partition == "writer":
        kinds, allowed = _writers(population, source), None
    else:
        kinds = source.labels
        allowed = allowed_classes(config, np.unique(kinds), group)
    shelves = _shelves(kinds, config)
    lists: tuple[list[Ints], ...] = ([], [], [])
    for device, size in enumerate(sizes.tolist()):
        rng, start = generator(seed, "redraw", device), int(group[device]) * len(source.y)
        tested = min(max(1, round(population.test_share * size)), size - 1)
        validated = min(held_out_of(size, config.validation_share), size - tested - 1)
        counts = size - tested - validated, validated, tested
        wanted = _wanted(population, shelves, None if allowed is None else allowed[device], rng)
        for share, count, into in zip(shelves, counts, lists, strict=True):
            into.append(start + np.sort(share.draw(count, wanted, rng, again=allowed is not None)))
    vary = find_variation(config, source)
    views = [vary(source.x, source.y, number) for number in range(int(group.max()) + 1)]
    x, y = (np.concatenate(parts) for parts in zip(*views, strict=True))
    train, validation, test = (Lists.of(parts) for parts in lists)
    return Source(x, y, source.classes, mean=source.mean, std=source.std), (train, validation, test)


class _Shelf:
    """One share of the pool, sorted by kind: by class, or by writer."""

    def __init__(self, positions: Ints, kind: Ints, kinds: int) -> None:
        order = np.argsort(kind, kind="stable")
        self.positions, self.counts = positions[order], np.bincount(kind, minlength=kinds)
        self.starts = np.cumsum(self.counts) - self.counts

    def draw(self, count: int, wanted: Floats, rng: np.random.Generator, again: bool) -> Ints:
        """So many images, by what is wanted of each kind; the same one twice only if that is allowed (``again``)."""
        if not again:
            (kind,) = np.flatnonzero(wanted)
            chosen = rng.choice(self.counts[kind], min(count, self.counts[kind]), replace=False)
            return np.asarray(self.positions[self.starts[kind] + chosen])
        kinds = np.repeat(np.arange(len(wanted)), rng.multinomial(count, wanted))
        places = (rng.random(count) * self.counts[kinds]).astype(np.int64)
        return np.asarray(self.positions[self.starts[kinds] + places])


def _sizes(population: PopulationConfig, seed: int) -> Ints:
    if population.sizes == "equal" and population.samples is None:
        raise UserError(
            "population.redraw: set population.samples, how many images all devices hold together, "
            'or population.sizes = "power-law"'
        )
    return device_sizes(population, UNLIMITED, seed)


def _writers(population: PopulationConfig, source: Source) -> Ints:
    """Who wrote each image, numbered from 0; -1: somebody who wrote too little to be drawn."""
    if source.writer is None:
        raise UserError(f'population.partition = "writer": source {population.source} does not say who wrote what')
    _, writer, counts = np.unique(source.writer, return_inverse=True, return_counts=True)
    enough = counts >= max(population.min_samples, 3)
    if not enough.any():
        raise UserError(f"population.min_samples = {population.min_samples}: no writer wrote so many images")
    return np.asarray(np.where(enough, np.cumsum(enough) - 1, -1)[writer])


def _shelves(kinds: Ints, config: Config) -> tuple[_Shelf, _Shelf, _Shelf]:
    """Training, validation and test share of the pool: of every kind its part, but at least one image."""
    positions = np.flatnonzero(kinds >= 0)
    shuffled = generator(config.run.seed, "redraw-shares").permutation(positions)
    shuffled = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    kind = kinds[shuffled]
    count = np.bincount(kind)
    held = 1 if config.validation_share else 0
    if count[count > 0].min() < 2 + held:
        raise UserError(f"population.redraw: class {count.argmin()} has {count.min()} images, too few for three shares")
    place = np.arange(len(kind)) - (np.cumsum(count) - count)[kind]  # of an image among those of its kind
    tested = np.maximum(1, np.round(config.population.test_share * count)).astype(np.int64)
    validated = np.maximum(held, np.round(config.validation_share * count)).astype(np.int64)
    validated = np.minimum(validated, count - tested - 1)
    share = np.where(place < tested[kind], 2, np.where(place < (tested + validated)[kind], 1, 0))
    train, validation, test = (
        _Shelf(shuffled[share == number], kind[share == number], len(count)) for number in range(3)
    )
    return train, validation, test


def _wanted(
    population: PopulationConfig, shelves: tuple[_Shelf, ...], allowed: Ints | None, rng: np.random.Generator
) -> Floats:
    """How much of every kind a device wants: one writer, or classes as ``population.partition`` says."""
    kinds = len(shelves[0].counts)
    wanted = np.zeros(kinds)
    if allowed is None:
        wanted[rng.integers(kinds)] = 1.0
    elif population.partition == "dirichlet":
        wanted[allowed] = rng.dirichlet(np.full(len(allowed), population.alpha))
    elif population.partition == "classes":
        some = rng.choice(allowed, min(population.classes_per_device, len(allowed)), replace=False)
        wanted[some] = 1.0 / len(some)
    else:
        wanted[allowed] = shelves[0].counts[allowed] / shelves[0].counts[allowed].sum()
    return wanted
