"""Numbers over several trials."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedclade.statistics import bootstrap_interval, mean_over_time

VALUES = arrays(np.float64, st.integers(2, 8), elements=st.floats(-1e6, 1e6))


def test_fewer_than_two_values_have_no_interval():
    assert bootstrap_interval(np.array([])) is None
    assert bootstrap_interval(np.array([3.0])) is None


@given(VALUES)
def test_the_interval_lies_within_the_values_and_is_always_the_same(values):
    low, high = bootstrap_interval(values)
    assert values.min() - 1e-6 <= low <= high <= values.max() + 1e-6
    assert (low, high) == bootstrap_interval(values)


@given(VALUES, st.floats(-1e3, 1e3))
def test_shifted_values_have_a_shifted_interval(values, shift):
    low, high = bootstrap_interval(values)
    assert bootstrap_interval(values + shift) == pytest.approx((low + shift, high + shift), abs=1e-6, rel=1e-9)


def test_the_interval_is_that_of_all_possible_resamples():
    values = np.array([0.0, 1.0, 4.0, 9.0])
    means = [np.mean(pick) for pick in itertools.product(values, repeat=4)]  # 256 of equal chance
    low, high = bootstrap_interval(values)
    assert low == pytest.approx(np.percentile(means, 2.5), abs=0.26)  # the steps between means are of 0.25
    assert high == pytest.approx(np.percentile(means, 97.5), abs=0.26)


def test_the_mean_over_time_takes_each_runs_last_evaluation_once_all_have_one():
    times = [np.array([1.0, 3.0]), np.array([2.0])]
    values = [np.array([0.2, 0.6]), np.array([0.4])]
    mean = mean_over_time(times, values, np.array([0.0, 1.0, 2.0, 2.9, 3.0, 9.0]))
    assert np.isnan(mean[:2]).all()
    assert mean[2:] == pytest.approx([0.3, 0.3, 0.5, 0.5])


def test_a_run_without_evaluations_has_no_mean():
    assert np.isnan(mean_over_time([np.array([])], [np.array([])], np.array([0.0, 1.0]))).all()
