"""Cuts by nearest neighbours are those of all pairs, where both can be made."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from data_builders import error_line
from fedclade.clustering import bipartition
from fedclade.clustering.criteria import cut_facts
from fedclade.clustering.neighbours import bipartition_by_neighbours, directions, extremes, neighbour_graph
from fedclade.core.updates import cosine_similarity
from tiny_runs import tiny

LINKAGES = ["minmax", "average", "complete"]


def grouped(sizes, seed=1, width=64, pull=1.0):
    """Updates of devices in groups, each with a direction of its own."""
    draws = np.random.default_rng(seed)
    middle = draws.normal(size=(len(sizes), width))
    group = draws.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return (pull * middle[group] + draws.normal(size=(len(group), width))).astype(np.float32), group


def partition(side):
    return {frozenset(np.flatnonzero(side).tolist()), frozenset(np.flatnonzero(~side).tolist())}


@pytest.mark.parametrize("min_size", [1, 3])
@pytest.mark.parametrize("method", LINKAGES)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 30))
def test_with_all_others_as_neighbours_the_cut_is_that_of_all_pairs(method, min_size, seed, count):
    updates = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    exact = bipartition(cosine_similarity(updates), method, min_size)
    found = bipartition_by_neighbours(directions(updates), method, min_size, count)
    assert (found is None) == (exact is None)
    if exact is not None:
        assert partition(found) == partition(exact)


@pytest.mark.parametrize("method", ["minmax", "average"])
@pytest.mark.parametrize("sizes", [[150, 150], [200, 60, 40], [280, 20]])
def test_with_few_neighbours_groups_are_parted_as_by_all_pairs(method, sizes, monkeypatch):
    monkeypatch.setattr("fedclade.clustering.neighbours.LINKED", 100)  # a third of the devices
    updates, group = grouped(sizes)
    side = bipartition_by_neighbours(directions(updates), method, 2, 10)
    assert partition(side) == partition(bipartition(cosine_similarity(updates), method, 2))
    for name in range(len(sizes)):
        assert len(np.unique(side[group == name])) == 1  # no group is torn


def test_a_cut_does_not_depend_on_how_devices_are_numbered():
    updates, _ = grouped([40, 30, 30])
    order = np.random.default_rng(2).permutation(100)
    side, again = (bipartition_by_neighbours(directions(rows), "average", 2, 5) for rows in (updates, updates[order]))
    assert partition(again) == {
        frozenset(np.flatnonzero(np.isin(order, list(part))).tolist()) for part in partition(side)
    }


def test_parts_far_from_each_other_are_joined_where_they_are_closest():
    updates, group = grouped([50, 30, 20], pull=3.0)
    unit = directions(updates)
    graph = neighbour_graph(unit, 4).toarray()
    np.testing.assert_array_equal(graph, graph.T)
    assert connected_components(graph)[0] == 1
    assert (np.count_nonzero(graph, axis=1) >= 4).all()
    across = [(i, j) for i, j in zip(*np.nonzero(graph), strict=True) if group[i] < group[j]]
    assert 2 <= len(across) <= 4  # so few, and the shortest there are
    distances = 1.0 - unit @ unit.T
    for i, j in across:
        assert distances[i, j] == pytest.approx(graph[i, j], abs=1e-6)
    shortest = sorted(distances[np.ix_(group == a, group == b)].min() for a, b in [(0, 1), (0, 2), (1, 2)])
    assert sorted(graph[i, j] for i, j in across)[:2] == pytest.approx(shortest[:2], abs=1e-6)


def test_devices_that_do_not_differ_are_one_piece_and_can_be_cut():
    same = np.ones((12, 8), dtype=np.float32)
    assert connected_components(neighbour_graph(directions(same), 3))[0] == 1
    side = bipartition_by_neighbours(directions(np.concatenate([same, -same])), "minmax", 2, 3)
    assert partition(side) == {frozenset(range(12)), frozenset(range(12, 24))}
    assert bipartition_by_neighbours(directions(same[:3]), "minmax", 2, 3) is None
    assert (directions(same * 0) == 0).all()


def test_what_is_said_of_a_cut_is_true_of_all_pairs(monkeypatch):
    monkeypatch.setattr("fedclade.clustering.neighbours.WORKING_BYTES", 1000)  # a few rows at a time
    updates, group = grouped([30, 20])
    within, across = extremes(directions(updates), group == 1)
    facts = cut_facts(cosine_similarity(updates), group == 1)
    assert (within, across) == pytest.approx((facts.within_min, facts.cross_max), abs=1e-6)


MANY = ["norm_thresholds.pairs_up_to=3", "norm_thresholds.neighbours=3"]


@pytest.mark.parametrize("updates_gb", [4.0, 1e-6])
@pytest.mark.parametrize("gamma", ["off", "estimated"])
def test_the_papers_rule_decides_as_by_all_pairs(gamma, updates_gb, tmp_path):
    exact = tiny(f"norm_thresholds.gamma={gamma}").run(tmp_path / "exact")
    run = tiny(*MANY, f"norm_thresholds.gamma={gamma}", f"training.updates_gb={updates_gb}").run(tmp_path / "run")
    assert run.read_tree().leaf_of() == exact.read_tree().leaf_of()
    told, wanted = (
        [(one.round, one.detail["by"]) for one in each.events.query("kind == 'split'").itertuples()]
        for each in (run, exact)
    )
    assert told == [(round_, "neighbours") for round_, _ in wanted]
    assert [by for _, by in wanted] == (["similarity"] if gamma == "off" else [])  # three devices say little of γ
    assert [likeness.shape for likeness in run.splits["likeness"]] == [(6, 6)] * len(told)


def test_old_updates_cannot_count_for_less_there(tmp_path):
    wanted = tiny(*MANY, "clustering.age_discount=0.5", "clustering.max_age=2")
    assert "clustering.age_discount = 0.5" in error_line(wanted.run, tmp_path / "run")
