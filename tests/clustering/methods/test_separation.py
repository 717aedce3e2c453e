"""Separation: two groups, or one crowd cut in two? Made-up opinions, so that what is true is known."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclade.clustering.methods.cross_evaluation.affinity import mutual
from fedclade.clustering.methods.cross_evaluation.separation import (
    Help,
    chance,
    crowd,
    improved,
    matched_halves,
    separations,
    true_separation,
)

SEEDS = st.integers(0, 9999)


def opinions(rng: np.random.Generator, place: np.ndarray, *, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Devices like each other the more, the more alike their places on a line are; mutual signal and weight."""
    devices = len(place)
    weight = rng.integers(20, 40, (devices, devices)) * others(devices)
    return mutual(weight * (place[:, None] * place + rng.normal(0, noise, weight.shape)), weight.astype(float), 12)


def others(devices: int) -> np.ndarray:
    return ~np.eye(devices, dtype=bool)


def half(devices: int) -> np.ndarray:
    return np.arange(devices) >= devices // 2


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([12, 20, 30]))
def test_groups_are_farther_apart_than_a_crowd_cut_in_two_and_a_crowd_is_not(seed, devices):
    rng, side = np.random.default_rng(seed), half(devices)
    limit = crowd(devices, 2, 0.001)
    groups = np.where(side, 1.0, -1.0) + rng.normal(0, 0.05, devices)
    assert true_separation(side, opinions(rng, groups), opinions(rng, groups)) > limit
    line = np.linspace(-1, 1, devices)
    assert true_separation(side, opinions(rng, line), opinions(rng, line)) < limit


@settings(max_examples=30)
@given(SEEDS, st.sampled_from([0.001, 1000.0]))
def test_separation_depends_neither_on_the_scale_nor_on_the_names_of_devices_and_sides(seed, factor):
    rng, side = np.random.default_rng(seed), np.arange(14) >= 9
    signal, weight = opinions(rng, rng.normal(0, 1, 14))
    (expected,) = separations(side[None], signal, weight)
    order = rng.permutation(14)
    here = np.ix_(order, order)
    assert separations(side[order][None], signal[here], weight[here])[0] == pytest.approx(expected)
    assert separations(side[None], factor * signal, weight)[0] == pytest.approx(expected, rel=1e-6)
    assert separations(~side[None], signal, weight)[0] == pytest.approx(expected)


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 2))
def test_an_improved_cut_is_no_worse_and_cannot_be_improved_by_one_device(seed, min_size):
    rng = np.random.default_rng(seed)
    pairs = opinions(rng, rng.normal(0, 1, 10), noise=0.5)
    side = rng.permutation(half(10))
    found = improved(side, *pairs, min_size)
    before, after = separations(np.stack([side, found]), *pairs)
    assert after >= before
    assert min(found.sum(), (~found).sum()) >= min_size
    for device in range(10):
        other = found.copy()
        other[device] ^= True
        if min(other.sum(), (~other).sum()) >= min_size:
            assert separations(other[None], *pairs)[0] <= after + 1e-6


def test_a_crowds_separation_is_that_of_its_best_cut_in_two():
    """Against all cuts in two of crowds of six; more devices leave narrower gaps."""
    rng, best = np.random.default_rng(3), []
    for points in rng.random((400, 6)):
        found = []
        for size in (2, 3):
            for chosen in combinations(range(6), size):
                side = np.isin(np.arange(6), chosen)
                low, high = points[~side], points[side]
                within = np.sqrt((((low - low.mean()) ** 2).sum() + ((high - high.mean()) ** 2).sum()) / 4)
                found.append(abs(high.mean() - low.mean()) / within)
        best.append(max(found))
    assert crowd(6, 2, 0.5) == pytest.approx(np.median(best), rel=0.15)
    limits = [crowd(devices, 2, 0.01) for devices in (6, 10, 20, 60)]
    assert limits == sorted(limits, reverse=True)
    assert crowd(3, 2, 0.01) == np.inf


def test_random_cuts_of_a_crowd_agree_by_chance_as_often_as_the_p_value_says():
    rng, p_values = np.random.default_rng(4), []
    for _ in range(200):
        pairs = opinions(rng, rng.normal(0, 1, 20))
        p_values.append(chance(rng.permutation(half(20)), *pairs, 200, rng))
    assert np.mean(np.array(p_values) < 0.05) < 0.11


@given(SEEDS, st.integers(2, 4), st.integers(2, 4))
def test_few_ways_to_deal_devices_allow_of_no_small_p_value(seed, first, second):
    rng, side = np.random.default_rng(seed), np.arange(first + second) >= first
    pairs = opinions(rng, np.where(side, 1.0, -1.0))
    ways = len(list(combinations(range(first + second), second)))
    assert chance(side, *pairs, 50, rng) >= 1 / ways


@given(SEEDS, st.floats(0, 1), st.floats(0.1, 2))
def test_the_share_lost_is_what_does_not_reach_the_other_side(seed, lost, good):
    rng, side = np.random.default_rng(seed), np.arange(10) >= 6
    weight = rng.integers(1, 9, (10, 10)) * others(10)
    same = side[:, None] == side
    gain = good * np.where(same, 1.0, 1.0 - lost)
    table = Help(weight * gain, weight * gain, weight.astype(float))
    assert table.within(side) == pytest.approx(good)
    assert table.lost(side) == pytest.approx(lost, abs=1e-9)
    assert Help(weight * gain, weight * gain, weight.astype(float), 2 * good).lost(side) == pytest.approx(lost / 2)


@given(SEEDS, st.integers(1, 5), st.integers(1, 5))
def test_matched_halves_show_no_groups(seed, first, second):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat([0, 1], [2 * first, 2 * second]))
    side = matched_halves((group[:, None] == group).astype(np.float64), rng)
    assert [int(side[group == each].sum()) for each in (0, 1)] == [first, second]
