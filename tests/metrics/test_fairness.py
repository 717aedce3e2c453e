"""Gap, worst tenth, Jain's index and the adjusted Rand index, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fedclade.metrics.fairness import gap, jain, worst_tenth
from fedclade.metrics.groups import adjusted_rand_index


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ([0.7, 0.7, 0.7], 1.0),
        ([5.0, 0.0, 0.0, 0.0], 0.25),  # one has everything: 1/n
        ([1.0, 2.0, 3.0], 36 / 42),  # (1 + 2 + 3)^2 / (3 x (1 + 4 + 9))
        ([0.0, 0.0], 1.0),
        ([0.4], 1.0),
    ],
)
def test_jains_index_by_hand(values, index):
    assert jain(np.array(values)) == pytest.approx(index)


@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=30), st.floats(0.01, 100.0))
def test_jains_index_lies_between_one_nth_and_one_and_does_not_depend_on_the_unit(values, unit):
    index = jain(np.array(values))
    assert 1 / len(values) - 1e-12 <= index <= 1 + 1e-12
    assert jain(unit * np.array(values)) == pytest.approx(index)


def test_gap_is_best_minus_worst():
    assert gap(np.array([0.6, 0.9, 0.4, 0.7])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("count", "mean"),
    [
        (20, 1.5),  # the worst two of 1, 2, ..., 20
        (35, 2.0),  # the worst three
        (4, 1.0),  # at least one
    ],
)
def test_worst_tenth_is_the_mean_of_the_worst_served(count, mean):
    assert worst_tenth(np.arange(count, 0.0, -1.0)) == mean


def test_adjusted_rand_index_is_one_for_the_same_groups_under_other_names():
    assert adjusted_rand_index(np.array([0, 0, 1, 1, 2]), ["0.1", "0.1", "0.0.0", "0.0.0", "0.0.1"]) == 1.0


def test_adjusted_rand_index_of_a_partly_right_clustering_by_hand():
    # pairs together in both: 1 of C(4, 2) = 6; planted: 2, found: 3 (sizes 3 and 1); expected 2 x 3 / 6 = 1
    # (1 - 1) / ((2 + 3) / 2 - 1) = 0
    assert adjusted_rand_index(np.array([0, 0, 1, 1]), ["a", "a", "a", "b"]) == pytest.approx(0.0)
    # planted sizes 3 and 2: 3 + 1 = 4 pairs; found sizes 2 and 3: 4 pairs; in both: {0, 1} and {3, 4}: 2
    # expected 4 x 4 / 10 = 1.6; (2 - 1.6) / (4 - 1.6) = 1/6
    assert adjusted_rand_index(np.array([0, 0, 0, 1, 1]), ["a", "a", "b", "b", "b"]) == pytest.approx(1 / 6)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), min_size=1, max_size=30))
def test_adjusted_rand_index_is_scikit_learns(devices):
    planted, found = zip(*devices, strict=True)
    expected = adjusted_rand_score(planted, found)
    assert adjusted_rand_index(np.array(planted), list(found)) == pytest.approx(expected, abs=1e-12)


def test_adjusted_rand_index_of_unrelated_groups_is_about_zero():
    rng = np.random.default_rng(1)
    scores = [adjusted_rand_index(rng.integers(0, 3, 60), list(rng.choice(["a", "b", "c"], 60))) for _ in range(100)]
    assert np.mean(scores) == pytest.approx(0.0, abs=0.02)
