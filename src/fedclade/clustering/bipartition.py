"""Cutting a cluster in two (Algorithm 1, line 21).

``minmax`` is the paper's: among all cuts whose children have at least ``min_size`` members, exactly one that makes
the largest similarity across the cut smallest. Without the size limit that is the top cut of single linkage: a
cut's largest cross similarity is at least the weakest edge of the maximum spanning tree, and cutting there reaches
it. With the limit, a cut of value t or less exists if and only if the connected parts of the graph {similarity > t}
can be dealt into two sides that are both large enough; merging only makes that harder, so the best t is found by
bisection over the tree's edges.

``average`` and ``complete`` linkage cut their dendrogram at the top; parts smaller than ``min_size`` are set aside
on the way down and join the nearer child. No cut exists when too few members are left.
"""

from typing import Literal

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints, Singles


def bipartition(similarity: Singles, method: Literal["minmax", "average", "complete"], min_size: int) -> Bools | None:
    """Membership in the second child, or None if no cut leaves both children ``min_size`` members."""
    from scipy.cluster.hierarchy import linkage  # takes longer to import than a plan needs

    count = len(similarity)
    if count < 2 * min_size or count < 2:
        return None
    # which of several equally good cuts is taken must not depend on how the devices are numbered
    order = np.argsort([np.sort(row).sum(dtype=np.float64) for row in similarity], kind="stable")
    merges = linkage(_distances(similarity, order), "single" if method == "minmax" else method)
    cut = (
        smallest_cross_cut(merges, count, min_size)
        if method == "minmax"
        else _top_cut(merges, similarity, order, min_size)
    )
    if cut is None:
        return None
    side = np.empty(count, dtype=bool)
    side[order] = cut
    # which child is the second must not depend on the method: the one without the first member
    return ~side if side[0] else side


def _distances(similarity: Singles, order: Ints) -> Floats:
    """1 - similarity of each pair, in SciPy's condensed form; filled line by line, for K² numbers are many."""
    count = len(order)
    distances = np.empty(count * (count - 1) // 2)
    end = 0
    for position, member in enumerate(order):
        start, end = end, end + count - 1 - position
        distances[start:end] = similarity[member, order[position + 1 :]]
    return np.subtract(1.0, distances, out=distances)


def smallest_cross_cut(merges: Floats, count: int, min_size: int) -> Bools:
    """The finest bisection point of single linkage at which the parts can still be dealt into two sides."""
    done, limit = 0, count - 1  # after `done` merges a deal is possible; after `limit`, all are one part
    while limit - done > 1:
        middle = (done + limit) // 2
        if _deal(_parts(merges, count, middle), min_size) is None:
            limit = middle
        else:
            done = middle
    parts = _parts(merges, count, done)
    chosen = _deal(parts, min_size)
    assert chosen is not None  # singletons can always be dealt, since count >= 2 * min_size
    return np.isin(parts, chosen)


def _parts(merges: Floats, count: int, done: int) -> np.ndarray:
    """The part each member is in after the first ``done`` merges, numbered as in the dendrogram."""
    part = np.arange(2 * count - 1)
    for step in range(done - 1, -1, -1):  # from the last merge down, children take their parent's name
        left, right = merges[step, :2].astype(int)
        part[left] = part[right] = part[count + step]
    return part[:count]


def _deal(parts: np.ndarray, min_size: int) -> np.ndarray | None:
    """Parts that together make one side of at least min_size and leave at least min_size, or None.

    The largest part alone, if that will do; else by subset sums.
    """
    names, sizes = np.unique(parts, return_counts=True)
    total = len(parts)
    largest = int(np.argmax(sizes))
    if min_size <= sizes[largest] <= total - min_size:
        return names[largest : largest + 1]
    if sizes[largest] > total - min_size:  # whichever side it is on, the other is too small
        return None
    reachable = [1]  # bit s of reachable[i]: some of the first i parts sum to s
    for size in sizes:
        reachable.append(reachable[-1] | reachable[-1] << int(size))
    target = next((s for s in range(min_size, total - min_size + 1) if reachable[-1] >> s & 1), None)
    if target is None:
        return None
    chosen = []
    for i in range(len(sizes) - 1, -1, -1):
        if not reachable[i] >> target & 1:
            chosen.append(names[i])
            target -= int(sizes[i])
    return np.array(chosen)


def _top_cut(merges: Floats, similarity: Singles, order: Ints, min_size: int) -> Bools | None:
    """The highest split of the dendrogram with two large enough sides; what was too small joins the nearer one."""
    count = len(similarity)
    node = 2 * count - 2
    aside: list[np.ndarray] = []
    while node >= count:
        left, right = (_members(merges, count, child) for child in merges[node - count, :2].astype(int))
        small, large = sorted((left, right), key=len)
        if len(small) >= min_size:
            side = np.zeros(count, dtype=bool)
            side[small] = True
            for loose in aside:
                near_small, near_large = (similarity[np.ix_(order[loose], order[part])] for part in (small, large))
                side[loose] = near_small.mean() > near_large.mean()
            return side
        aside.append(small)
        node = int(merges[node - count, 0 if large is left else 1])
    return None


def _members(merges: Floats, count: int, node: int) -> np.ndarray:
    """The members below a node of the dendrogram."""
    found, pending = [], [node]
    while pending:
        node = pending.pop()
        if node < count:
            found.append(node)
        else:
            pending += merges[node - count, :2].astype(int).tolist()
    return np.array(found)
