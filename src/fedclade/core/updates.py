"""Updates Δw of devices, and the few questions that a server has about them.

A server never needs all updates at once, it needs answers: how long they are, how similar, what they sum up to. So
whoever holds them gives these answers, and only these. ``HeldUpdates`` holds them in this process, wherever the memory
comes from (its own, shared with worker processes, or a mapped file); another holder may keep them elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.random import generator
from fedclade.core.threads import blas_threads, cores

CHUNK_ENTRIES = 1 << 23  # of the updates that are scaled at once: 32 MiB
FEW_GROUPS = 8  # sums of so many are made one by one: BLAS packs matrices for a product, and vectors not
ALL = slice(None)  # columns of an update
WORTH_THREADS = 10**9  # multiplications of cosines: fewer are done by one thread
BLOCK_ENTRIES = 2**22  # numbers of updates that are copied at once where they are added up
SQUARED_AT_ONCE = 4096  # parameters whose squares are added up in single precision
SQUARES_HELD = 1e-30, 1e30  # sums of squares that single precision holds without loss
WASTE = 2  # a matrix of which less than one row in so many is still wanted is copied, so that it can be let go


class Updates(Protocol):
    """The updates of some devices. Wherever devices are given, all of them must have an update here."""

    width: int  # numbers of an update

    @property
    def devices(self) -> Ints:
        """Whose updates there are, ascending."""
        ...

    def norms(self, devices: Ints) -> Floats:
        """‖Δw_k‖ of each; not finite where the update is not."""
        ...

    def cosines(self, devices: Ints) -> Singles:
        """All pairwise cosines: K × K."""
        ...

    def compared(self, devices: Ints) -> Singles:
        """What cosines are made of, one row each: the updates, or sketches where there is no room for so many."""
        ...

    def sums(self, devices: Ints, group: Ints, weights: Floats, groups: int) -> Singles:
        """Σ weight_k Δw_k over the devices of each group, one row a group."""
        ...

    def sketched(self, signs: Singles, width: int) -> "HeldUpdates":
        """A random projection of each update."""
        ...

    def rows(self, devices: Ints, columns: slice = ALL) -> Singles:
        """The updates themselves, or some of their columns, one row each."""
        ...

    def among(self, devices: Ints) -> "Updates":
        """Of these devices alone, as far as they are here."""
        ...


@dataclass(frozen=True)
class _Part:
    """Some devices' updates: device i's is the row ``row[i]`` of a matrix."""

    device: Ints
    row: Ints
    matrix: Singles

    @property
    def whole(self) -> bool:
        return len(self.row) == len(self.matrix) and bool((self.row == np.arange(len(self.row))).all())

    @cached_property
    def norms(self) -> Floats:
        """Of each device's update. Several parts of a round ask for them."""
        return update_norms(self.rows())

    def rows(self) -> Singles:
        return self.matrix if self.whole else self.matrix[self.row]

    def among(self, keep: np.ndarray) -> "_Part":
        """Only some of its devices; what is hardly used any more is copied, and the rest let go."""
        if keep.all():
            return self
        device, row = self.device[keep], self.row[keep]
        if len(row) * WASTE <= len(self.matrix):
            return _Part(device, np.arange(len(row)), self.matrix[row])
        return _Part(device, row, self.matrix)


class HeldUpdates:
    """Updates held in this process: a value, made of the matrices in which the updates arrived.

    No matrix is copied or written to. So what is remembered of a round is the very matrix that its training filled, and
    it is let go when all its devices have been heard again.
    """

    def __init__(self, width: int, parts: tuple[_Part, ...] = ()) -> None:
        self.width, self._parts = width, parts

    @classmethod
    def of(cls, devices: Ints, matrix: Singles) -> "HeldUpdates":
        """The rows of a matrix, of these devices in this order."""
        return cls(matrix.shape[1], (_Part(devices, np.arange(len(devices)), matrix),))

    @property
    def devices(self) -> Ints:
        """Whose updates there are, ascending."""
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *(part.device for part in self._parts)]))

    def among(self, devices: Ints) -> "HeldUpdates":
        """Of these devices alone, as far as they are here."""
        parts = (part.among(np.isin(part.device, devices)) for part in self._parts)
        return HeldUpdates(self.width, tuple(part for part in parts if len(part.device)))

    def renewed_by(self, newer: "HeldUpdates") -> "HeldUpdates":
        """With newer updates in place of older ones of the same devices."""
        fresh = newer.devices
        older = (part.among(~np.isin(part.device, fresh)) for part in self._parts)
        return HeldUpdates(self.width, (*(part for part in older if len(part.device)), *newer._parts))

    def rows(self, devices: Ints, columns: slice = ALL) -> Singles:
        """The updates, one row each; not a copy where they are a whole matrix in its own order."""
        if (matrix := self._as_they_lie(devices)) is not None:
            return matrix if columns == ALL else matrix[:, columns]
        gathered = np.empty((len(devices), len(range(self.width)[columns])), dtype=np.float32)
        for part, here, place in self._found(devices):
            gathered[here] = part.matrix[part.row[place], columns]
        return gathered

    def _as_they_lie(self, devices: Ints) -> Singles | None:
        """The matrix of which these are all rows in order; None if there is none."""
        whole = (part.matrix for part in self._parts if part.whole and np.array_equal(part.device, devices))
        return next(whole, None)

    def norms(self, devices: Ints) -> Floats:
        """‖Δw_k‖ of each device."""
        norms = np.empty(len(devices))
        for part, here, place in self._found(devices):
            norms[here] = part.norms[place]
        return norms

    def _found(self, devices: Ints) -> Iterator[tuple[_Part, Bools, Ints]]:
        """Every part with some of the devices: which of them these are, and their places in it."""
        missing = np.ones(len(devices), dtype=bool)
        for part in self._parts:
            order = np.argsort(part.device, kind="stable")
            place = np.searchsorted(part.device[order], devices).clip(max=max(0, len(order) - 1))
            here = part.device[order][place] == devices if len(order) else np.zeros(len(devices), dtype=bool)
            missing &= ~here
            if here.any():
                yield part, here, order[place[here]]
        if missing.any():
            raise KeyError(f"no update of devices {devices[missing].tolist()} is held here")

    def cosines(self, devices: Ints) -> Singles:
        """All pairwise cosines."""
        return cosine_similarity(self.rows(devices))

    def compared(self, devices: Ints) -> Singles:
        """The updates."""
        return self.rows(devices)

    def sums(self, devices: Ints, group: Ints, weights: Floats, groups: int) -> Singles:
        """Σ weight_k Δw_k over the devices of each group.

        No copy of the updates where all of a matrix is meant; else of a few at a time, for new memory takes longer to
        come by than the sums.
        """
        shares = np.zeros((groups, len(devices)), dtype=np.float32)
        shares[group, np.arange(len(devices))] = weights
        at_once = max(1, BLOCK_ENTRIES // self.width) if self._as_they_lie(devices) is None else max(1, len(devices))
        sums = np.zeros((groups, self.width), dtype=np.float32)
        for first in range(0, len(devices), at_once):
            some = slice(first, first + at_once)
            sums += _shared_out(shares[:, some], self.rows(devices[some]))
        return sums

    def sketched(self, signs: Singles, width: int) -> "HeldUpdates":
        """A random projection of each update."""
        parts = (_Part(p.device, np.arange(len(p.device)), sketch(p.rows(), signs, width)) for p in self._parts)
        return HeldUpdates(width, tuple(parts))


def _shared_out(shares: Singles, rows: Singles) -> Singles:
    """A weighted sum of the rows for each row of shares."""
    if len(shares) > FEW_GROUPS:
        return np.asarray(shares @ rows, dtype=np.float32)
    return np.stack([np.asarray(share @ rows, dtype=np.float32) for share in shares])


def update_norms(updates: Singles) -> Floats:
    """‖Δw_k‖ of each row; that of a row with anything not finite in it is not finite either.

    Squares are added up in single precision within a few thousand parameters, and in double precision beyond: right
    to seven digits in a quarter of the time. Rows whose squares single precision cannot hold take the long way.
    """
    squares = np.zeros(len(updates))
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        for first in range(0, updates.shape[1], SQUARED_AT_ONCE):
            part = updates[:, first : first + SQUARED_AT_ONCE]
            squares += np.vecdot(part, part)
        held = (squares > SQUARES_HELD[0]) & (squares < SQUARES_HELD[1])
        others = updates[~held]
        squares[~held] = np.einsum("ij,ij->i", others, others, dtype=np.float64)
    norms: Floats = np.sqrt(squares)
    return norms


def sketch_signs(seed: int, parameters: int) -> Singles:
    """The random sign of each parameter in a sketch."""
    draws = generator(seed, "sketch").integers(0, 2, parameters, dtype=np.int8)
    return np.asarray(2 * draws - 1, dtype=np.float32)


def sketch(updates: Singles, signs: Singles, width: int) -> Singles:
    """A random projection: each parameter times a random sign, then added up ``width`` apart.

    Inner products are right on average, and cosines have a standard error of at most about 1/sqrt(width).
    """
    rows, parameters = updates.shape
    turns, rest = divmod(parameters, width)
    whole = turns * width
    parts = updates[:, :whole].reshape(rows, turns, width), signs[:whole].reshape(turns, width)
    small = np.asarray(np.einsum("ktw,tw->kw", *parts), dtype=np.float32)
    small[:, :rest] += updates[:, whole:] * signs[whole:]
    return small


def cosine_similarity(updates: Singles) -> Singles:
    """All pairwise cosines; a zero update is similar to nothing, itself included.

    Matrix products over a few parameters at a time, added up in place for one triangle: exact, with half the
    arithmetic, and with no second copy of the updates.
    """
    from scipy.linalg.blas import ssyrk  # takes longer to import than many a command needs

    count, parameters = updates.shape
    norms = update_norms(updates).astype(np.float32)
    norms[norms == 0] = 1
    cosines = np.zeros((count, count), dtype=np.float32, order="F")
    width = max(1, CHUNK_ENTRIES // max(1, count))
    with blas_threads(cores() if count * count * parameters > WORTH_THREADS else 1):
        for first in range(0, parameters if count else 0, width):
            unit = updates[:, first : first + width] / norms[:, None]
            cosines = ssyrk(1.0, unit.T, beta=1.0, c=cosines, trans=1, overwrite_c=1)
    np.clip(cosines, -1.0, 1.0, out=cosines)
    for row in range(count):
        cosines[row + 1 :, row] = cosines[row, row + 1 :]
    return cosines.T
