"""Groups of any number among devices: hierarchical clustering of distances, k-means of updates, place by loss."""

from typing import Literal, TypeAlias

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from fedclade.aggregation import Pool
from fedclade.clustering.method import Conversation, Decisions, Move
from fedclade.config import AggregationConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.state import State, stack
from fedclade.core.updates import Updates
from fedclade.fleet.fleet import Fleet
from fedclade.fleet.questions import Evaluate

Distance: TypeAlias = Literal["manhattan", "euclidean", "cosine"]
Linkage: TypeAlias = Literal["complete", "average", "single", "ward"]
STARTS, MOST_TURNS = 10, 300  # of k-means; the best start counts


def products(updates: Updates, devices: Ints) -> Floats:
    """All inner products of updates."""
    return Pool(updates, devices, np.full(len(devices), 1 / len(devices)), AggregationConfig()).products()


def distances(updates: Updates, devices: Ints, kind: Distance) -> Floats:
    """Of all pairs of updates: Manhattan (the updates' rows are gone through), Euclidean, or 1 less the cosine."""
    if kind == "cosine":
        apart = 1.0 - updates.cosines(devices).astype(np.float64)
    elif kind == "euclidean":
        squares = products(updates, devices)
        apart = np.sqrt(np.maximum(np.diag(squares)[:, None] + np.diag(squares) - 2 * squares, 0.0))
    else:
        rows = updates.rows(devices)
        apart = np.stack([np.abs(rows - row).sum(axis=1, dtype=np.float64) for row in rows])
    np.fill_diagonal(apart, 0.0)
    return np.asarray((apart + apart.T) / 2)


def agglomerated(apart: Floats, method: Linkage, clusters: int | None, threshold: float | None) -> Ints:
    """The group of each row, numbered by their first members: so many groups, or none wider than the threshold."""
    if len(apart) < 2:
        return np.zeros(len(apart), dtype=np.int64)
    merges = linkage(squareform(apart, checks=False), method)
    if clusters is not None:
        found = fcluster(merges, min(clusters, len(apart)), "maxclust")
    else:
        found = fcluster(merges, np.inf if threshold is None else threshold, "distance")
    return by_first_member(found.astype(np.int64))


def by_first_member(labels: Ints) -> Ints:
    """The same groups, numbered in the order of their first members."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def k_means(points: Floats, clusters: int, rng: np.random.Generator) -> Ints:
    """The group of each point, numbered by their first members: the best of some starts with k-means++."""
    found = [_lloyd(points, _spread_out(points, min(clusters, len(points)), rng)) for _ in range(STARTS)]
    return by_first_member(min(found, key=lambda each: each[1])[0])


def _spread_out(points: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """First centres by k-means++: each next one a point drawn in proportion to its squared distance from the others."""
    chosen = [int(rng.integers(len(points)))]
    for _ in range(clusters - 1):
        squares = _squares(points, points[chosen]).min(axis=1)
        total = squares.sum()
        chosen.append(int(rng.choice(len(points), p=squares / total if total > 0 else None)))
    return points[chosen]


def _lloyd(points: Floats, centres: Floats) -> tuple[Ints, float]:
    """Each point to the nearest centre, each centre to its points' mean, until nothing changes; and how far apart."""
    labels = np.full(len(points), -1)
    for _ in range(MOST_TURNS):
        before, labels = labels, _squares(points, centres).argmin(axis=1)
        if (labels == before).all():
            break
        centres = np.stack(
            [points[labels == k].mean(axis=0) if (labels == k).any() else centre for k, centre in enumerate(centres)]
        )
    return labels, float(_squares(points, centres).min(axis=1).sum())


def _squares(points: Floats, centres: Floats) -> Floats:
    return np.asarray(((points[:, None] - centres) ** 2).sum(axis=2))


def coordinates(inner: Floats) -> Floats:
    """Points with these inner products: updates of any width as rows of at most K numbers, with the same distances."""
    values, vectors = np.linalg.eigh(inner)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def parts_of(state: State, devices: Ints, labels: Ints) -> tuple[Ints, ...]:
    """The groups with all devices in them: whoever has no label waits in the largest."""
    parts = [devices[labels == each] for each in range(labels.max(initial=-1) + 1)]
    waiting = np.setdiff1d(np.arange(state.devices), devices)
    largest = int(np.argmax([len(part) for part in parts]))
    parts[largest] = np.union1d(parts[largest], waiting)
    return tuple(parts)


def placed_by_loss(state: State, devices: Ints, fleet: Fleet) -> Decisions:
    """Each of these devices takes the leaf whose model has the smallest loss on its training data."""
    names = [leaf.name for leaf in state.tree.leaves()]
    if len(names) == 1 or len(devices) == 0:
        return Decisions(state.method)
    talk = Conversation(fleet, state.devices)
    each = np.repeat(np.arange(len(names)), len(devices))
    answer = talk.ask(Evaluate(stack(state.models, names), np.tile(devices, len(names)), each, "train"))
    losses = np.where(np.isnan(answer.loss), np.inf, answer.loss).reshape(len(names), len(devices))
    leaf_of = state.tree.leaf_of()
    left = {leaf.name: len(leaf.devices) for leaf in state.tree.leaves()}
    moves = []
    for device, choice, least in zip(devices.tolist(), losses.argmin(axis=0), losses.min(axis=0), strict=True):
        source, to = leaf_of[device], names[choice]
        if source != to and np.isfinite(least) and left[source] > 1:
            left[source] -= 1
            moves.append(Move(device, to, {"from": source, "by": "smallest loss"}, "placed"))
    return Decisions(state.method, moves=tuple(moves), notes=talk.notes(), cost=talk.cost)
