"""Cuts of clusters so large that not all pairs of devices can be held: by a graph of nearest neighbours.

For ``minmax`` every device is joined to the few whose updates are most like its own, found block by block. Parts of the
graph that hang together in no way are joined where they are closest, and the cut is that of single linkage on this
graph. Memory grows with the devices, time with their square, as every pair is looked at once.

``average`` and ``complete`` linkage of so many would take hours even on such a graph. They are made of some devices,
spread evenly from those most like all others to those least like them; the others join the side of most
of their nearest neighbours among these.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fedclade.clustering.bipartition import bipartition, smallest_cross_cut
from fedclade.config.methods import Linkage
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.threads import blas_threads, cores
from fedclade.core.updates import cosine_similarity, update_norms

WORKING_BYTES = 1 << 28  # of similarities at once
LINKED = 2_000  # devices of which average and complete linkage are made


def directions(updates: Singles) -> Singles:
    """Each update at length 1; a zero update stays zero."""
    norms = update_norms(updates).astype(np.float32)
    norms[norms == 0] = 1
    return np.asarray(updates / norms[:, None])


def bipartition_by_neighbours(unit: Singles, method: Linkage, min_size: int, neighbours: int) -> Bools | None:
    """Membership in the second child, or None if no cut leaves both children ``min_size`` members.

    ``unit``: the direction of each device's update, or of a sketch of it.
    """
    count = len(unit)
    if count < max(2, 2 * min_size):
        return None
    order = np.argsort(unit @ unit.sum(axis=0), kind="stable")  # a cut must not depend on how devices are numbered
    cut = (
        _by_graph(unit[order], min_size, neighbours)
        if method == "minmax"
        else _by_some(unit[order], method, min_size, neighbours)
    )
    if cut is None:
        return None
    side = np.empty(count, dtype=bool)
    side[order] = cut
    return ~side if side[0] else side


def _by_graph(unit: Singles, min_size: int, neighbours: int) -> Bools | None:
    from sklearn.cluster import linkage_tree  # takes longer to import than a plan needs

    graph = neighbour_graph(unit, min(neighbours, len(unit) - 1))
    children, _, _, _, heights = linkage_tree(unit, graph, linkage="single", affinity="cosine", return_distance=True)
    return smallest_cross_cut(np.column_stack([children, heights]), len(unit), min_size)


def _by_some(unit: Singles, method: Linkage, min_size: int, neighbours: int) -> Bools | None:
    some = np.unique(np.linspace(0, len(unit) - 1, min(LINKED, len(unit))).astype(np.int64))
    cut = bipartition(cosine_similarity(unit[some]), method, min_size)
    if cut is None:
        return None
    from sklearn import config_context
    from sklearn.neighbors import KNeighborsClassifier

    with config_context(working_memory=WORKING_BYTES >> 20), blas_threads(cores()):
        known = KNeighborsClassifier(min(neighbours, len(some)), metric="cosine").fit(unit[some], cut)
        side: Bools = known.predict(unit)
    side[some] = cut
    return side


def neighbour_graph(unit: Singles, neighbours: int) -> csr_array:
    """Distances 1 - cosine of each to its nearest neighbours, symmetric, and in one piece."""
    from sklearn import config_context
    from sklearn.neighbors import kneighbors_graph

    with config_context(working_memory=WORKING_BYTES >> 20), blas_threads(cores()):
        graph = csr_array(kneighbors_graph(unit, neighbours, mode="distance", metric="cosine"))
        while (found := connected_components(graph, directed=False))[0] > 1:
            graph = _joined(graph, *_bridges(unit, found[1].astype(np.int64)))
    start, end, length = _entries(graph)
    return _joined(graph, end, start, length)


def _bridges(unit: Singles, part: Ints) -> tuple[Ints, Ints, Floats]:
    """The shortest way out of each part of a graph but the largest: from, to, distance."""
    from sklearn.neighbors import NearestNeighbors

    largest, ways = int(np.bincount(part).argmax()), list[tuple[int, int, float]]()
    for name in np.unique(part).tolist():
        if name == largest:
            continue
        inside, outside = np.flatnonzero(part == name), np.flatnonzero(part != name)
        search = NearestNeighbors(n_neighbors=1, metric="cosine").fit(unit[inside])
        distance, nearest = search.kneighbors(unit[outside])
        best = int(distance[:, 0].argmin())
        ways.append((int(inside[nearest[best, 0]]), int(outside[best]), float(distance[best, 0])))
    start, end, length = zip(*ways, strict=True)
    return np.array(start), np.array(end), np.array(length)


def _entries(graph: csr_array) -> tuple[Ints, Ints, Floats]:
    found = graph.tocoo()
    return found.row.astype(np.int64), found.col.astype(np.int64), found.data.astype(np.float64)


def _joined(graph: csr_array, start: Ints, end: Ints, length: Floats) -> csr_array:
    """With more edges; of two between the same pair one stays. A distance of 0 is an edge, too."""
    row, column, known = _entries(graph)
    rows, columns = np.concatenate([row, start]), np.concatenate([column, end])
    pairs, first = np.unique(rows * np.int64(graph.shape[0]) + columns, return_index=True)
    lengths = np.maximum(np.concatenate([known, length]), 1e-12)[first]  # SciPy takes a 0 for no edge
    return csr_array((lengths, np.divmod(pairs, graph.shape[0])), shape=graph.shape)


def extremes(unit: Singles, side: Bools) -> tuple[float, float]:
    """The smallest cosine within a child of a cut, and the largest across it: of all pairs, block by block."""
    children = unit[~side], unit[side]
    height = max(1, WORKING_BYTES // (4 * len(unit)))
    within, across = 1.0, -1.0
    with blas_threads(cores()):
        for child in children:
            for first in range(0, len(child), height):
                within = min(within, float((child[first : first + height] @ child[first:].T).min()))
        for first in range(0, len(children[0]), height):
            across = max(across, float((children[0][first : first + height] @ children[1].T).max()))
    return max(-1.0, within), min(1.0, across)
