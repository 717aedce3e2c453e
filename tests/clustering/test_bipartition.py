"""Cutting a cluster in two: exact against all cuts, against plain agglomeration, and with planted groups."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedclade.clustering import bipartition

SEEDS = st.integers(0, 2**32 - 1)
LINKAGES = ("average", "complete")


def random_similarity(seed, count, levels=None):
    """Symmetric, in [-1, 1]; with a number of levels, many values are the same."""
    values = np.random.default_rng(seed).uniform(-1.0, 1.0, (count, count))
    if levels:
        values = np.round(values * levels) / levels
    upper = np.triu(values, 1)
    return (upper + upper.T + np.eye(count)).astype(np.float32)


def block_similarity(groups, within=0.3, across=-0.05, noise=0.04):
    """Cosines as real updates have them; ``groups`` names each member's planted group."""
    same = np.equal.outer(groups, groups)
    return np.where(same, within, across).astype(np.float32) + noise * random_similarity(1, len(groups))


def cross_max(similarity, side):
    return similarity[np.ix_(side, ~side)].max()


def best_by_enumeration(similarity, min_size):
    """The smallest largest cross similarity over all 2^(n-1) cuts, the first member always on the first side."""
    count = len(similarity)
    cuts = (np.array((False, *rest)) for rest in product((False, True), repeat=count - 1))
    return min(
        (cross_max(similarity, side) for side in cuts if min_size <= side.sum() <= count - min_size), default=None
    )


def partition(side):
    return {frozenset(np.flatnonzero(side).tolist()), frozenset(np.flatnonzero(~side).tolist())}


@pytest.mark.parametrize("min_size", [1, 2, 3])
@pytest.mark.parametrize("count", range(2, 11))
@settings(max_examples=25)
@given(seed=SEEDS, levels=st.sampled_from([None, 1, 4]))
def test_minmax_is_the_best_of_all_cuts(count, min_size, seed, levels):
    similarity = random_similarity(seed, count, levels)
    side = bipartition(similarity, "minmax", min_size)
    best = best_by_enumeration(similarity, min_size)
    if best is None:
        assert side is None
        assert count < 2 * min_size
    else:
        assert min_size <= side.sum() <= count - min_size
        assert cross_max(similarity, side) == best


@given(seed=SEEDS, count=st.integers(2, 12), levels=st.sampled_from([None, 1, 4]), min_size=st.integers(1, 4))
def test_every_method_keeps_the_first_member_first_and_the_smallest_size(seed, count, levels, min_size):
    for method in ("minmax", *LINKAGES):
        side = bipartition(random_similarity(seed, count, levels), method, min_size)
        assert side is None or (not side[0] and min_size <= side.sum() <= count - min_size)


@pytest.mark.parametrize(("method", "closeness"), [("average", np.mean), ("complete", np.min)])
@settings(max_examples=50)
@given(seed=SEEDS, count=st.integers(2, 10))
def test_linkage_cuts_where_merging_the_closest_parts_leaves_two(method, closeness, seed, count):
    similarity = random_similarity(seed, count).astype(np.float64)  # exact enough to compare means
    parts = [[member] for member in range(count)]
    while len(parts) > 2:
        pair = max(combinations(parts, 2), key=lambda pair: closeness(similarity[np.ix_(*pair)]))
        parts = [part for part in parts if part not in pair] + [pair[0] + pair[1]]
    assert partition(bipartition(similarity, method, 1)) == {frozenset(part) for part in parts}


@settings(max_examples=200)
@given(seed=SEEDS, count=st.integers(2, 10), min_size=st.integers(1, 3))
@example(seed=21, count=6, min_size=3)  # parts of 2, 2, 1 and 1 can be dealt in two equally good ways
def test_the_cut_does_not_depend_on_how_devices_are_numbered(seed, count, min_size):
    similarity = random_similarity(seed, count)
    order = np.random.default_rng(seed).permutation(count)
    for method in ("minmax", *LINKAGES):
        side = bipartition(similarity, method, min_size)
        renumbered = bipartition(similarity[np.ix_(order, order)], method, min_size)
        if side is None:
            assert renumbered is None
        else:
            back = np.empty_like(side)
            back[order] = renumbered
            assert partition(back) == partition(side), method


@pytest.mark.parametrize("method", ["minmax", *LINKAGES])
@pytest.mark.parametrize("min_size", [1, 2, 5])
def test_two_planted_groups_are_found(method, min_size):
    groups = np.array([0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0])
    side = bipartition(block_similarity(groups), method, min_size)
    assert side.tolist() == (groups == 1).tolist()


@pytest.mark.parametrize("method", LINKAGES)
@pytest.mark.parametrize("nearer", [0, 1])
def test_a_noisy_device_is_set_aside_and_joins_the_nearer_child(method, nearer):
    groups = np.array([0, 0, 0, 1, 1, 1, 1])
    similarity = block_similarity(np.append(groups, 2), across=0.0)
    similarity[7, :7] = similarity[:7, 7] = np.where(groups == nearer, -0.5, -0.6)
    alone = bipartition(similarity, method, 1)
    assert partition(alone) == {frozenset({7}), frozenset(range(7))}
    side = bipartition(similarity, method, 2)
    assert side[:7].tolist() == (groups == 1).tolist()
    assert side[7] == (nearer == 1)


@pytest.mark.parametrize("method", LINKAGES)
def test_linkage_has_no_cut_where_only_single_devices_come_off(method):
    # member k is similar to all before it, each less than the last: every split of the dendrogram takes one member off
    falling = 0.9 - 0.1 * np.arange(6, dtype=np.float32)
    similarity = falling[np.maximum.outer(np.arange(6), np.arange(6))]
    assert bipartition(similarity, method, 2) is None
    assert partition(bipartition(similarity, method, 1)) == {frozenset(range(5)), frozenset({5})}
