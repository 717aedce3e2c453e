"""The cut with the smallest largest similarity across it, of as many devices as there are: all pairs, not all at once.

Single linkage needs no more of all K² similarities than the K - 1 edges of their maximum spanning tree, and so does
this cut. Similarities are made a block at a time, of some devices with all that come after them, and the tree of a
block is folded into that of the blocks before: an edge that is in no tree of a part is in none of the whole. So memory
grows with the devices, and time with their pairs.

The tree of a block is found after Borůvka: the strongest edge of each device, then the strongest edge out of each part
that hangs together by now, until all does. Of edges of the same strength any will do: what is connected by edges above
a threshold is the same.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from fedclade.clustering.bipartition import smallest_cross_cut
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.threads import blas_threads, cores
from fedclade.core.updates import update_norms

BLOCK_BYTES = 1 << 25  # of similarities at once


class Edges(NamedTuple):
    """Pairs of devices, and how similar the two are."""

    start: Ints
    end: Ints
    similarity: Floats

    def of(self, some: Ints) -> "Edges":
        """Some of them."""
        return Edges(self.start[some], self.end[some], self.similarity[some])

    def and_also(self, more: "Edges") -> "Edges":
        """These and others."""
        return Edges(*(np.concatenate(both) for both in zip(self, more, strict=True)))


NONE = Edges(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))


class Pairs:
    """The similarities of all pairs of updates: cosines, drawn towards 0 where an update is trusted less."""

    def __init__(self, updates: Singles, trust: Floats | float = 1.0) -> None:
        norms = update_norms(updates)
        self._updates, self._scale = updates, (trust / np.where(norms > 0, norms, 1.0)).astype(np.float32)

    def blocks(self) -> Iterator[tuple[int, Singles]]:
        """Some devices (rows) with themselves and all that come after them; the first of them."""
        count = len(self._updates)
        height = max(1, BLOCK_BYTES // (4 * max(1, count)))
        for first in range(0, count - 1, height):
            rows = slice(first, first + height)
            with blas_threads(cores()):
                block = self._updates[rows] @ self._updates[first:].T
            block *= self._scale[rows, None]
            block *= self._scale[first:]
            yield first, np.clip(block, -1.0, 1.0, out=block)

    def cut(self, min_size: int) -> Bools | None:
        """Membership in the second child of the best cut; None if none leaves both children ``min_size`` members."""
        count = len(self._updates)
        if count < max(2, 2 * min_size):
            return None
        similar_to_all = (self._updates @ (self._scale @ self._updates)) * self._scale
        order = np.argsort(similar_to_all, kind="stable")
        name = np.argsort(order)  # which of two equally good cuts is taken must not depend on how devices are numbered
        tree, side = strongest_tree(self, count), np.empty(count, dtype=bool)
        start, end = np.sort([name[tree.start], name[tree.end]], axis=0)
        side[order] = smallest_cross_cut(_merges(Edges(start, end, tree.similarity), count), count, min_size)
        return ~side if side[0] else side

    def extremes(self, side: Bools) -> tuple[float, float]:
        """The smallest similarity within a child of a cut, and the largest across it."""
        within, across = 1.0, -1.0
        for first, block in self.blocks():
            apart = side[first : first + len(block), None] != side[first:]
            across = max(across, float(block.max(initial=-1.0, where=apart)))
            np.fill_diagonal(apart, True)
            within = min(within, float(block.min(initial=1.0, where=~apart)))
        return within, across


def strongest_tree(pairs: Pairs, count: int) -> Edges:
    """The maximum spanning tree of all pairs."""
    tree = NONE
    for first, block in pairs.blocks():
        found = _of_block(block)
        tree = _tree(tree.and_also(Edges(found.start + first, found.end + first, found.similarity)), count)
    return tree


def _of_block(block: Singles) -> Edges:
    """Edges among which is the tree of a block: of some devices with one another and with all that come after them."""
    height, width = block.shape
    rows, columns, part, found = np.arange(height), np.arange(width), np.arange(width), NONE
    parts = width
    while parts > 1:
        np.putmask(block, part[:height, None] == part, -np.inf)  # within a part nothing is asked for any more
        to_row, to_column = block.argmax(axis=0), block.argmax(axis=1)
        out = Edges(columns, to_row, block[to_row, columns].astype(np.float64))
        out = out.and_also(Edges(rows, to_column, block[rows, to_column].astype(np.float64)))
        order = np.lexsort((-out.similarity, part[out.start]))
        found = found.and_also(out.of(order[np.flatnonzero(np.diff(part[out.start[order]], prepend=-1))]))
        parts, named = connected_components(_graph(found, np.ones(len(found.start)), width), directed=False)
        part = named.astype(np.int64)
    return found


def _tree(edges: Edges, count: int) -> Edges:
    """The maximum spanning tree of some edges, as far as they go."""
    order = np.lexsort((-edges.similarity, edges.end, edges.start))
    again = np.diff(edges.start[order], prepend=-1) | np.diff(edges.end[order], prepend=-1)
    edges = edges.of(order[np.flatnonzero(again)])  # of two edges between the same pair the first
    length = np.empty(len(edges.start))
    length[np.argsort(-edges.similarity, kind="stable")] = np.arange(1.0, len(length) + 1)  # no two alike, and none 0
    chosen = minimum_spanning_tree(_graph(edges, length, count)).tocoo().data
    return edges.of(np.flatnonzero(np.isin(length, chosen)))


def _graph(edges: Edges, length: Floats, count: int) -> coo_array:
    return coo_array((length, (edges.start, edges.end)), shape=(count, count))


def _merges(tree: Edges, count: int) -> Floats:
    """A tree as a dendrogram of SciPy's: which two parts merge, from the strongest edge on."""
    order = np.lexsort((tree.end, tree.start, -tree.similarity))
    top, merges = list(range(2 * count - 1)), np.zeros((count - 1, 2))

    def part(device: int) -> int:
        while top[device] != device:
            top[device] = top[top[device]]
            device = top[device]
        return device

    pairs = zip(tree.start[order].tolist(), tree.end[order].tolist(), strict=True)
    for step, (start, end) in enumerate(pairs):
        merges[step] = part(start), part(end)
        for each in merges[step].astype(int).tolist():
            top[each] = count + step
    return merges
