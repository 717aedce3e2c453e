"""Cuts that devices prefer consistently: made-up help, so that what is true is known."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclade.clustering.methods.cross_evaluation.preference import (
    consistency,
    consistent_cuts,
    kinship,
    preferences,
)
from fedclade.config import CrossEvaluationConfig

SEEDS = st.integers(0, 9999)
SETTINGS = CrossEvaluationConfig()


def crowd(rng: np.random.Generator, devices: int, noise: float = 0.3) -> np.ndarray:
    """How much each (column) helps each (row): some teach better, some learn better, and every pair is its own."""
    learns, teaches = rng.normal(1, 0.2, (devices, 1)), rng.normal(0, 0.3, devices)
    return learns + teaches + rng.normal(0, noise, (devices, devices))


def asked_of(help_: np.ndarray) -> np.ndarray:
    return (~np.eye(len(help_), dtype=bool)).astype(np.float64)


def cuts_of(help_: np.ndarray, images: np.ndarray, asked: np.ndarray | None = None) -> list[np.ndarray]:
    asked = asked_of(help_) if asked is None else asked
    return consistent_cuts(help_ * asked, asked, images, 2, SETTINGS)


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([(10, 10), (18, 2), (15, 5), (27, 3)]))
def test_groups_that_harm_each_other_are_told_apart_though_everybody_is_different(seed, sizes):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat([0, 1], sizes))
    help_ = crowd(rng, len(group)) - 2.0 * (group[:, None] != group)
    (first, *_) = cuts_of(help_, rng.integers(60, 200, len(group)))
    np.testing.assert_array_equal(first, group != group[0])


@given(SEEDS)
def test_three_groups_are_cut_without_tearing_one(seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat([0, 1, 2], [9, 6, 5]))
    help_ = crowd(rng, 20, 0.2) - 2.0 * (group[:, None] != group)
    (first, *_) = cuts_of(help_, np.full(20, 100))
    assert all(len(set(first[group == each])) == 1 for each in range(3))


@settings(max_examples=20)
@given(SEEDS)
def test_no_cut_of_a_few_devices_is_more_consistent_than_the_first_one_found(seed):
    """By trying all of them: where there are groups, climbing from branches finds the best cut."""
    rng = np.random.default_rng(seed)
    group = np.arange(8) >= 5
    help_ = crowd(rng, 8, 0.2) - 1.5 * (group[:, None] != group)
    images, weight = np.full(8, 100), 100 * asked_of(help_)
    every = np.array([(False, *rest) for rest in product((False, True), repeat=7) if 2 <= sum(rest) <= 6])
    (first, *_) = cuts_of(help_, images)
    best = consistency(every, help_, weight, images / 150).max()
    assert consistency(first[None], help_, weight, images / 150)[0] == pytest.approx(best)


@given(SEEDS, st.floats(0.01, 100), st.floats(-5, 5))
def test_neither_the_scale_of_help_nor_who_learns_easily_changes_what_devices_prefer(seed, factor, more):
    rng = np.random.default_rng(seed)
    help_, weight = crowd(rng, 9), rng.integers(1, 50, 9) * asked_of(np.eye(9))
    sides = rng.random((4, 9)) < 0.5
    expected = preferences(sides, help_, weight)
    easily = factor * help_ + more * rng.random((9, 1))
    np.testing.assert_allclose(preferences(sides, easily, weight), factor * expected, atol=1e-9 * max(1, factor))
    np.testing.assert_allclose(preferences(~sides, help_, weight), -expected, atol=1e-12)


def test_what_a_device_says_of_its_own_training_and_of_what_it_was_not_asked_about_counts_nothing():
    rng = np.random.default_rng(1)
    help_, asked = crowd(rng, 8), asked_of(np.eye(8)) * (rng.random((8, 8)) < 0.7)
    images = rng.integers(20, 90, 8)
    expected = consistent_cuts(help_ * asked, asked, images, 2, SETTINGS)
    assert expected
    louder = consistent_cuts(2 * help_ * asked, 2 * asked, images, 2, SETTINGS)  # asked twice, and said the same
    assert [side.tolist() for side in louder] == [side.tolist() for side in expected]


def test_of_many_devices_those_that_nobody_was_asked_about_join_those_who_help_them():
    rng = np.random.default_rng(2)
    group = rng.permutation(np.repeat([0, 1], [70, 30]))
    help_ = crowd(rng, 100) - 2.0 * (group[:, None] != group)
    known = np.isin(np.arange(100), rng.choice(100, SETTINGS.survey_columns, replace=False))
    (first, *_) = cuts_of(help_, np.full(100, 80), asked_of(help_) * known)
    assert (first == group).all() or (first != group).all()


@pytest.mark.parametrize("devices", [0, 1, 3, 5])
def test_where_nothing_is_known_or_too_few_are_there_is_no_cut(devices):
    nothing = np.zeros((devices, devices))
    assert consistent_cuts(nothing, nothing, np.full(devices, 9), 2, SETTINGS) == []


def test_both_children_of_a_cut_are_large_enough():
    rng = np.random.default_rng(3)
    for side in cuts_of(crowd(rng, 12), rng.integers(5, 200, 12)):
        assert 2 <= side.sum() <= 10


def test_training_with_ones_own_kind_helps_so_many_times_as_much():
    group = np.repeat([0, 1, 2, 3], 4)
    gains = np.where(group[:, None] == group, 1.0, 0.2) * asked_of(np.eye(16))
    found = kinship(3 * gains, 3 * asked_of(gains), closest=0.2)  # in three surveys
    assert found == pytest.approx(15 / (3 + 12 * 0.2))
    assert kinship(asked_of(np.eye(5)), asked_of(np.eye(5)), 0.3) == pytest.approx(1.0)
    assert kinship(-gains, asked_of(gains), 0.2) == 1.0  # nothing helps: there is nothing to compare with
    assert kinship(0 * gains, 0 * gains, 0.2) == 1.0
    assert kinship(gains - 0.35 * asked_of(gains), asked_of(gains), 0.2) == 5.0  # others hardly help, or harm
