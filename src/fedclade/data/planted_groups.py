"""The planted groups: what makes one model unable to serve all devices."""

import numpy as np

from fedclade.config import IncongruenceConfig
from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.random import generator


def group_of_devices(weights: tuple[int, ...], devices: int) -> Ints:
    """Group number of each device; sizes in proportion to the weights (largest remainder), none empty."""
    exact = np.array(weights) * (devices / sum(weights))
    sizes = np.maximum(1, np.floor(exact)).astype(np.int64)
    while sizes.sum() > devices:
        sizes[np.argmax(np.where(sizes > 1, sizes - exact, -np.inf))] -= 1
    for group in np.argsort(-(exact - sizes), kind="stable")[: devices - sizes.sum()]:
        sizes[group] += 1
    return np.repeat(np.arange(len(weights)), sizes)


def allowed_classes(config: IncongruenceConfig, classes: Ints, group: Ints, seed: int) -> list[Ints]:
    """The classes each device may hold: all that occur, or its group's own share of them."""
    groups = len(config.groups)
    if config.kind != "disjoint-classes":
        return [classes] * len(group)
    if groups > len(classes):
        raise UserError(f"incongruence.groups: {groups} groups cannot share {len(classes)} classes without overlap")
    shares = np.array_split(generator(seed, "disjoint").permutation(classes), groups)
    return [np.sort(shares[g]) for g in group]


def plant(
    config: IncongruenceConfig, images: np.ndarray, labels: Ints, group: int, classes: int, seed: int
) -> tuple[np.ndarray, Ints]:
    """One planted group's images and labels as its devices see them. Group 0 sees the source's."""
    if config.kind == "rotate":
        angles = _angles(config)
        shape = images.shape[-2:]
        images = rotate(images, angles[group])
        if images.shape[-2:] != shape:
            raise UserError(f'incongruence.kind = "rotate": needs square images, not {shape[0]}×{shape[1]}')
    elif config.kind == "permute-labels" and group > 0:
        labels = _new_labels(group, classes, seed)[labels]
    return images, labels


def replant(
    config: IncongruenceConfig,
    images: np.ndarray,
    labels: Ints,
    groups: tuple[int, int],
    classes: int,
    seed: int,
) -> tuple[np.ndarray, Ints]:
    """What a device of the first of two groups holds, as a device of the second would see it."""
    before, after = groups
    if config.kind == "rotate":
        angles = _angles(config)
        images = rotate(images, (angles[after] - angles[before]) % 360.0)
    elif config.kind == "permute-labels":
        source_label = np.argsort(_new_labels(before, classes, seed))
        labels = _new_labels(after, classes, seed)[source_label[labels]]
    return images, labels


def _angles(config: IncongruenceConfig) -> tuple[float, ...]:
    """Degrees by which each group's images are turned."""
    return config.angles or tuple(360.0 * g / len(config.groups) for g in range(len(config.groups)))


def _new_labels(group: int, classes: int, seed: int) -> Ints:
    """What a group calls each of the source's classes."""
    return generator(seed, "permutation", group).permutation(classes) if group > 0 else np.arange(classes)


def rotate(images: np.ndarray, degrees: float) -> np.ndarray:
    """Counter-clockwise; quarter turns are exact, other angles are interpolated."""
    quarters, rest = divmod(degrees, 90.0)
    if rest == 0:
        return np.ascontiguousarray(np.rot90(images, int(quarters), axes=(-2, -1)))
    from scipy import ndimage

    turned: np.ndarray = ndimage.rotate(images, degrees, axes=(-2, -1), reshape=False, order=1)
    return turned
