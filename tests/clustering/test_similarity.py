"""Norms and cosines of updates, against loops and numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.clustering import cosine_similarity, discounted, mean_similarity_to, mean_update_norm, update_norms
from fedclade.clustering import similarity as similarity_module


def random_updates(seed, devices=8, parameters=30):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-4, 2, (devices, 1))  # norms of very different size
    return (scale * rng.normal(0.3, 1.0, (devices, parameters))).astype(np.float32)


def cosine(a, b):
    dot = math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    return dot / (math.hypot(*map(float, a)) * math.hypot(*map(float, b)))


@given(st.integers(0, 2**32 - 1))
def test_cosines_are_those_of_a_double_loop_and_symmetric_within_one(seed):
    updates = random_updates(seed)
    similarity = cosine_similarity(updates)
    expected = [[cosine(a, b) for b in updates] for a in updates]
    assert similarity == pytest.approx(np.array(expected), abs=1e-5)
    assert np.array_equal(similarity, similarity.T)
    assert np.abs(similarity).max() <= 1.0


@pytest.mark.parametrize("entries", [1, 8, 100])
def test_cosines_are_the_same_however_many_parameters_are_taken_at_once(entries, monkeypatch):
    updates = random_updates(3)
    at_once = cosine_similarity(updates)
    monkeypatch.setattr(similarity_module, "CHUNK_ENTRIES", entries)
    assert cosine_similarity(updates) == pytest.approx(at_once, abs=1e-6)


def test_no_updates_have_no_cosines():
    assert cosine_similarity(np.zeros((0, 5), dtype=np.float32)).shape == (0, 0)


def test_a_zero_update_is_similar_to_nothing():
    updates = np.array([[0, 0], [3, 4], [-6, -8]], dtype=np.float32)
    assert cosine_similarity(updates) == pytest.approx(np.array([[0, 0, 0], [0, 1, -1], [0, -1, 1]]), abs=1e-6)


def test_norms_by_hand():
    # |(3, 4)| = 5, |(-5, 12)| = 13
    assert update_norms(np.array([[3, 4], [-5, 12], [0, 0]], dtype=np.float32)).tolist() == [5.0, 13.0, 0.0]


@pytest.mark.parametrize(
    ("weights", "norm"),
    [
        ([1.0, 1.0], math.sqrt(65.0)),  # mean of (3, 4) and (-5, 12) is (-1, 8)
        ([3.0, 1.0], math.sqrt(37.0)),  # (9 - 5, 12 + 12) / 4 = (1, 6)
        ([300.0, 100.0], math.sqrt(37.0)),  # only the ratio of the weights counts
    ],
)
def test_norm_of_the_weighted_mean_by_hand(weights, norm):
    updates = np.array([[3, 4], [-5, 12]], dtype=np.float32)
    assert mean_update_norm(updates, np.array(weights)) == pytest.approx(norm)


def test_opposite_updates_have_no_mean_however_large_they_are():
    updates = np.array([[300, -400], [-300, 400]], dtype=np.float32)
    assert mean_update_norm(updates, np.ones(2)) == 0.0


@given(st.integers(0, 2**32 - 1))
def test_mean_similarity_to_a_group_is_the_mean_of_the_cosines(seed):
    updates = random_updates(seed)
    known, group = np.array([6, 1]), np.array([0, 3, 4])
    expected = [np.mean([cosine(updates[k], updates[g]) for g in group]) for k in known]
    assert mean_similarity_to(updates, known, group) == pytest.approx(expected, abs=1e-5)


def test_discounted_similarities_fade_with_both_updates_trust_and_keep_their_sign():
    similarity = np.array([[1.0, 0.8, -0.4], [0.8, 1.0, 0.0], [-0.4, 0.0, 1.0]], dtype=np.float32)
    found = discounted(similarity, np.array([1.0, 0.5, 0.25]))
    assert found == pytest.approx(np.array([[1.0, 0.4, -0.1], [0.4, 1.0, 0.0], [-0.1, 0.0, 1.0]]))
    assert np.array_equal(discounted(similarity, np.ones(3)), similarity)
