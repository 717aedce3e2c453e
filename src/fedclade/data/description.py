"""What a source holds, in a few numbers: what one wants to see of data before anybody trains on them."""

from dataclasses import dataclass

import numpy as np

from fedclade.core.arrays import Ints
from fedclade.data.checks import SPLITS
from fedclade.data.source import Source, is_features, moments

MOST_BARS = 8  # of the histogram of sizes
FEW_SAMPLES = 10  # a device with fewer hardly says anything about its model
UNEVEN = 10.0  # features whose deviations differ by more than this factor should be standardised


@dataclass(frozen=True)
class Bar:
    """One bar of the histogram: how many devices have from ``least`` to ``most`` samples."""

    least: int
    most: int
    devices: int


@dataclass(frozen=True)
class Spread:
    """What the numbers are like that a model is to tell."""

    least: float
    most: float
    mean: float
    deviation: float


@dataclass(frozen=True)
class Devices:
    """What the devices hold, where the source says whose each sample is."""

    count: int
    samples_min: int
    samples_median: float
    samples_max: int
    sizes: tuple[Bar, ...]
    classes_min: int  # that a device has samples of; of numbers: tenths of them
    classes_max: int
    label_skew: float  # 0: every device has all devices' mix of these; towards 1: each has its own
    groups: tuple[int, ...] | None  # devices of each planted group; None where there is no truth
    split: dict[str, int] | None  # samples of each share; None where the config decides


@dataclass(frozen=True)
class Description:
    """A whole source."""

    samples: int
    shape: tuple[int, ...]  # of one sample: channels, height, width; 1 × 1 × features if it is no image
    dtype: str
    memory_bytes: int
    value_min: float
    value_max: float
    targets: str  # classes or numbers
    classes: int | None  # None where there are numbers
    class_samples: tuple[int, ...] | None
    numbers: tuple[Spread, ...] | None  # one for each of the numbers that a sample has; None where it has a class
    devices: Devices | None  # None: a pool, which the config deals out
    notes: tuple[str, ...]  # what is worth a look


def describe(source: Source) -> Description:
    """The description of a checked source."""
    x, counts = source.x, None if source.numbers else np.bincount(source.y, minlength=source.classes)
    devices = None if source.device is None else _devices(source)
    return Description(
        samples=len(x),
        shape=x.shape[1:],
        dtype=str(x.dtype),
        memory_bytes=x.nbytes,
        value_min=float(x.min()),
        value_max=float(x.max()),
        targets="numbers" if source.numbers else "classes",
        classes=None if source.numbers else source.classes,
        class_samples=None if counts is None else tuple(counts.tolist()),
        numbers=_spreads(source.y) if source.numbers else None,
        devices=devices,
        notes=tuple(_notes(source, counts, devices)),
    )


def _spreads(y: np.ndarray) -> tuple[Spread, ...]:
    return tuple(Spread(*(float(f(one)) for f in (np.min, np.max, np.mean, np.std))) for one in y.T)


def _devices(source: Source) -> Devices:
    sizes, known = np.bincount(source.device), source.split is not None
    fewest, most, skew = _labels_of_devices(source, sizes)
    return Devices(
        count=len(sizes),
        samples_min=int(sizes.min()),
        samples_median=float(np.median(sizes)),
        samples_max=int(sizes.max()),
        sizes=_histogram(sizes),
        classes_min=fewest,
        classes_max=most,
        label_skew=skew,
        groups=None if source.group is None else tuple(np.unique(source.group, return_counts=True)[1].tolist()),
        split={name: int((source.split == number).sum()) for number, name in enumerate(SPLITS)} if known else None,
    )


def _labels_of_devices(source: Source, sizes: Ints) -> tuple[int, int, float]:
    """The fewest and the most classes on a device, and the mean distance of a device's mix of classes from all's.

    Of numbers, each tenth of all is a class.

    The distance is the total variation, half the sum of absolute differences. Only the classes that a device has are
    looked at, as devices × classes may be more than fits into memory.
    """
    labels = source.labels
    kinds = int(labels.max()) + 1
    overall = np.bincount(labels) / len(labels)
    pairs, counts = np.unique(source.device * kinds + labels, return_counts=True)
    device, label = np.divmod(pairs, kinds)
    here = np.bincount(device)  # classes on each device
    closeness = np.bincount(device, np.minimum(counts / sizes[device], overall[label]))  # 1 - total variation
    return int(here.min()), int(here.max()), float(1.0 - closeness.mean())


def _histogram(sizes: Ints) -> tuple[Bar, ...]:
    """Bars of equal width, in whole numbers, that reach from the smallest size to the largest."""
    least, most = int(sizes.min()), int(sizes.max())
    width = -(-(most - least + 1) // MOST_BARS)
    starts = range(least, most + 1, width)
    counts = np.bincount((sizes - least) // width, minlength=len(starts))
    return tuple(
        Bar(start, min(start + width - 1, most), int(count)) for start, count in zip(starts, counts, strict=True)
    )


def _notes(source: Source, counts: Ints | None, devices: Devices | None) -> list[str]:
    notes = []
    if counts is None and (source.y == np.floor(source.y)).all():
        notes.append('y are whole numbers: if they are classes, set population.targets = "classes"')
    if counts is not None and (empty := np.flatnonzero(counts == 0).tolist()):
        notes.append(f"{len(empty)} of {source.classes} classes have no samples, such as class {empty[0]}")
    if devices is not None and devices.samples_min < FEW_SAMPLES:
        few = int((np.bincount(source.device) < FEW_SAMPLES).sum())
        notes.append(f"{few} of {devices.count} devices have fewer than {FEW_SAMPLES} samples")
    if is_features(source.x.shape[1:]) and source.x.dtype == np.float32:
        spread = moments(source.x)[1] / np.array(source.std)
        varied = spread[spread > 0]
        if len(varied) < len(spread):
            notes.append(f"{len(spread) - len(varied)} of {len(spread)} features are the same in all samples")
        if len(varied) and varied.max() > UNEVEN * varied.min():
            uneven = f"some features vary {varied.max() / varied.min():.3g} times as much as others"
            notes.append(f"{uneven}: train with population.standardise = true, as the preset own-data does")
    return notes
