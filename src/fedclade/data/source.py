"""What a source gives: labelled samples, either to be dealt out to devices or already each device's own."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.core.arrays import Bytes, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.data.checks import MOST_CLASSES, as_array, check_ids, check_inputs, check_labels


@dataclass(frozen=True)
class Source:
    """Labelled samples, and what is known of them.

    Without ``device`` they are a pool: the population section deals it out, the incongruence section plants groups.
    With it every sample has its device, and the data alone say how many devices there are and what each holds.

    Parameters
    ----------
    x : uint8 or floats, N×features, N×H×W or N×C×H×W
        The samples. A model sees 8-bit numbers divided by 255 and floats as they are, less ``mean``, over ``std``.
    y : whole numbers from 0, N
        The samples' classes.
    classes : int
        How many classes there are; 0 means one more than the largest label.
    writer : whole numbers or texts, N
        Who wrote each sample of a pool, for ``population.partition = "writer"``; unset where nobody knows.
    device : whole numbers or texts, N
        Whose each sample is. The devices are numbered in ascending order of these ids.
    group : whole numbers from 0, one for each device
        The planted groups, in the order of the devices' numbers: the truth that clustering is scored against. Unset
        where there is no truth; then no score is told.
    mean, std : one number, or one for each channel
        How the samples are standardised.
    """

    x: Any
    y: Any
    classes: int = 0
    writer: Any = None
    device: Any = None
    group: Any = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @classmethod
    def of_devices(cls, data: Iterable[tuple[Any, Any]], **facts: Any) -> "Source":
        """Of one pair (x, y) for each device; ``facts`` are the other parameters of a source, such as ``group``."""
        pairs: list[tuple[Bytes | Singles, Ints]] = []
        for device, pair in enumerate(data):
            where = f"device {device}"
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise UserError(f"{where}: must be a pair (x, y), not a {type(pair).__name__}")
            x = check_inputs(where, pair[0])
            pairs.append((x, check_labels(where, pair[1], len(x))))
            first = pairs[0][0]
            if (x.shape[1:], x.dtype) != (first.shape[1:], first.dtype):
                mine, others = (f"{a.dtype} of C×H×W = {'×'.join(map(str, a.shape[1:]))}" for a in (x, first))
                raise UserError(f"{where}: x is {mine}, must be {others} as device 0's is")
        if not pairs:
            raise UserError("no devices are given; must be at least one pair (x, y)")
        x, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        return cls(x, y, device=np.repeat(np.arange(len(pairs)), [len(mine) for _, mine in pairs]), **facts)

    def checked(self, where: str) -> "Source":
        """The same source in the form that the rest of the code relies on, or a line that begins with ``where``.

        x is N × C × H × W, of 8 bits or float32; y, device and group are whole numbers from 0; classes is at least 1.
        """
        x = check_inputs(where, self.x)
        count, channels = x.shape[:2]
        if not isinstance(self.classes, int | np.integer) or not 0 <= self.classes <= MOST_CLASSES:
            raise UserError(f"{where}: classes = {self.classes}: must be a whole number from 0 to {MOST_CLASSES}")
        y = check_labels(where, self.y, count, int(self.classes))
        mean, std = (_per_channel(where, name, getattr(self, name), channels) for name in ("mean", "std"))
        if min(std) <= 0:
            raise UserError(f"{where}: std = {self.std}: must be greater than 0")
        writer = None if self.writer is None else check_ids(where, self.writer, count, "writer")[1]
        classes = int(self.classes) or int(y.max()) + 1
        same = replace(self, x=x, y=y, classes=classes, writer=writer, mean=mean, std=std)
        if self.device is not None:
            return same._with_devices(where)
        if self.group is not None:
            raise UserError(f"{where}: group is of devices, so that it needs device: whose each sample is")
        return same

    def _with_devices(self, where: str) -> "Source":
        names, device = check_ids(where, self.device, len(self.y), "device")
        sizes = np.bincount(device)
        if sizes.min() < 2:
            name = names[sizes.argmin()]
            raise UserError(f"{where}: device {name} has 1 sample, must have at least 2: one to train on, one to test")
        if self.group is None:
            return replace(self, device=device)
        group = as_array(where, "group", self.group)
        if group.shape != (len(names),) or not np.issubdtype(group.dtype, np.integer) or group.min() < 0:
            raise UserError(f"{where}: group must be {len(names)} whole numbers from 0: one for each device")
        return replace(self, device=device, group=group.astype(np.int64))


def _per_channel(where: str, name: str, given: object, channels: int) -> tuple[float, ...]:
    values = np.atleast_1d(as_array(where, name, given))
    right = values.ndim == 1 and len(values) in (1, channels) and values.dtype.kind in "iuf"
    if not right or not np.isfinite(values).all():
        raise UserError(f"{where}: {name} = {given}: must be one finite number, or one for each of {channels} channels")
    return tuple(values.astype(float).tolist())
