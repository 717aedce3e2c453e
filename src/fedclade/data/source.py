"""What a source gives: labelled samples, either to be dealt out to devices or already each device's own."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.core.arrays import Floats, Inputs, Ints, Targets
from fedclade.core.errors import UserError
from fedclade.data.checks import (
    MOST_CLASSES,
    as_array,
    check_all_targets,
    check_groups,
    check_ids,
    check_inputs,
    check_split,
    check_targets,
)

AT_ONCE = 4096  # samples whose deviations from the mean are in memory together


@dataclass(frozen=True)
class Source:
    """Labelled samples, and what is known of them.

    Without ``device`` they are a pool: the population section deals it out, the incongruence section plants groups.
    With it every sample has its device, and the data alone say how many devices there are and what each holds.

    Parameters
    ----------
    x : numbers, N×features, N×H×W, N×C×H×W or N×any shape
        The samples. A model sees 8-bit numbers divided by 255 and floats as they are, less ``mean``, over ``std``.
        Whole numbers of any other type are token ids, from 0, which a model sees as they are.
    y : whole numbers from 0, or texts, N; or floats, N or N×outputs
        The samples' classes; texts are numbered in their ascending order. Floats are numbers that a model is to tell.
    classes : int
        How many classes there are; 0 means one more than the largest label.
    targets : "auto", "classes" or "numbers"
        What ``y`` is, where its type does not say it.
    writer : whole numbers or texts, N
        Who wrote each sample of a pool, for ``population.partition = "writer"``; unset where nobody knows.
    device : whole numbers or texts, N
        Whose each sample is. The devices are numbered in ascending order of these ids.
    group : whole numbers from 0, or texts, one for each device or for each sample
        The planted groups: the truth that clustering is scored against. If there is one for each device, they are in
        the order of the devices' numbers. Unset where there is no truth; then no score is told.
    split : texts, N
        The share of its device's samples that each belongs to: "train", "validation" or "test". Unset: the population
        section says how much of each device's samples is held out. Without any "validation", some of "train" are.
    mean, std : one number, or one for each channel or feature
        How the samples are standardised.
    y_mean, y_std : one number, or one for each output
        How numbers in ``y`` are standardised for those who learn them; unset: by their own mean and deviation.
    """

    x: Any
    y: Any
    classes: int = 0
    targets: str = "auto"
    writer: Any = None
    device: Any = None
    group: Any = None
    split: Any = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    y_mean: tuple[float, ...] | None = None
    y_std: tuple[float, ...] | None = None

    @property
    def numbers(self) -> bool:
        """Of a checked source: whether samples have numbers instead of a class."""
        return bool(self.y.dtype.kind == "f")

    @property
    def labels(self) -> Ints:
        """Of a checked source: what samples are dealt out by; their classes, or in which tenth the first number is."""
        labels: Ints = tenths(self.y[:, 0]) if self.numbers else self.y
        return labels

    @classmethod
    def of_devices(
        cls, data: Iterable[tuple[Any, Any]], *, names: Sequence[str] | None = None, **facts: Any
    ) -> "Source":
        """Of one pair (x, y) for each device; ``facts`` are the other parameters of a source, such as ``group``.

        ``names`` are the devices' ids, which set their order; else they are numbered in the order of the pairs.
        """
        pairs: list[tuple[Inputs, Targets]] = []
        targets = str(facts.get("targets", "auto"))
        for device, pair in enumerate(data):
            where = f"device {names[device] if names else device}"
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise UserError(f"{where}: must be a pair (x, y), not a {type(pair).__name__}")
            x = check_inputs(where, pair[0])
            pairs.append((x, check_targets(where, pair[1], len(x), targets)))
            first, y = pairs[0][0], pairs[0][1]
            if (x.shape[1:], x.dtype) != (first.shape[1:], first.dtype):
                mine, others = (f"{a.dtype} of C×H×W = {'×'.join(map(str, a.shape[1:]))}" for a in (x, first))
                raise UserError(f"{where}: x is {mine}, must be {others} as device {names[0] if names else 0}'s is")
            if (y.dtype, y.shape[1:]) != (pairs[-1][1].dtype, pairs[-1][1].shape[1:]):
                raise UserError(f"{where}: y are not classes or numbers as those before; set population.targets")
        if not pairs:
            raise UserError("no devices are given; must be at least one pair (x, y)")
        x, all_y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        ids = np.arange(len(pairs)) if names is None else _by_size(list(names))
        return cls(x, all_y, device=np.repeat(ids, [len(mine) for _, mine in pairs]), **facts)

    def checked(self, where: str, targets: str = "auto") -> "Source":
        """The same source in the form that the rest of the code relies on, or a line that begins with ``where``.

        x is N × C × H × W or of more axes, of 8 bits, float32 or int32; y are whole numbers from 0, or float64 of N ×
        outputs; device, group and split are whole numbers from 0; classes is the number of outputs, at least 1; group
        has an entry for each device. ``targets`` says what y is where the source itself does not.
        """
        x = check_inputs(where, self.x)
        count = len(x)
        if not isinstance(self.classes, int | np.integer) or not 0 <= self.classes <= MOST_CLASSES:
            raise UserError(f"{where}: classes = {self.classes}: must be a whole number from 0 to {MOST_CLASSES}")
        y = check_all_targets(where, self.y, count, self.targets if targets == "auto" else targets, int(self.classes))
        scales: dict[str, Any] = {
            name: _per_output(where, name, getattr(self, name), y) for name in ("y_mean", "y_std")
        }
        mean, std = (_per_input(where, name, getattr(self, name), x.shape[1:]) for name in ("mean", "std"))
        if is_tokens(x) and (mean, std) != ((0.0,), (1.0,)):
            raise UserError(f"{where}: mean and std are of numbers, and x are token ids; leave them out")
        if min(std) <= 0:
            raise UserError(f"{where}: std = {self.std}: must be greater than 0")
        writer = None if self.writer is None else check_ids(where, self.writer, count, "writer")[1]
        classes = y.shape[1] if y.ndim == 2 else int(self.classes) or int(y.max()) + 1
        same = replace(self, x=x, y=y, classes=classes, writer=writer, mean=mean, std=std, **scales)
        if self.device is not None:
            return same._with_devices(where)
        for name in ("group", "split"):
            if getattr(self, name) is not None:
                raise UserError(f"{where}: {name} is of devices, so that it needs device: whose each sample is")
        return same

    def _with_devices(self, where: str) -> "Source":
        names, device = check_ids(where, self.device, len(self.y), "device")
        sizes = np.bincount(device)
        if sizes.min() < 2:
            name = names[sizes.argmin()]
            raise UserError(f"{where}: device {name} has 1 sample, must have at least 2: one to train on, one to test")
        group = None if self.group is None else check_groups(where, self.group, device, len(names))
        split = None if self.split is None else check_split(where, self.split, device, names)
        return replace(self, device=device, group=group, split=split)


def _by_size(ids: list[str]) -> np.ndarray:
    """Texts that are all different whole numbers as such, so that device 10 comes after device 9; others as texts."""
    whole = all(one.isascii() and one.isdecimal() and len(one) < 18 for one in ids)
    numbers = np.array([int(one) for one in ids]) if whole else np.array(ids)
    return numbers if len(np.unique(numbers)) == len(ids) else np.array(ids)


def _per_input(where: str, name: str, given: object, shape: tuple[int, ...]) -> tuple[float, ...]:
    values = np.atleast_1d(as_array(where, name, given))
    lengths = (1, math.prod(shape) if is_features(shape) else shape[0])
    right = values.ndim == 1 and len(values) in lengths and values.dtype.kind in "iuf"
    if not right or not np.isfinite(values).all():
        each = f"{lengths[1]} {'features' if is_features(shape) else 'channels'}"
        raise UserError(f"{where}: {name} = {given}: must be one finite number, or one for each of {each}")
    return tuple(values.astype(float).tolist())


def _per_output(where: str, name: str, given: object, y: np.ndarray) -> tuple[float, ...] | None:
    """One number for each number that a model is to tell; None where it is not given."""
    if given is None:
        return None
    values, outputs = np.atleast_1d(as_array(where, name, given)), y.shape[1] if y.ndim == 2 else 0
    right = values.ndim == 1 and len(values) in (1, outputs) and values.dtype.kind in "iuf" and outputs
    if not right or not np.isfinite(values).all() or (name == "y_std" and values.min() <= 0):
        least = "greater than 0" if name == "y_std" else "finite"
        raise UserError(f"{where}: {name} = {given}: is for numbers in y: one, or one for each of them, each {least}")
    return tuple(np.broadcast_to(values.astype(float), outputs).tolist())


def is_features(shape: tuple[int, ...]) -> bool:
    """Whether samples of this shape are no images but plain features, or tokens."""
    return math.prod(shape[:-1]) == 1


def standard_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """What a mean or standard deviation is reshaped to, so that it meets the features or channels of such samples."""
    return (-1,) if is_features(shape) else (-1, *(1,) * (len(shape) - 1))


def tenths(numbers: np.ndarray) -> Ints:
    """Which tenth of all numbers each belongs to, from 0: what is dealt out by classes where samples have none."""
    return np.searchsorted(np.quantile(numbers, np.arange(0.1, 1.0, 0.1)), numbers, side="right")


def standardised(source: Source) -> Source:
    """A checked source whose mean and standard deviation are those of its samples: of each feature or channel.

    Token ids stay as they are.
    """
    if is_tokens(source.x):
        return source
    mean, std = (values / full_scale(source.x) for values in moments(source.x))
    return replace(source, mean=tuple(mean.tolist()), std=tuple(np.where(std > 0, std, 1.0).tolist()))


def moments(x: np.ndarray) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each feature, or of each channel of images."""
    axes = (0,) if is_features(x.shape[1:]) else (0, *range(2, x.ndim))
    parts = [x[first : first + AT_ONCE] for first in range(0, len(x), AT_ONCE)]  # sparing memory
    mean = sum(part.sum(axes, np.float64, keepdims=True) for part in parts)
    count = x.size / mean.size
    mean = mean / count
    variance = sum(((part - mean) ** 2).sum(axes, keepdims=True) for part in parts) / count
    return mean.ravel(), np.sqrt(variance).ravel()


def is_tokens(x: np.ndarray) -> bool:
    """Whether checked samples are token ids."""
    return x.dtype == np.int32


def full_scale(x: np.ndarray) -> float:
    """What a stored number is divided by for the model: 8-bit pixels come to [0, 1], others stay as they are."""
    return 255.0 if x.dtype == np.uint8 else 1.0
