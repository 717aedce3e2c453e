"""Norms and cosines of updates, against loops and numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.clustering.similarity import absurd, discounted, mean_similarity_to, mean_update_norm
from fedclade.core import updates as updates_module
from fedclade.core.updates import HeldUpdates, cosine_similarity, sketch, update_norms


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
    monkeypatch.setattr(updates_module, "CHUNK_ENTRIES", entries)
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
    updates = HeldUpdates.of(np.arange(2), np.array([[3, 4], [-5, 12]], dtype=np.float32))
    assert mean_update_norm(updates, np.arange(2), np.array(weights)) == pytest.approx(norm)
    assert mean_update_norm(updates, np.arange(2), np.array(weights), 2.0) == pytest.approx(2 * norm)


def test_opposite_updates_have_no_mean_however_large_they_are():
    updates = HeldUpdates.of(np.arange(2), np.array([[300, -400], [-300, 400]], dtype=np.float32))
    assert mean_update_norm(updates, np.arange(2), np.ones(2)) == 0.0


@given(st.integers(0, 2**32 - 1))
def test_mean_similarity_to_a_group_is_the_mean_of_the_cosines(seed):
    updates = random_updates(seed)
    known, group = np.array([6, 1]), np.array([0, 3, 4])
    expected = [np.mean([cosine(updates[k], updates[g]) for g in group]) for k in known]
    held = HeldUpdates.of(np.arange(len(updates)), updates)
    assert mean_similarity_to(held, known, group) == pytest.approx(expected, abs=1e-5)
    assert mean_similarity_to(held, known[:0], group).shape == (0,)


def test_discounted_similarities_fade_with_both_updates_trust_and_keep_their_sign():
    similarity = np.array([[1.0, 0.8, -0.4], [0.8, 1.0, 0.0], [-0.4, 0.0, 1.0]], dtype=np.float32)
    found = discounted(similarity, np.array([1.0, 0.5, 0.25]))
    assert found == pytest.approx(np.array([[1.0, 0.4, -0.1], [0.4, 1.0, 0.0], [-0.1, 0.0, 1.0]]))
    assert np.array_equal(discounted(similarity, np.ones(3)), similarity)


# -------------------------------------------------------------------------------- sketches


def random_signs(seed, parameters):
    return np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.float32), parameters)


@given(st.integers(1, 6), st.integers(1, 80), st.integers(1, 30), st.integers(0, 999))
def test_a_sketch_adds_up_signed_parameters_so_many_apart(rows, parameters, width, seed):
    updates, signs = random_updates(seed, rows, parameters), random_signs(seed, parameters)
    small = sketch(updates, signs, width)
    assert (small.shape, small.dtype) == ((rows, width), np.float32)
    for column in range(width):
        expected = (updates[:, column::width].astype(np.float64) * signs[column::width]).sum(axis=1)
        np.testing.assert_allclose(small[:, column], expected, rtol=1e-4, atol=1e-4 * np.abs(updates).max())


def test_a_sketch_as_wide_as_the_update_keeps_every_inner_product():
    updates = random_updates(3)
    small = sketch(updates, random_signs(1, 30), 30)
    np.testing.assert_allclose(cosine_similarity(small), cosine_similarity(updates), atol=1e-5)


@pytest.mark.parametrize("width", [16, 64, 256])
@pytest.mark.parametrize("truth", [0.0, 0.6])
def test_cosines_of_sketches_are_right_on_average_with_an_error_of_one_over_the_root_of_the_width(width, truth):
    rng = np.random.default_rng(7)
    one, other = np.linalg.qr(rng.normal(size=(4096, 2)))[0].T
    updates = np.stack([one, truth * one + math.sqrt(1 - truth**2) * other]).astype(np.float32)
    products = [np.prod(sketch(updates, random_signs(seed, 4096), width), axis=0).sum() for seed in range(400)]
    error = math.sqrt((1 + truth**2) / width)
    assert np.mean(products) == pytest.approx(truth, abs=4 * error / math.sqrt(400))
    assert np.std(products) == pytest.approx(error, rel=0.2)


# -------------------------------------------------------------------------------- updates that cannot be right

SIZES = st.lists(st.tuples(st.floats(0.1, 10), st.integers(1, 50)), min_size=1, max_size=30)


@given(SIZES, st.floats(0.01, 100))
def test_what_is_absurd_does_not_depend_on_scale_or_order(pairs, factor):
    norms, steps = np.array([norm for norm, _ in pairs]), np.array([count for _, count in pairs])
    found = absurd(norms, steps)
    near = np.abs(norms / (10 * np.median(norms)) - 1) < 1e-9
    near |= np.abs(norms / steps / (10 * np.median(norms / steps)) - 1) < 1e-9
    assert (absurd(factor * norms, steps) == found)[~near].all()
    np.testing.assert_array_equal(absurd(norms[::-1], steps[::-1]), found[::-1])


@given(SIZES)
def test_at_most_half_of_a_cluster_is_absurd(pairs):
    """Whatever most devices do is what is usual."""
    norms, steps = np.array([norm for norm, _ in pairs]), np.array([count for _, count in pairs])
    assert absurd(norms, steps).sum() <= len(pairs) // 2


@given(st.integers(5, 30), st.floats(0.2, 5), st.integers(1, 50), st.data())
def test_an_update_a_hundred_times_too_large_is_absurd_and_no_other_is(devices, norm, count, data):
    """As long as fewer than half of the devices send such a thing, all have as much to do, and norms vary by a half."""
    wild = data.draw(st.sets(st.integers(0, devices - 1), max_size=(devices - 1) // 2))
    variation = np.array(data.draw(st.lists(st.floats(0.5, 1.5), min_size=devices, max_size=devices)))
    hostile = np.isin(np.arange(devices), list(wild))
    norms = norm * variation * np.where(hostile, 100, 1)
    np.testing.assert_array_equal(absurd(norms, np.full(devices, count)), hostile)


@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=30), st.floats(0.5, 1.0))
def test_a_device_with_much_more_data_is_not_absurd(steps, power):
    """Its update may grow with its steps, in proportion or more slowly."""
    steps = np.array(steps)
    assert not absurd(steps**power, steps).any()


@given(st.integers(2, 8), st.integers(1, 20))
def test_however_many_strangers_send_huge_updates_those_known_tell_what_is_usual(known, strangers):
    norms = np.r_[np.linspace(0.5, 1.5, known), np.full(strangers, 100.0)]
    telling = np.arange(len(norms)) < known
    np.testing.assert_array_equal(absurd(norms, np.full(len(norms), 7), telling), ~telling)


def test_zero_updates_are_not_absurd():
    assert not absurd(np.zeros(6), np.ones(6, dtype=np.int64)).any()


def test_a_device_that_pulls_while_most_stand_quite_still_is_not_absurd():
    assert not absurd(np.array([0.0, 0.0, 0.0, 0.0, 1e-6]), np.ones(5, dtype=np.int64)).any()
