"""The cut made block by block is the one of all pairs at once, and the tree behind it is the strongest there is."""

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree

from fedclade.clustering import bipartition, cut_facts, spanning
from fedclade.clustering.similarity import discounted
from fedclade.clustering.spanning import Pairs, strongest_tree
from fedclade.core.updates import cosine_similarity

SEEDS, COUNTS, HEIGHTS = st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(1, 31)


@contextmanager
def blocks_of(rows: int, count: int):
    """So many rows of similarities at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spanning, "BLOCK_BYTES", 4 * count * rows)
        yield


def updates_of(seed: int, count: int, alike: bool = False) -> np.ndarray:
    """Random updates; ``alike``: many of them are the same, or zero."""
    rows = np.random.default_rng(seed).normal(size=(count, 5))
    return (np.sign(rows) * (rows[:, :1] > -0.5) if alike else rows).astype(np.float32)


def partition(side):
    return {frozenset(np.flatnonzero(side).tolist()), frozenset(np.flatnonzero(~side).tolist())}


@pytest.mark.parametrize("alike", [False, True])
@settings(max_examples=60)
@given(SEEDS, COUNTS, HEIGHTS)
def test_the_tree_is_the_strongest_of_all(alike, seed, count, rows):
    updates = updates_of(seed, count, alike)
    with blocks_of(rows, count):
        tree = strongest_tree(Pairs(updates), count)
    distances = 2.0 - cosine_similarity(updates).astype(np.float64)  # above 0, as SciPy takes a 0 for no edge
    whole = minimum_spanning_tree(np.triu(distances, 1))
    assert len(tree.start) == count - 1
    np.testing.assert_allclose(np.sort(2.0 - tree.similarity), np.sort(whole.data), atol=1e-6)
    told = distances[tree.start, tree.end]
    np.testing.assert_allclose(2.0 - tree.similarity, told, atol=1e-6)


@pytest.mark.parametrize("min_size", [1, 2, 4])
@settings(max_examples=40)
@given(SEEDS, COUNTS, HEIGHTS, st.booleans())
def test_the_cut_is_that_of_all_pairs_at_once(min_size, seed, count, rows, old):
    updates = updates_of(seed, count)
    trusted = np.random.default_rng(seed).choice([1.0, 0.5], count) if old else np.ones(count)
    similarity = discounted(cosine_similarity(updates), trusted)
    exact = bipartition(similarity, "minmax", min_size)
    with blocks_of(rows, count):
        pairs = Pairs(updates, trusted)
        side = pairs.cut(min_size)
        assert (side is None) == (exact is None)
        if side is not None:
            assert partition(side) == partition(exact)
            assert not side[0]
            facts = cut_facts(similarity, side)
            assert pairs.extremes(side) == pytest.approx((facts.within_min, facts.cross_max), abs=1e-6)


@settings(max_examples=60)
@given(SEEDS, st.integers(4, 30), HEIGHTS, st.integers(1, 3))
def test_where_many_are_alike_no_cut_is_better(seed, count, rows, min_size):
    updates = updates_of(seed, count, alike=True)
    similarity = cosine_similarity(updates)
    exact = bipartition(similarity, "minmax", min_size)
    with blocks_of(rows, count):
        side = Pairs(updates).cut(min_size)
    if exact is None:
        assert side is None
    else:
        assert min_size <= side.sum() <= count - min_size
        least, found = (similarity[np.ix_(cut, ~cut)].max() for cut in (exact, side))
        assert found == pytest.approx(least, abs=1e-6)


@settings(max_examples=40)
@given(SEEDS, COUNTS, HEIGHTS, st.integers(1, 3))
def test_the_cut_does_not_depend_on_how_devices_are_numbered(seed, count, rows, min_size):
    updates, order = updates_of(seed, count), np.random.default_rng(seed).permutation(count)
    with blocks_of(rows, count):
        side, again = (Pairs(each).cut(min_size) for each in (updates, updates[order]))
    if side is None:
        assert again is None
    else:
        back = np.empty_like(again)
        back[order] = again
        assert partition(back) == partition(side)


def test_planted_groups_are_found_and_updates_are_left_as_they_were():
    draws, group = np.random.default_rng(1), np.repeat([0, 1], [80, 40])
    updates = (draws.normal(size=(2, 64))[group] + draws.normal(size=(120, 64))).astype(np.float32)
    before = updates.copy()
    with blocks_of(7, 120):
        assert partition(Pairs(updates).cut(2)) == partition(group == 1)
    np.testing.assert_array_equal(updates, before)
