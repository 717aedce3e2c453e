"""Cuts judged by models in which the judge has no part: made-up answers, so that what is true is known."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.clustering.methods.cross_evaluation.without_own import (
    FREE,
    Costs,
    PayTest,
    cost_in_class,
    costs_before,
    mean_misfits,
    with_shorter_steps,
)
from fedclade.config import CrossEvaluationConfig
from fedclade.core.tree import Tree
from fedclade.fleet.answers import Survey

SEEDS = st.integers(0, 9999)
SETTINGS = CrossEvaluationConfig()


def answers(rng: np.random.Generator, gains: np.ndarray, step: float = 0.1, classes: int = 4) -> Survey:
    """What devices say if the first and second child's models fit each by so much better than the parent's."""
    hard = rng.random((len(gains), 1, classes)) + 1
    children, parent, start = [-gains[:, 0], -gains[:, 1]], np.zeros(len(gains)), np.full(len(gains), step)
    models = np.stack([*children, parent, *children, start], axis=1)
    return Survey(rng.integers(3, 9, (len(gains), classes)), hard + models[:, :, None])


def gains_of(side: np.ndarray, own: np.ndarray, other: float) -> np.ndarray:
    return np.where(np.stack([~side, side], axis=1), own[:, None], other)


@given(SEEDS, st.floats(-0.2, 0.2), st.floats(-0.2, 0.2), st.floats(-0.1, 0.3))
def test_a_cut_is_worth_the_mean_gain_of_either_childs_devices(seed, first, second, step):
    rng, side = np.random.default_rng(seed), np.arange(9) >= 6
    own = np.where(side, second, first)
    gains = gains_of(side, own, -0.3)
    test = PayTest.of(side, [answers(rng, gains, step), answers(rng, gains, step)])
    assert test.gain == pytest.approx((first, second), abs=1e-9)
    assert test.cost == pytest.approx(own.mean() + 0.3, abs=1e-9)
    assert test.cost_in_class == pytest.approx((first + second) / 2 + 0.3, abs=1e-6)
    assert test.smaller == 3
    assert json.loads(json.dumps(test.evidence()))["gain"] == pytest.approx([first, second], abs=1e-9)


def test_a_cut_pays_if_neither_loses_and_the_other_side_costs_much_beside_what_training_does():
    test = PayTest((0.01, 0.06), (0.001, 0.2), 0.3, 0.06, 0.05, 3)
    assert test.passed(SETTINGS, 0.125)
    assert not test.passed(SETTINGS, 0.13)  # training once did more
    assert not replace(test, cost=0.04).passed(SETTINGS, 0.125)
    assert not replace(test, gain=(-0.01, 0.06), p_gain=(0.9, 0.001)).passed(SETTINGS, 0.125)
    assert not replace(test, p_gain=(0.06, 0.06)).passed(SETTINGS, 0.125)  # that may be chance
    assert replace(test, p_gain=(0.06, 0.06), p_together=0.01).passed(SETTINGS, 0.125)
    assert replace(test, gain=(0.0, 0.06), p_gain=(1.0, 0.001)).passed(SETTINGS, 0.125)  # left out already, as harmful
    assert test.passed(SETTINGS, 0.125, Costs(0.085, 0.071))
    assert not test.passed(SETTINGS, 0.125, Costs(0.0, 0.072))  # the cut that the cluster comes from cost more
    assert not test.passed(SETTINGS, 0.125, Costs(0.086, 0.0))
    assert test.p_value == 0.2


def test_of_a_pair_half_as_much_is_enough_within_classes():
    test = PayTest((0.01, 0.06), (0.001, 0.2), 0.3, 0.06, 0.025, 2)
    assert test.passed(SETTINGS, 0.125)
    assert not replace(test, smaller=3).passed(SETTINGS, 0.125)
    assert not replace(test, cost_in_class=0.024).passed(SETTINGS, 0.125)
    assert not replace(test, cost=0.049).passed(SETTINGS, 0.125)


def test_children_also_go_a_shorter_step_the_fewer_they_are_the_shorter():
    start, moves = np.array([1.0, -2.0], np.float32), np.array([[4.0, 0.0], [0.0, 10.0], [2.0, 5.0]], np.float32)
    own = np.array([[0.5, 0.0, 0.3, 0.0], [0.0, 0.2, 0.1, 0.0]])
    models, parts = with_shorter_steps(np.stack([*(start + moves), start]), own, np.arange(10) >= 2)
    assert np.allclose(models[[0, 1, 2, 5]], [*(start + moves), start])
    of_two, of_eight = (1 / 2) / (9 / 10), (7 / 8) / (9 / 10)
    assert np.allclose(models[3:5] - start, [[4.0 * of_two, 0.0], [0.0, 10.0 * of_eight]])
    assert np.allclose(parts, [[0.5, 0.0, 0.3, 0.5 * of_two, 0.0, 0.0], [0.0, 0.2, 0.1, 0.0, 0.2 * of_eight, 0.0]])


def test_the_cuts_that_a_cluster_comes_from_are_those_of_its_ancestors():
    tree = Tree.planted(8)
    for name, second, evidence in (
        ("0", 4, {"cost": 0.3, "cost_in_class": 0.2, "smaller": 4}),
        ("0.0", 2, {"cost": 0.9, "cost_in_class": 0.5, "smaller": 2}),  # a pair
        ("0.1", 6, {"p_group": 1e-9}),
    ):
        members = tree.members(name)
        parts = [members[members < second].tolist(), members[members >= second].tolist()]
        tree = tree.split(name, parts, round_=1, seconds=0.0, evidence=evidence)
    assert [costs_before(tree, leaf.name) for leaf in tree.leaves()] == [(0.5, 0.5)] * 2 + [(0.3, 0.2)] * 2
    assert costs_before(Tree.planted(3), "0") == FREE


def test_devices_are_the_units_not_their_images():
    rng, side = np.random.default_rng(0), np.arange(8) >= 4
    own = np.array([0.1, 0.1, 0.1, -0.05, 0.1, 0.1, 0.1, 0.1])
    sure, doubtful = PayTest.of(side, [answers(rng, gains_of(side, own, 0.0))]).p_gain[::-1]
    assert sure < 1e-6 < 0.05 < doubtful < 0.2
    alone = PayTest.of(np.arange(8) >= 7, [answers(rng, gains_of(side, own, 0.0))])
    assert alone.p_gain[1] == 1.0  # a single device tells nothing of chance


@given(SEEDS, st.floats(-0.3, 0.3))
def test_labels_that_a_model_expects_are_no_group(seed, cost):
    """One model may be better for everybody, and for some classes more: that is the same for both sides."""
    rng, side = np.random.default_rng(seed), np.arange(16) >= 9
    better, by_class, counts = rng.normal(0, 1), rng.normal(0, 1, 4), rng.integers(2, 9, (16, 4))
    preference = np.where(side, -cost, cost)[:, None] + better + by_class
    misfit = np.stack([np.zeros((16, 4)), preference, *np.zeros((2, 16, 4))], axis=1)
    assert cost_in_class(side, [Survey(counts, misfit)]) == pytest.approx(cost, abs=0.02)


def test_who_does_not_answer_says_nothing():
    side, nothing = np.array([False, True, True, False]), Survey(np.zeros((4, 3), np.int64), np.zeros((4, 6, 3)))
    assert cost_in_class(side, [nothing]) == 0.0
    assert not PayTest.of(side, [nothing]).passed(SETTINGS, 0.0)


def test_misfits_are_means_over_images_of_all_shares():
    train, held_out = (
        Survey(np.array([[3, 1]]), np.array([[[0.2, 0.6]]])),
        Survey(np.array([[0, 4]]), np.array([[[0.0, 0.5]]])),
    )
    assert mean_misfits([train, held_out])[0, 0] == pytest.approx((3 * 0.2 + 0.6 + 4 * 0.5) / 8)
