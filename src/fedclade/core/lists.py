"""Many lists of whole numbers in one array: for 100,000 devices, two arrays instead of 100,000 Python objects."""

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from fedclade.core.arrays import Ints


class Lists(Sequence[Ints]):
    """List i is ``flat[ends[i - 1]:ends[i]]``; reading one gives a view, not a copy."""

    def __init__(self, flat: Ints, ends: Ints) -> None:
        self.flat, self.ends = flat, ends

    @classmethod
    def of(cls, parts: Iterable[Ints]) -> "Lists":
        """The same lists side by side."""
        each = list(parts)
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *each])
        return cls(flat, np.cumsum([len(part) for part in each], dtype=np.int64))

    @property
    def lengths(self) -> Ints:
        """How long each list is."""
        return np.diff(self.ends, prepend=0)

    def in_parts(self, count: int) -> "list[Lists]":
        """So many equally long parts of the lists, one after the other."""
        each = len(self) // count
        firsts = [part * each for part in range(count)]
        before = [int(self.ends[first - 1]) if first else 0 for first in firsts]
        return [
            Lists(self.flat[start:], self.ends[first : first + each] - start)
            for first, start in zip(firsts, before, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> Ints: ...

    @overload
    def __getitem__(self, index: slice) -> "Lists": ...

    def __getitem__(self, index: int | slice) -> "Ints | Lists":
        if isinstance(index, slice):
            return Lists.of([self[i] for i in range(*index.indices(len(self)))])
        place = range(len(self))[index]
        return self.flat[0 if place == 0 else self.ends[place - 1] : self.ends[place]]
