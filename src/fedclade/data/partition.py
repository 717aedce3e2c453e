"""Who holds which images: sizes, then labels, then the split into training and test share.

No image goes to two devices. Devices are served in an order keyed by the seed, so that whoever comes last, when classes
run out, is unrelated to the planted groups.
"""

import numpy as np

from fedclade.config import PopulationConfig
from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.random import generator
from fedclade.data.checks import SPLITS

ENOUGH_HELD_OUT = 40  # images, if that is not more than a fifth: with fewer, few groups can be seen


def device_sizes(config: PopulationConfig, available: int, seed: int) -> Ints:
    """Images per device: equal, or by a power law between min_samples and max_samples, compressed to what there is.

    With ``deal_all`` both ends of the power law are multiplied until it takes all there is.
    """
    total = min(available, config.samples or available)
    devices, floor = config.devices, config.min_samples
    if devices * floor > total:
        raise UserError(
            f"population.devices = {devices}: {total} images serve at most {total // floor} devices of "
            f"min_samples = {floor}"
        )
    if config.sizes == "equal":
        return np.full(devices, total // devices, dtype=np.int64)
    drawn = _power_law(generator(seed, "sizes").random(devices), floor, config.max_samples, config.power_exponent)
    if config.deal_all and drawn.sum() < total:
        return np.asarray(drawn * (total / drawn.sum()), dtype=np.int64)
    excess = drawn - floor
    if drawn.sum() > total:
        excess *= (total - devices * floor) / excess.sum()
    return floor + excess.astype(np.int64)


def _power_law(uniform: np.ndarray, low: float, high: float, exponent: float) -> np.ndarray:
    """Inverse of the distribution p(n) ~ n^-exponent on [low, high]."""
    power, ratio = 1.0 - exponent, high / low
    if abs(power) < 1e-9:
        return np.asarray(low * ratio**uniform)
    return np.asarray(low * (1.0 + uniform * (ratio**power - 1.0)) ** (1.0 / power))


def deal(config: PopulationConfig, labels: Ints, writers: Ints | None, allowed: list[Ints], seed: int) -> list[Ints]:
    """For each device the positions of its images. ``allowed[k]`` are the classes device k may hold."""
    if config.partition == "writer":
        return _by_writer(config, writers, seed)
    sizes = device_sizes(config, len(labels), seed)
    pools = _class_pools(labels, seed)
    supply = np.array([len(pool) for pool in pools])
    demand, floors = _class_demand(config, sizes, allowed, supply, seed)
    starts, reserved = np.zeros_like(supply), floors.sum(axis=0)
    dealt: list[Ints] = [np.zeros(0, dtype=np.int64)] * config.devices
    for device in generator(seed, "deal").permutation(config.devices):
        reserved -= floors[device]  # min_samples of everybody still to come stay in the pools
        others = allowed[device] if config.partition != "classes" else allowed[device][:0]
        counts = _affordable(demand[device], np.maximum(supply - starts - reserved, 0), others)
        parts = [pools[c][starts[c] : starts[c] + counts[c]] for c in np.flatnonzero(counts)]
        starts += counts
        dealt[device] = np.sort(np.concatenate(parts)) if parts else dealt[device]
        if len(dealt[device]) < config.min_samples:
            raise UserError(
                f"population.devices = {config.devices}: the classes of device {device} ran out at "
                f"{len(dealt[device])} images; take fewer devices, fewer samples or a smaller min_samples "
                f"(= {config.min_samples})"
            )
    return dealt


def _class_pools(labels: Ints, seed: int) -> list[Ints]:
    rng = generator(seed, "pools")
    return [rng.permutation(np.flatnonzero(labels == c)) for c in range(int(labels.max()) + 1)]


def _class_demand(
    config: PopulationConfig, sizes: Ints, allowed: list[Ints], supply: Ints, seed: int
) -> tuple[Ints, Ints]:
    """How many images of each class each device would like, and min_samples of them: devices × classes."""
    demand = np.zeros((config.devices, len(supply)), dtype=np.int64)
    for device, classes in enumerate(allowed):
        rng = generator(seed, "labels", device)
        if config.partition == "iid":
            shares = supply[classes] / supply[classes].sum()
        elif config.partition == "dirichlet":
            shares = rng.dirichlet(np.full(len(classes), config.alpha))
        else:
            if config.classes_per_device > len(classes):
                raise UserError(
                    f"population.classes_per_device = {config.classes_per_device}: device {device} has only "
                    f"{len(classes)} classes to choose from"
                )
            chosen = rng.choice(len(classes), config.classes_per_device, replace=False)
            shares = np.isin(np.arange(len(classes)), chosen) / config.classes_per_device
        demand[device, classes] = rng.multinomial(sizes[device], shares)
    floors = np.diff(np.cumsum(demand, axis=1) * config.min_samples // sizes[:, None], axis=1, prepend=0)
    if config.partition == "classes":  # a popular class is shared out in proportion, not first come first served
        each = supply / np.maximum(demand.sum(axis=0), 1)  # images that there are for one that is wanted
        share = min(1.0, (config.samples or np.inf) / supply.sum())
        each = each * share if config.deal_all else np.minimum(1.0, each)
        demand = np.maximum(np.floor(demand * each).astype(np.int64), floors)
    return demand, floors


def _affordable(wanted: Ints, left: Ints, others: Ints) -> Ints:
    """What is wanted as far as it is there; the rest from the classes wanted most, then from those with most left."""
    counts = np.minimum(wanted, left)
    short = int(wanted.sum() - counts.sum())
    most_wanted = np.argsort(-wanted, kind="stable")[: np.count_nonzero(wanted)]
    for c in [*most_wanted, *others[np.argsort(-left[others], kind="stable")]]:
        more = min(short, int(left[c] - counts[c]))
        counts[c] += more
        short -= more
    return counts


def _by_writer(config: PopulationConfig, writers: Ints | None, seed: int) -> list[Ints]:
    """One writer a device, drawn from those who wrote enough."""
    if writers is None:
        raise UserError(
            f'population.partition = "writer": source {config.source} does not say who wrote what; use one that does, '
            "such as femnist"
        )
    names, counts = np.unique(writers, return_counts=True)
    enough = names[counts >= config.min_samples]
    if config.devices > len(enough):
        raise UserError(
            f"population.devices = {config.devices}: only {len(enough)} writers wrote at least min_samples = "
            f"{config.min_samples} images"
        )
    chosen = generator(seed, "writers").choice(enough, config.devices, replace=False)
    return [np.flatnonzero(writers == writer) for writer in chosen]


def split_shares(
    positions: Ints, test_share: float, validation_share: float, seed: int, device: int
) -> tuple[Ints, Ints, Ints]:
    """Training, validation and test share of one device; training and test have at least one image each.

    Where there is a validation share, a device with few images holds out more than that, or else it had no voice in a
    split test: 40, if that is not more than a fifth of its own. The test share does not depend on the validation share.
    """
    shuffled = generator(seed, "test", device).permutation(positions)
    tested = min(max(1, round(test_share * len(shuffled))), len(shuffled) - 1)
    held_out = min(held_out_of(len(shuffled), validation_share), len(shuffled) - tested - 1)
    test, validation, train = np.split(shuffled, [tested, tested + held_out])
    return np.sort(train), np.sort(validation), np.sort(test)


def held_out_of(count: int, share: float) -> int:
    """How many of a device's images are held out for split tests."""
    return max(round(share * count), min(ENOUGH_HELD_OUT, count // 5), 1) if share else 0


def validation_positions(positions: Ints, share: float, seed: int) -> Ints:
    """Those of some training images that are held out for split tests, at least one of them left."""
    shuffled = generator(seed, "validation").permutation(positions)
    return np.sort(shuffled[: min(held_out_of(len(shuffled), share), len(shuffled) - 1)])


def given_shares(positions: Ints, split: Ints, of_training: float, seed: int) -> tuple[Ints, Ints, Ints]:
    """Training, validation and test share of one device whose source says which sample is in which (see SPLITS).

    Where it says so of none that it is for validation, ``of_training`` of the training samples are held out.
    """
    train, validation, test = (positions[split == number] for number in range(len(SPLITS)))
    if of_training and not len(validation):
        validation = validation_positions(train, of_training, seed)
        train = np.setdiff1d(train, validation)
    return train, validation, test
