"""Cuts of very many devices: linkage of some whose sides the others join; and what the paper's rule makes of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_builders import error_line
from fedclade.clustering import bipartition
from fedclade.clustering.neighbours import bipartition_by_some, directions
from fedclade.core.updates import cosine_similarity
from tiny_runs import tiny

LINKAGES = ["average", "complete"]


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
def test_linkage_of_some_that_are_all_is_that_of_all_pairs(method, min_size, seed, count):
    updates = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    exact = bipartition(cosine_similarity(updates), method, min_size)
    found = bipartition_by_some(directions(updates), method, min_size, 3)
    assert (found is None) == (exact is None)
    if exact is not None:
        assert partition(found) == partition(exact)


@pytest.mark.parametrize("sizes", [[150, 150], [200, 60, 40], [280, 20]])
def test_by_some_groups_are_parted_as_by_all_pairs(sizes, monkeypatch):
    monkeypatch.setattr("fedclade.clustering.neighbours.LINKED", 100)  # a third of the devices
    updates, group = grouped(sizes)
    side = bipartition_by_some(directions(updates), "average", 2, 10)
    assert partition(side) == partition(bipartition(cosine_similarity(updates), "average", 2))
    for name in range(len(sizes)):
        assert len(np.unique(side[group == name])) == 1  # no group is torn


def test_a_cut_does_not_depend_on_how_devices_are_numbered():
    updates, _ = grouped([40, 30, 30])
    order = np.random.default_rng(2).permutation(100)
    side, again = (bipartition_by_some(directions(rows), "average", 2, 5) for rows in (updates, updates[order]))
    assert partition(again) == {
        frozenset(np.flatnonzero(np.isin(order, list(part))).tolist()) for part in partition(side)
    }


def test_devices_that_do_not_move_have_no_direction():
    updates, _ = grouped([4])
    assert (directions(updates * 0) == 0).all()
    np.testing.assert_allclose(np.linalg.norm(directions(updates), axis=1), 1.0, atol=1e-6)


MANY = ["norm_thresholds.pairs_up_to=3", "norm_thresholds.neighbours=3"]


@pytest.mark.parametrize("linkage", ["minmax", "average"])
@pytest.mark.parametrize("updates_gb", [4.0, 1e-6])
@pytest.mark.parametrize("gamma", ["off", "estimated"])
def test_the_papers_rule_decides_as_by_all_pairs(gamma, updates_gb, linkage, tmp_path):
    rule = f"norm_thresholds.gamma={gamma}", f"norm_thresholds.bipartition={linkage}"
    exact = tiny(*rule).run(tmp_path / "exact")
    run = tiny(*MANY, *rule, f"training.updates_gb={updates_gb}").run(tmp_path / "run")
    assert run.read_tree().leaf_of() == exact.read_tree().leaf_of()
    told, wanted = (each.events.query("kind == 'split'")["round"].tolist() for each in (run, exact))
    assert told == wanted
    assert len(wanted) == (gamma == "off")  # three devices say little of γ
    assert [likeness.shape for likeness in run.splits["likeness"]] == [(6, 6)] * len(told)


@pytest.mark.parametrize("linkage", ["minmax", "average"])
def test_old_updates_count_for_less_but_where_linkage_is_of_some(linkage, tmp_path):
    wanted = tiny(
        *MANY, "clustering.age_discount=0.5", "clustering.max_age=2", f"norm_thresholds.bipartition={linkage}"
    )
    if linkage == "minmax":
        assert wanted.run(tmp_path / "run").rounds["round"].max() > 1
    else:
        assert "clustering.age_discount = 0.5" in error_line(wanted.run, tmp_path / "run")
