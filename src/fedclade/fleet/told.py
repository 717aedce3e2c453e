"""What one device replied, read strictly: nothing that it says is believed before it is checked.

Every number has a type, a shape and a range; every text an alphabet and a length; and counts of samples are held
against what the device declared when it came. Shape and type are looked at before contents are, and no memory is taken
by a claim: an array is as large as what arrived.
"""

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from fedclade.core.arrays import Floats, Ints, Singles

Share: TypeAlias = Literal["train", "validation", "test"]
Shape: TypeAlias = tuple[int, ...]

SHOWN = 40  # characters of a wrong value that are repeated in a complaint
ROUNDING = 1e-5  # by so much a number may miss its range: it is rounded, and then set to the end of the range


class Unreadable(ValueError):
    """A reply, or a part of it, that cannot be what was asked for. It costs the device this reply, and nobody else."""


@dataclass(frozen=True)
class Declared:
    """What is known of a device before it replies; what is not known sets no limit."""

    holds: Mapping[str, int] = field(default_factory=dict)  # samples of each share of its data, as it said
    credit: float = 1.0  # the part of its samples that counts, at most 1
    values: int | None = None  # numbers of one sample
    classes: int | None = None  # or other kinds of samples that are looked at apart
    least_score: float = 0.0  # of a model on its data: an accuracy is from 0 to 1, R² has no lower end


class Told:
    """The facts and arrays of one reply, each read by its name as what it must be, or else ``Unreadable``."""

    def __init__(
        self, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray], declared: Declared | None = None
    ) -> None:
        self.facts, self.arrays, self.declared = facts, arrays, declared or Declared()

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number; a truth value is none."""
        return _whole(name, self._fact(name), least, most)

    def wholes(self, name: str, least: int, most: int, length: int) -> tuple[int, ...]:
        """At most so many whole numbers, and at least one."""
        return tuple(_whole(name, each, least, most) for each in self._list(name, length))

    def number(self, name: str, least: float, most: float) -> float:
        """A finite number."""
        return _number(name, self._fact(name), least, most)

    def numbers(self, name: str, least: float, most: float, length: int) -> tuple[float, ...]:
        """At most so many finite numbers, and at least one."""
        return tuple(_number(name, each, least, most) for each in self._list(name, length))

    def text(self, name: str, pattern: str, right: str) -> str:
        """A text that is like a regular expression as a whole; ``right`` says so in words."""
        value = self._fact(name)
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise _wrong(name, value, right)
        return value

    def counts(self, name: str, shape: Shape, share: Share) -> Ints:
        """Samples of a share of the data, by class in the last dimension: in all at most what the device declared."""
        array, most = self.array(name, shape, "iu", "counts"), self.declared.holds.get(share)
        if (array < 0).any() or (array > np.iinfo(np.int64).max // max(1, array.size)).any():
            raise Unreadable(f"{name}: must be counts from 0")
        counts = array.astype(np.int64)
        if most is not None and (counts.sum(axis=-1) > most).any():
            told = int(counts.sum(axis=-1).max())
            raise Unreadable(f"{name}: {told} samples of its {share} data, but it has declared {most}")
        return counts if self.declared.credit >= 1 else np.ceil(self.declared.credit * counts).astype(np.int64)

    def reals(self, name: str, shape: Shape, least: float, most: float) -> Floats:
        """Finite numbers in a range."""
        array = self.array(name, shape, "f", "floating-point numbers")
        if not np.isfinite(array).all():
            raise Unreadable(f"{name}: must be finite numbers")
        if ((array < least - ROUNDING) | (array > most + ROUNDING)).any():
            raise Unreadable(f"{name}: must be numbers from {least:g} to {most:g}")
        return array.astype(np.float64).clip(least, most)

    def singles(self, name: str, shape: Shape | None = None) -> Singles:
        """Numbers of single precision, of any shape if none is given; they may still not be finite."""
        given = np.asarray(self.arrays.get(name, 0)).shape if shape is None else shape
        array = self.array(name, given, "f", "float32 numbers")
        if array.dtype != np.float32:
            raise Unreadable(f"{name}: {array.dtype}, must be float32")
        return array

    def array(self, name: str, shape: Shape, kinds: str, what: str) -> np.ndarray:
        """An array of this shape and one of these kinds of NumPy's types; ``what`` says so in words."""
        array = self.arrays.get(name)
        if array is None:
            raise Unreadable(f"{name} is missing: must be {what} of shape {list(shape)}")
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype.kind not in kinds:
            kind = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise Unreadable(f"{name}: {kind[:SHOWN]}, must be {what} of shape {list(shape)}")
        return array

    def _fact(self, name: str) -> Any:
        if name not in self.facts:
            raise Unreadable(f"{name} is missing")
        return self.facts[name]

    def _list(self, name: str, length: int) -> list[Any]:
        value = self._fact(name)
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= length:
            raise _wrong(name, value, f"must be a list of 1 to {length} numbers")
        return list(value)


def _whole(name: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _wrong(name, value, f"must be a whole number from {least} to {most}")
    return value


def _number(name: str, value: object, least: float, most: float) -> float:
    if type(value) not in (int, float) or not least <= value <= most:  # type: ignore[operator]
        raise _wrong(name, value, f"must be a number from {least:g} to {most:g}")
    return float(value)  # type: ignore[arg-type]


def _wrong(name: str, value: object, right: str) -> Unreadable:
    """A complaint that shows the beginning of a value, however large it is."""
    try:
        shown = reprlib.repr(value)
    except ValueError:  # Python writes down no number of thousands of digits
        shown = "a number of thousands of digits"
    return Unreadable(f"{name} = {shown if len(shown) <= SHOWN else shown[:SHOWN] + '…'}: {right}")
