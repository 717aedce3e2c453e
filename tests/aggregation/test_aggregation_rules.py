"""Every aggregation rule: worked out by hand, held against brute force, and against liars."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from data_builders import error_line, stand_in_folder_with
from fedclade.aggregation import Pool, aggregate, find_rule, rule_names, rules
from fedclade.clustering.method import NOBODY, averaged
from fedclade.config import AggregationConfig, Config
from fedclade.core.tree import ROOT, Tree
from fedclade.core.updates import HeldUpdates
from made_up import arrival_of, state_of

ROBUST = sorted(set(rule_names()) - {"mean", "clipped-mean"})  # the last is held by its length alone
SEEDS, COUNTS = st.integers(0, 9999), st.integers(1, 9)


def pool_of(rows, weights=None, **settings) -> Pool:
    matrix = np.array(rows, dtype=np.float32)
    shares = np.ones(len(matrix)) if weights is None else np.array(weights, dtype=np.float64)
    devices = np.arange(len(matrix)) * 2 + 1
    return Pool(HeldUpdates.of(devices, matrix), devices, shares / shares.sum(), AggregationConfig(**settings))


def combined(name: str, pool: Pool) -> np.ndarray:
    return np.asarray(find_rule(name).combine(pool))


def made_up(seed: int, count: int, width: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


# -------------------------------------------------------------------------------- worked out by hand

LINE = [[0.0, 0.0], [1.0, 0.0], [2.0, 6.0], [3.0, 0.0], [100.0, -9.0]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", [21.2, -0.6]),
        # none longer than 3: two are shortened
        (
            "clipped-mean",
            [(4 + 6 / np.hypot(2, 6) + 300 / np.hypot(100, 9)) / 5, (18 / np.hypot(2, 6) - 27 / np.hypot(100, 9)) / 5],
        ),
        ("median", [2.0, 0.0]),
        ("trimmed-mean", [2.0, 0.0]),  # f = 1: of 1, 2, 3 and of 0, 0, 0
        # f = 1: two nearest. 0: 1 + 9; 1: 1 + 4 ; 2: 37 + 37; 3: 4 + 9; the last is far from all
        ("krum", [1.0, 0.0]),
        ("multi-krum", [0.5, 0.0]),  # m = 2: the updates 1 and 0
    ],
)
def test_five_updates_one_of_them_far_away(name, expected):
    np.testing.assert_allclose(combined(name, pool_of(LINE)), expected, atol=1e-5)


def test_multi_krum_averages_as_many_as_it_is_told():
    np.testing.assert_allclose(combined("multi-krum", pool_of(LINE, krum_kept=3)), [4 / 3, 0.0], atol=1e-5)
    np.testing.assert_allclose(combined("multi-krum", pool_of(LINE, krum_kept=9)), [21.2, -0.6], atol=1e-5)


def test_the_geometric_median_of_three_corners_is_the_point_that_sees_them_at_120_degrees():
    corners = [[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]]  # the Fermat point of this triangle is its middle
    np.testing.assert_allclose(combined("geometric-median", pool_of(corners)), [0.5, np.sqrt(3) / 6], atol=1e-4)
    skewed = [[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]]
    found = combined("geometric-median", pool_of(skewed))
    rays = np.array(skewed) - found
    units = rays / np.linalg.norm(rays, axis=1)[:, None]
    np.testing.assert_allclose(units.sum(axis=0), 0, atol=1e-3)


def test_who_holds_more_than_half_the_data_is_the_geometric_median():
    found = combined("geometric-median", pool_of([[1.0, 2.0], [5.0, 5.0], [9.0, 0.0]], weights=[6, 2, 3]))
    np.testing.assert_allclose(found, [1.0, 2.0], atol=1e-3)


@pytest.mark.parametrize(
    ("share", "count", "expected"), [(0.2, 5, 1), (0.1, 30, 3), (0.2, 4, 1), (0.49, 2, 0), (0, 9, 0)]
)
def test_how_many_may_be_hostile_is_rounded_up_and_stays_a_minority(share, count, expected):
    assert rules.expected_hostile(pool_of(made_up(1, count), hostile_share=share)) == expected


# -------------------------------------------------------------------------------- properties


@given(st.sampled_from(rule_names()), SEEDS, COUNTS)
def test_no_rule_minds_the_order_of_devices_or_where_zero_is(name, seed, count):
    count += 4 * name.endswith("krum")  # of fewer, the nearest two have the same score
    rows, order = made_up(seed, count), np.random.default_rng(seed).permutation(count)
    plain, shift = combined(name, pool_of(rows)), np.array([3, -1, 0, 2], dtype=np.float32)
    np.testing.assert_allclose(combined(name, pool_of(rows[order])), plain, atol=1e-3)
    if name != "clipped-mean":  # which measures lengths from zero
        np.testing.assert_allclose(combined(name, pool_of(rows + shift)), plain + shift, atol=2e-3)


@given(st.sampled_from(rule_names()), SEEDS, COUNTS)
def test_equal_updates_give_that_update(name, seed, count):
    row = made_up(seed, 1)
    np.testing.assert_allclose(combined(name, pool_of(np.repeat(row, count, axis=0))), row[0], rtol=1e-5, atol=1e-6)


@given(st.sampled_from(ROBUST), SEEDS, st.integers(5, 12), st.sampled_from([1e3, -1e5, 1e7]))
def test_a_minority_however_far_away_moves_no_robust_rule_far(name, seed, honest, far):
    rows = made_up(seed, honest)
    hostile = np.full((honest // 4, 4), far, dtype=np.float32)
    found = combined(name, pool_of(np.concatenate([hostile, rows]), hostile_share=0.25))
    assert np.linalg.norm(found - rows.mean(axis=0)) < 4 * np.linalg.norm(rows, axis=1).max()


@given(SEEDS, st.integers(3, 9), st.sampled_from([0.0, 0.2, 0.4]))
def test_krum_is_that_of_plain_loops(seed, count, share):
    rows = made_up(seed, count).astype(np.float64)
    pool = pool_of(rows, hostile_share=share)
    near = max(1, count - rules.expected_hostile(pool) - 2)
    scores = []
    for i in range(count):
        others = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in range(count) if j != i)
        scores.append(sum(others[:near]))
    np.testing.assert_allclose(rules.krum_scores(pool), scores, rtol=1e-4, atol=1e-4)


@given(SEEDS, st.integers(3, 8))
def test_the_geometric_median_has_the_least_sum_of_distances(seed, count):
    rows, weights = made_up(seed, count, 2), np.random.default_rng(seed).integers(1, 9, count)

    def total(point: np.ndarray) -> float:
        return float(weights @ np.linalg.norm(rows - point, axis=1))

    best = min(minimize(total, start, method="Nelder-Mead").fun for start in rows)
    assert total(combined("geometric-median", pool_of(rows, weights))) <= best * 1.005


@given(SEEDS, COUNTS, st.integers(1, 3))
def test_medians_and_trimmed_means_are_the_same_however_many_columns_are_sorted_at_once(seed, count, width):
    rows, small = made_up(seed, count, 7), width * count
    whole = {name: combined(name, pool_of(rows)) for name in ("median", "trimmed-mean")}
    before, rules.COLUMN_ENTRIES = rules.COLUMN_ENTRIES, small
    try:
        for name, expected in whole.items():
            np.testing.assert_array_equal(combined(name, pool_of(rows)), expected)
    finally:
        rules.COLUMN_ENTRIES = before
    np.testing.assert_allclose(whole["median"], np.median(rows, axis=0))


# -------------------------------------------------------------------------------- every cluster by itself


@given(st.sampled_from(rule_names()), SEEDS, st.integers(2, 9))
def test_each_group_is_combined_by_itself_and_moved_by_the_sum_of_its_weights(name, seed, count):
    rng, rows = np.random.default_rng(seed), made_up(seed, count)
    group, weights, devices = rng.integers(0, 3, count), rng.uniform(0.1, 0.3, count), np.arange(count)
    moves = aggregate(HeldUpdates.of(devices, rows), devices, group, weights, AggregationConfig(rule=name))
    assert sorted(moves) == np.unique(group).tolist()
    for row, move in moves.items():
        mine = group == row
        alone = combined(name, pool_of(rows[mine], weights[mine])) * weights[mine].sum()
        np.testing.assert_allclose(move, alone, rtol=1e-4, atol=1e-5)


def test_a_clusters_model_is_moved_by_the_rule_of_the_config():
    tree = Tree.planted(5).split(ROOT, [[0, 1], [2, 3, 4]], 1, 10.0)
    state = state_of(tree, {"0": [0], "0.0": [1], "0.1": [6]}, samples=[1, 2, 3, 4, 500])
    arrival = arrival_of({0: [3], 1: [6], 2: [1], 3: [2], 4: [-1000]})
    config = Config(aggregation=AggregationConfig(rule="median"))
    after = averaged(state, state, arrival, NOBODY, config)
    assert [float(after.models[name][0]) for name in ("0.0", "0.1")] == [5.5, 7.0]


OWN_RULES = """def largest(pool):
    return pool.total(pool.norms() == pool.norms().max())

def short(pool):
    return [1.0]
"""


def test_rules_of_ones_own_and_mistakes_are_told_in_one_line(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "own_rules", OWN_RULES)
    held = HeldUpdates.of(np.arange(2), np.array([[1.0, 0.0], [0.0, 3.0]], np.float32))
    given = held, np.arange(2), np.zeros(2, dtype=np.int64), np.full(2, 0.5)
    assert aggregate(*given, AggregationConfig(rule="own_rules:largest"))[0].tolist() == [0, 3]
    told = error_line(aggregate, *given, AggregationConfig(rule="own_rules:short"))
    assert told == 'aggregation.rule = "own_rules:short": must give 2 finite numbers, one update'
    assert error_line(find_rule, "medain") == "aggregation.rule = \"medain\": no such rule; did you mean 'median'?"


def test_hostile_devices_ruin_the_mean_and_not_the_median():
    rows = made_up(3, 10) * 0.1 + 1.0
    rows[:2] = -50.0
    found = {name: combined(name, pool_of(rows)).mean() for name in ("mean", *ROBUST)}
    assert found["mean"] < -5
    assert all(abs(found[name] - 1) < 0.2 for name in ROBUST)
