"""Samples with numbers instead of classes: read, checked, standardised, dealt out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import config, error_line
from fedclade.core.task import Task
from fedclade.data import Source, populate
from fedclade.data.source import tenths

X = np.arange(40.0).reshape(20, 2)
Y = np.linspace(-3.0, 7.0, 20)


def checked(y: object, **facts: object) -> Source:
    return Source(X, y, **facts).checked("test")


def test_floats_are_numbers_and_whole_numbers_are_classes():
    assert checked(Y).numbers
    assert not checked(np.arange(20)).numbers
    assert checked(np.arange(20), targets="numbers").numbers
    assert not checked(np.arange(20.0), targets="classes").numbers
    assert checked(np.arange(20.0), targets="classes").classes == 20
    assert (checked(Y).classes, checked(np.stack([Y, Y], axis=1)).classes) == (1, 2)


@pytest.mark.parametrize(
    ("y", "facts", "told"),
    [
        (np.append(Y[1:], np.nan), {}, "y is not finite in sample 19; must hold no NaN and nothing beyond float32"),
        (Y[1:], {}, "y has shape (19,), must be (20,): one number for every sample, or a row"),
        (Y.reshape(20, 1, 1), {}, "y has shape (20, 1, 1), must be (20,): one number for every sample, or a row"),
        (np.zeros((20, 0)), {}, "y has shape (20, 0), must be (20,): one number for every sample, or a row"),
        (Y, {"targets": "classes"}, "y is float64, must be whole numbers from 0"),
        (Y, {"targets": "both"}, "targets = 'both': must be one of auto, classes, numbers"),
        (["a"] * 20, {"targets": "numbers"}, None),
        (Y, {"y_std": 0.0}, "y_std = 0.0: is for numbers in y: one, or one for each of them, each greater than 0"),
        (
            np.arange(20),
            {"y_mean": 0.0},
            "y_mean = 0.0: is for numbers in y: one, or one for each of them, each finite",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(y, facts, told):
    if told is None:  # texts are classes, whose numbers are then taken for numbers
        assert checked(y, **facts).numbers
    else:
        assert error_line(lambda: checked(y, **facts)) == f"test: {told}"


def test_devices_with_classes_and_devices_with_numbers_do_not_fit_together():
    pairs = [(X, np.arange(20)), (X, Y)]
    assert "set population.targets" in error_line(Source.of_devices, pairs)
    assert Source.of_devices(pairs, targets="numbers").checked("test").numbers


@given(st.lists(st.floats(-1e6, 1e6), min_size=20, max_size=20))
def test_devices_learn_standardised_numbers(y):
    population = populate(config(population={"devices": 2, "partition": "iid"}), checked(np.array(y)))
    task, dealt = population.task, np.sort(np.array(y))
    assert (task.outputs, task.score.name, population.labels.dtype) == (1, "r2", np.float32)
    assert task.mean[0] == pytest.approx(dealt.mean(), abs=1e-6 * (1 + np.abs(dealt).max()))
    restored = np.sort(task.restored(population.labels)[:, 0])
    np.testing.assert_allclose(restored, dealt, atol=1e-5 * (1 + np.abs(dealt).max()))


def test_a_source_may_say_itself_how_its_numbers_are_standardised():
    population = populate(config(population={"devices": 2}), checked(Y, y_mean=1.0, y_std=2.0))
    assert (population.task.mean, population.task.std) == ((1.0,), (2.0,))
    np.testing.assert_allclose(np.sort(population.labels[:, 0]), (Y - 1.0) / 2.0, rtol=1e-6)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=60))
def test_tenths_follow_the_order_of_the_numbers(numbers):
    found = tenths(np.array(numbers))
    assert found.min() >= 0
    assert found.max() <= 9
    assert (np.diff(found[np.argsort(numbers)]) >= 0).all()


def test_numbers_are_dealt_out_by_tenths():
    skewed = {"devices": 5, "partition": "dirichlet", "alpha": 0.05, "min_samples": 2, "sizes": "equal"}
    many = np.random.default_rng(0).normal(size=1000)
    source = Source(np.ones((1000, 3)), many).checked("test")
    means = [
        [population.labels[population.train[k]].mean() for k in range(5)]
        for population in (
            populate(config(population={**skewed, "partition": how}), source) for how in ("iid", "dirichlet")
        )
    ]
    assert np.std(means[0]) < 0.15 < 0.4 < np.std(means[1])


def test_strata_are_classes_or_how_high_a_number_is():
    assert (Task(7).strata, Task(2, (0.0, 0.0), (1.0, 1.0)).strata) == (7, 4)
    assert Task(1, (0.0,), (1.0,)).stratum(np.array([[-2.0], [-0.1], [0.1], [5.0]])).tolist() == [0, 1, 2, 3]
    assert Task(3).stratum(np.array([2, 0])).tolist() == [2, 0]
