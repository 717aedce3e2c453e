"""Numbers with their uncertainty: over several seeds, and paired differences over images."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fedclade.fleet.answers import Paired, Survey, misfit, paired
from fedclade.study.statistics import bootstrap_interval, mean_over_time

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
    mean = mean_over_time(times, values, [9.0, 10.0], np.array([0.0, 1.0, 2.0, 2.9, 3.0, 9.0]))
    assert np.isnan(mean[:2]).all()
    assert mean[2:] == pytest.approx([0.3, 0.3, 0.5, 0.5])


@given(st.lists(st.floats(1.0, 9.0), min_size=1, max_size=4), st.floats(0.0, 10.0))
def test_there_is_no_mean_once_some_run_is_over(ends, moment):
    times, values = [np.array([0.0])] * len(ends), [np.array([0.5])] * len(ends)
    (mean,) = mean_over_time(times, values, ends, np.array([moment]))
    assert np.isnan(mean) == (moment > min(ends))


def test_a_run_without_evaluations_has_no_mean():
    assert np.isnan(mean_over_time([np.array([])], [np.array([])], [1.0], np.array([0.0, 1.0]))).all()


# -------------------------------------------------------------------------------- paired differences

DIFFERENCES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.floats(-100, 100)), min_size=1, max_size=60)


def paired_of(triples) -> Paired:
    """From (device, class, difference); four devices, three classes."""
    rows, columns, values = (np.array(column) for column in zip(*triples, strict=True))
    return paired(values, rows, columns, (4, 3))


def one_device(*classes) -> Paired:
    """Of one device: the differences in each of its classes."""
    columns = np.repeat(np.arange(len(classes)), [len(each) for each in classes])
    return paired(np.concatenate(classes), np.zeros_like(columns), columns, (1, len(classes)))


@given(DIFFERENCES)
def test_differences_are_summed_up_by_device_and_class(triples):
    found = paired_of(triples)
    for cell in itertools.product(range(4), range(3)):
        mine = [value for *where, value in triples if tuple(where) == cell]
        assert found.samples[cell] == len(mine)
        assert found.mean[cell] == pytest.approx(sum(mine) / max(1, len(mine)), abs=1e-9)
        assert found.squares[cell] == pytest.approx(sum(v * v for v in mine) / max(1, len(mine)), abs=1e-9)


@given(DIFFERENCES, st.sets(st.integers(0, 3)))
def test_some_devices_say_what_they_alone_would_have_said(triples, chosen):
    mask = np.isin(np.arange(4), list(chosen))
    alone = [triple for triple in triples if triple[0] in chosen]
    told = paired_of(triples).among(mask).test()
    assert told == pytest.approx(paired_of(alone).among(mask).test() if alone else (0.0, 1.0))


@given(DIFFERENCES)
def test_regardless_of_class_is_as_if_there_were_one(triples):
    merged = paired_of(triples).regardless_of_class()
    rows, _, values = (np.array(column) for column in zip(*triples, strict=True))
    expected = paired(values, rows, np.zeros_like(rows), (4, 1))
    np.testing.assert_array_equal(merged.samples, expected.samples)
    np.testing.assert_allclose(merged.mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(merged.squares, expected.squares, atol=1e-9)


@given(arrays(np.float64, st.integers(4, 30), elements=st.floats(-5, 5)))
def test_with_one_class_the_test_is_students(values):
    values = values + np.linspace(0, 1e-3, len(values))  # never all equal
    gain, p_value = one_device(values).test()
    expected = stats.ttest_1samp(values, 0.0, alternative="greater")
    assert gain == pytest.approx(values.mean())
    assert p_value == pytest.approx(expected.pvalue, rel=1e-3, abs=1e-12)


def test_classes_count_equally_however_many_images_they_have():
    rng = np.random.default_rng(1)
    common, rare = rng.normal(1.0, 1.0, 90), rng.normal(-0.4, 1.0, 10)
    gain, p_value = one_device(common, rare).test()
    assert gain == pytest.approx((common.mean() + rare.mean()) / 2)
    # the variance within the classes, on 98 degrees of freedom
    variance = (((common - common.mean()) ** 2).sum() + ((rare - rare.mean()) ** 2).sum()) / 98
    error = np.sqrt(variance * (1 / 90 + 1 / 10)) / 2
    assert p_value == pytest.approx(stats.t.sf(gain / error, 98))
    assert one_device(common, rare).regardless_of_class().test()[0] == pytest.approx(
        0.9 * common.mean() + 0.1 * rare.mean()
    )


def test_what_differs_between_classes_alone_is_no_doubt():
    """A gain of 1 in one class and of 9 in the other, the same for every image, is beyond doubt."""
    gain, p_value = one_device(np.ones(5), np.full(5, 9.0)).test()
    assert (gain, p_value) == (5.0, pytest.approx(0.0, abs=1e-9))


def test_too_few_images_for_their_classes_are_one_class():
    """Two degrees of freedom within three classes are too few; four images of one class have three."""
    few = one_device(np.array([1.0, 3.0]), np.array([2.0, 2.5]), np.array([0.5]))
    assert few.test() == pytest.approx(few.regardless_of_class().test())
    expected = stats.ttest_1samp([1.0, 3.0, 2.0, 2.5, 0.5], 0.0, alternative="greater")
    assert few.test() == pytest.approx((1.8, expected.pvalue))


@pytest.mark.parametrize("values", [[], [2.0]])
def test_fewer_than_two_images_say_nothing(values):
    rows = np.zeros(len(values), dtype=np.int64)
    assert paired(np.array(values), rows, rows, (1, 3)).test() == (0.0, 1.0)


@pytest.mark.parametrize(("value", "p_value"), [(0.0, 1.0), (-2.0, 1.0), (2.0, 0.0)])
def test_differences_that_are_all_the_same_are_beyond_doubt(value, p_value):
    assert one_device(np.full(8, value)).test() == (value, p_value)


@given(DIFFERENCES, st.sampled_from([1 / 1024, 4.0, 1024.0]))
def test_scaling_the_losses_scales_the_gain_and_leaves_the_doubt(triples, factor):
    gain, p_value = paired_of(triples).test()
    scaled = paired_of([(row, column, factor * value) for row, column, value in triples]).test()
    assert scaled == pytest.approx((factor * gain, p_value), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("skewed", [False, True])
def test_where_there_is_no_difference_p_values_are_even(skewed):
    """Also where each class has a spread and a number of images of its own, and each difference is far from normal."""
    rng, p_values = np.random.default_rng(5), []
    for _ in range(400):
        classes = [rng.normal(0, 1, size) for size in (12, 30, 6)]
        if skewed:
            classes = [rng.exponential(1, size) - 1 for size in (12, 30, 6)]
        p_values.append(one_device(*classes).test()[1])
    assert 0.02 < np.mean(np.array(p_values) < 0.05) < 0.09
    assert 0.43 < np.mean(np.array(p_values) < 0.5) < 0.57


# -------------------------------------------------------------------------------- surveys


@given(st.floats(0, 700), st.floats(0, 700))
def test_a_misfit_is_from_0_to_1_and_never_smaller_for_a_larger_loss(one, other):
    small, large = misfit(np.array(sorted((one, other))))
    assert 0 <= small <= large <= 1
    assert small == pytest.approx(1 - np.sqrt(np.exp(-min(one, other))))


def test_an_image_on_which_a_model_is_sure_and_wrong_counts_no_more_than_two_of_an_even_chance():
    assert misfit(np.array([np.inf])) == 1.0
    assert misfit(np.array([np.log(4.0)])) == pytest.approx(0.5)


@given(DIFFERENCES, st.integers(1, 4), st.integers(0, 99))
def test_a_survey_is_the_mean_misfit_by_device_model_and_class(triples, models, seed):
    rows, labels, _ = (np.array(column) for column in zip(*triples, strict=True))
    misfits = np.random.default_rng(seed).normal(size=(models, len(rows)))
    devices = int(rows.max()) + 2  # the last one has no images
    found = Survey.of(misfits, rows, labels, (devices, 3))
    assert (found.samples.shape, found.misfit.shape) == ((devices, 3), (devices, models, 3))
    assert found.samples.dtype == np.int64
    for device, label in itertools.product(range(devices), range(3)):
        mine = [image for image, where in enumerate(zip(rows, labels, strict=True)) if where == (device, label)]
        assert found.samples[device, label] == len(mine)
        for model in range(models):
            mean = sum(misfits[model, image] for image in mine) / max(1, len(mine))
            assert found.misfit[device, model, label] == pytest.approx(mean, abs=1e-9)
