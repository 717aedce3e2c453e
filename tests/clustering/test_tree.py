"""The tree of models: whatever happens to it, its leaves partition the devices."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.clustering import ROOT, CutFacts, Tree, Trial

FACTS = CutFacts(within_min=0.2, cross_max=-0.05, gap=0.25, gamma_bound=0.72, gamma_max=None)
NUMBERS = st.integers(0, 2**16)
STEPS = st.lists(st.tuples(st.sampled_from(["split", "move", "merge", "stop", "open"]), NUMBERS, NUMBERS), max_size=15)


def grow(device_count, steps):
    """The tree after each of some steps; a step that would empty a leaf is left out."""
    tree = Tree.planted(device_count)
    yield tree
    for round_, (kind, which, how) in enumerate(steps, 1):
        leaf = tree.leaves()[which % len(tree.leaves())]
        if kind == "split":
            second = [device for device in leaf.devices if how >> device & 1]
            if 0 < len(second) < len(leaf.devices):
                tree = tree.split(leaf.name, second, round_, 1.5 * round_, FACTS)
        elif kind == "move":
            device = how % device_count
            if tree.nodes[tree.leaf_of()[device]].devices != (device,):
                tree = tree.move(device, leaf.name)
        elif kind == "merge":
            into = tree.leaves()[how % len(tree.leaves())]
            if into.name != leaf.name:
                tree = tree.merge(leaf.name, into.name)
        else:
            tree = tree.with_stop(leaf.name, round_ if kind == "stop" else None)
        yield tree


def split_tree():
    """Devices 0 to 5; {1, 3, 5} split off in round 4, and {3} of these in round 7."""
    tree = Tree.planted(6).split("0", [1, 3, 5], 4, 10.0, FACTS)
    return tree.split("0.1", [3], 7, 20.0, FACTS)


def members(tree, name):
    return tree.members(name).tolist()


@given(st.integers(1, 12), STEPS)
def test_leaves_partition_the_devices_and_children_their_parent_after_any_steps(device_count, steps):
    for tree in grow(device_count, steps):
        assert sorted(device for leaf in tree.leaves() for device in leaf.devices) == list(range(device_count))
        assert all(leaf.devices for leaf in tree.leaves())
        assert members(tree, ROOT) == list(range(device_count))
        assert all(device in tree.nodes[name].devices for device, name in enumerate(tree.leaf_of()))
        for node in tree.nodes.values():
            if node.children:
                below = [members(tree, child) for child in node.children]
                assert sorted(below[0] + below[1]) == members(tree, node.name)


@given(st.integers(1, 12), STEPS)
def test_a_tree_written_as_json_reads_back_equal(device_count, steps):
    *_, tree = grow(device_count, steps)
    rows = json.loads(json.dumps(tree.to_json()))
    assert Tree.from_json(rows, device_count) == tree
    names = [row["name"] for row in rows]
    assert all(row["parent"] in names[:i] for i, row in enumerate(rows) if row["parent"] is not None)


def test_a_split_tree_by_hand():
    tree = split_tree()
    assert [leaf.name for leaf in tree.leaves()] == ["0.0", "0.1.0", "0.1.1"]
    assert tree.leaf_of() == ["0.0", "0.1.0", "0.0", "0.1.1", "0.0", "0.1.0"]
    assert {name: members(tree, name) for name in tree.nodes} == {
        "0": [0, 1, 2, 3, 4, 5],
        "0.0": [0, 2, 4],
        "0.1": [1, 3, 5],
        "0.1.0": [1, 5],
        "0.1.1": [3],
    }
    assert [tree.nodes[name].born_round for name in ("0", "0.0", "0.1", "0.1.1")] == [0, 4, 4, 7]


def test_json_tells_members_and_facts_of_every_node():
    rows = {row["name"]: row for row in split_tree().to_json()}
    assert (rows["0"]["parent"], rows["0"]["children"]) == (None, ["0.0", "0.1"])
    assert (rows["0.1.1"]["parent"], rows["0.1.1"]["children"], rows["0.1.1"]["split"]) == ("0.1", [], None)
    assert rows["0.1"]["members"] == [1, 3, 5]
    assert rows["0.1"]["split"] == {
        "round": 7,
        "seconds": 20.0,
        "first": [1, 5],
        "second": [3],
        "sim_within_min": 0.2,
        "sim_cross_max": -0.05,
        "gap": 0.25,
        "gamma_bound": 0.72,
        "gamma_max": None,
        "gamma_error": None,
        "trial": None,
    }
    assert {row["merged_into"] for row in rows.values()} == {None}


def test_a_move_changes_the_members_up_the_tree_but_not_what_the_split_was():
    tree = split_tree().move(0, "0.1.1")
    assert tree.nodes["0.1.1"].devices == (0, 3)
    assert (members(tree, "0.0"), members(tree, "0.1")) == ([2, 4], [0, 1, 3, 5])
    assert tree.nodes["0"].split.first == (0, 2, 4)
    assert tree.move(0, "0.1.1") == tree


def test_a_merge_gives_all_devices_to_the_other_leaf_which_is_open_again():
    tree = split_tree().with_stop("0.0", 8).with_stop("0.1.1", 8).merge("0.1.1", "0.0")
    assert [leaf.name for leaf in tree.leaves()] == ["0.0", "0.1.0"]
    assert tree.nodes["0.0"].devices == (0, 2, 3, 4)
    assert (tree.nodes["0.0"].stopped_round, tree.nodes["0.1.1"].stopped_round) == (None, None)
    assert tree.leaf_of() == ["0.0", "0.1.0", "0.0", "0.0", "0.0", "0.1.0"]
    assert (members(tree, "0.1"), members(tree, "0.1.1")) == ([1, 5], [])
    assert {row["name"]: row["merged_into"] for row in tree.to_json()}["0.1.1"] == "0.0"
    assert tree.nodes["0.1"].split.second == (3,)  # what was, was


@pytest.mark.parametrize(("name", "into"), [("0.0", "0.0"), ("0.0", "0.1"), ("0.1", "0.0"), ("0.1.1", "0.1.0")])
def test_illegal_merges_are_refused(name, into):
    """With itself, with an inner node, and with what was merged already."""
    with pytest.raises(AssertionError, match="not two leaves"):
        split_tree().merge("0.1.1", "0.0").merge(name, into)


def test_a_split_is_written_down_with_its_trial():
    trial = Trial(0.3, 1e-6, (0.2, 0.1), (0.01, 0.02), cuts=3)
    tree = Tree.planted(4).split("0", [2, 3], 5, 1.0, FACTS, trial)
    rows = json.loads(json.dumps(tree.to_json()))
    assert rows[0]["split"]["trial"]["p_group"] == 1e-6
    assert Tree.from_json(rows, 4).nodes["0"].split.trial == trial


def test_a_change_leaves_the_tree_it_came_from_as_it_was():
    tree = split_tree()
    tree.split("0.0", [2], 9, 30.0, FACTS)
    tree.move(1, "0.0")
    tree.with_stop("0.0", 9)
    tree.merge("0.0", "0.1.0")
    assert tree == split_tree()


def test_a_leaf_is_stopped_and_opened_again():
    tree = split_tree().with_stop("0.0", 9)
    assert tree.nodes["0.0"].stopped_round == 9
    assert tree.with_stop("0.0", None) == split_tree()


@pytest.mark.parametrize(
    ("leaf", "second"),
    [
        ("0.0", []),  # an empty second child
        ("0.0", [0, 2, 4]),  # an empty first child
        ("0.0", [1, 2]),  # a device of another leaf
        ("0.0", [2, 99]),  # no device at all
        ("0", [1, 3]),  # already split
        ("0.1.1", [3]),  # one device cannot be cut
    ],
)
def test_illegal_splits_are_refused(leaf, second):
    with pytest.raises(AssertionError, match="no cut of leaf"):
        split_tree().split(leaf, second, 9, 30.0, FACTS)


def test_new_devices_wait_in_the_largest_leaf():
    tree = split_tree()
    largest = max(tree.leaves(), key=lambda leaf: len(leaf.devices)).name
    grown = tree.grown(2)
    assert grown.device_count == 8
    assert set(grown.members(largest)) - set(tree.members(largest)) == {6, 7}


def test_illegal_moves_are_refused():
    with pytest.raises(AssertionError, match="last of cluster"):
        split_tree().move(3, "0.0")
    with pytest.raises(AssertionError, match="do not partition"):
        split_tree().move(0, "0.1")  # an inner node


def test_a_tree_that_loses_or_doubles_a_device_cannot_exist():
    with pytest.raises(AssertionError, match="do not partition"):
        Tree(Tree.planted(3).nodes, 4)
    rows = split_tree().to_json()
    with pytest.raises(AssertionError, match="do not partition"):
        Tree.from_json([{**row, "members": [0, *row["members"]]} for row in rows], 6)
    *rest, sibling, _ = rows
    with pytest.raises(AssertionError, match="lacks a child"):
        Tree.from_json([*rest, {**sibling, "members": [1, 3, 5]}], 6)
