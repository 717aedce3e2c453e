"""Hierarchical clustering, k-means and distances: by hand, and against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedclade.clustering.grouping import agglomerated, by_first_member, coordinates, distances, k_means, products
from fedclade.core.updates import HeldUpdates

SEEDS, COUNTS = st.integers(0, 9999), st.integers(2, 8)


def held(rows) -> tuple[HeldUpdates, np.ndarray]:
    matrix = np.array(rows, dtype=np.float32)
    return HeldUpdates.of(np.arange(len(matrix)), matrix), np.arange(len(matrix))


def line(*places: float) -> np.ndarray:
    return np.abs(np.subtract.outer(places, places))


def test_distances_by_hand():
    updates, both = held([[3, 0], [0, 4]])
    assert [distances(updates, both, kind)[0, 1] for kind in ("manhattan", "euclidean", "cosine")] == pytest.approx(
        [7, 5, 1]
    )


@given(SEEDS, COUNTS)
def test_distances_and_coordinates_are_those_of_the_rows(seed, count):
    rows = np.random.default_rng(seed).normal(size=(count, 4))
    updates, devices = held(rows)
    for kind, name in (("manhattan", "cityblock"), ("euclidean", "euclidean"), ("cosine", "cosine")):
        np.testing.assert_allclose(distances(updates, devices, kind), cdist(rows, rows, name), atol=2e-3)
    points = coordinates(products(updates, devices))
    np.testing.assert_allclose(cdist(points, points), cdist(rows, rows), atol=2e-3)


def test_merging_ends_at_the_number_of_clusters_or_at_the_threshold():
    apart = line(0, 1, 10, 11, 30)
    assert agglomerated(apart, "complete", 2, None).tolist() == [0, 0, 0, 0, 1]
    assert agglomerated(apart, "complete", 3, None).tolist() == [0, 0, 1, 1, 2]
    assert agglomerated(apart, "complete", None, 5.0).tolist() == [0, 0, 1, 1, 2]
    assert agglomerated(apart, "single", None, 9.5).tolist() == [0, 0, 0, 0, 1]
    assert agglomerated(apart, "complete", None, 9.5).tolist() == [0, 0, 1, 1, 2]  # their ends are 11 apart
    assert agglomerated(apart, "average", None, None).tolist() == [0] * 5
    assert agglomerated(line(3), "average", 4, None).tolist() == [0]
    assert agglomerated(line(0, 5), "ward", 4, None).tolist() == [0, 1]


@given(st.lists(st.integers(0, 4), min_size=1))
def test_groups_are_numbered_by_their_first_members(labels):
    found = by_first_member(np.array(labels))
    seen = list(dict.fromkeys(labels))
    assert found.tolist() == [seen.index(label) for label in labels]


@pytest.mark.parametrize("seed", range(5))
def test_k_means_finds_groups_that_are_far_apart(seed):
    rng = np.random.default_rng(seed)
    group = by_first_member(rng.permutation(np.repeat(np.arange(3), (7, 3, 5))))
    points = np.eye(4)[group] * 10 + rng.normal(0, 0.5, (15, 4))
    assert k_means(points, 3, np.random.default_rng(seed)).tolist() == group.tolist()


def test_k_means_of_few_points_or_of_points_that_coincide():
    rng = np.random.default_rng(1)
    assert k_means(np.array([[1.0], [9.0]]), 5, rng).tolist() == [0, 1]
    assert k_means(np.ones((4, 2)), 2, rng).tolist() == [0, 0, 0, 0]
