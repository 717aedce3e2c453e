"""The tree of models: whatever happens to it, its leaves partition the devices."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.core.tree import ROOT, Tree

EVIDENCE = {"by": "similarity", "gap": 0.25, "gamma_max": None, "p_parent": [0.01, 0.02]}
NUMBERS = st.integers(0, 2**16)
STEPS = st.lists(st.tuples(st.sampled_from(["split", "move", "merge", "stop", "open"]), NUMBERS, NUMBERS), max_size=15)


def grow(device_count, steps):
    """The tree after each of some steps; a leaf may be cut into two to four parts, of which some are empty."""
    tree = Tree.planted(device_count)
    yield tree
    for round_, (kind, which, how) in enumerate(steps, 1):
        leaf = tree.leaves()[which % len(tree.leaves())]
        if kind == "split":
            count = 2 + how % 3
            parts = [[d for d in leaf.devices if (how >> d) % count == part] for part in range(count)]
            tree = tree.split(leaf.name, parts, round_, 1.5 * round_, EVIDENCE)
        elif kind == "move":
            tree = tree.move(how % device_count, leaf.name)
        elif kind == "merge":
            into = tree.leaves()[how % len(tree.leaves())]
            if into.name != leaf.name:
                tree = tree.merge(leaf.name, into.name)
        else:
            tree = tree.with_stop(leaf.name, round_ if kind == "stop" else None)
        yield tree


def split_tree():
    """Devices 0 to 5; {1, 3, 5} split off in round 4, and {3} of these in round 7."""
    tree = Tree.planted(6).split("0", [[0, 2, 4], [1, 3, 5]], 4, 10.0, EVIDENCE)
    return tree.split("0.1", [[1, 5], [3]], 7, 20.0, EVIDENCE)


def members(tree, name):
    return tree.members(name).tolist()


@given(st.integers(1, 12), STEPS)
def test_leaves_partition_the_devices_and_children_their_parent_after_any_steps(device_count, steps):
    for tree in grow(device_count, steps):
        assert sorted(device for leaf in tree.leaves() for device in leaf.devices) == list(range(device_count))
        assert [leaf.name for leaf in tree.leaves()] == [
            name for name in sorted(tree.nodes) if tree.nodes[name].is_leaf
        ]
        assert members(tree, ROOT) == list(range(device_count))
        assert all(device in tree.nodes[name].devices for device, name in enumerate(tree.leaf_of()))
        for node in tree.nodes.values():
            if node.children:
                below = [device for child in node.children for device in members(tree, child)]
                assert sorted(below) == members(tree, node.name)
                assert sorted(d for part in node.split.parts for d in part) == sorted({*sum(node.split.parts, ())})


@given(st.integers(1, 12), STEPS)
def test_the_leaves_below_a_node_are_leaves_and_hold_whoever_is_in_them_by_its_split_or_a_merger(device_count, steps):
    for tree in grow(device_count, steps):
        leaves = {leaf.name for leaf in tree.leaves()}
        assert sorted(tree.leaves_below(ROOT)) == sorted(leaves)
        for name, node in tree.nodes.items():
            below = set(tree.leaves_below(name))
            assert below <= leaves
            assert {leaf for leaf in leaves if f"{leaf}.".startswith(f"{name}.")} <= below
            assert not node.is_leaf or below == {name}


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
        "parts": [[1, 5], [3]],
        "evidence": {"by": "similarity", "gap": 0.25, "gamma_max": None, "p_parent": [0.01, 0.02]},
    }
    assert {row["merged_into"] for row in rows.values()} == {None}


def test_a_move_changes_the_members_up_the_tree_but_not_what_the_split_was():
    tree = split_tree().move(0, "0.1.1")
    assert tree.nodes["0.1.1"].devices == (0, 3)
    assert (members(tree, "0.0"), members(tree, "0.1")) == ([2, 4], [0, 1, 3, 5])
    assert tree.nodes["0"].split.parts[0] == (0, 2, 4)
    assert tree.move(0, "0.1.1") == tree


def test_a_merge_gives_all_devices_to_the_other_leaf_which_is_open_again():
    tree = split_tree().with_stop("0.0", 8).with_stop("0.1.1", 8).merge("0.1.1", "0.0")
    assert [leaf.name for leaf in tree.leaves()] == ["0.0", "0.1.0"]
    assert tree.nodes["0.0"].devices == (0, 2, 3, 4)
    assert (tree.nodes["0.0"].stopped_round, tree.nodes["0.1.1"].stopped_round) == (None, None)
    assert tree.leaf_of() == ["0.0", "0.1.0", "0.0", "0.0", "0.0", "0.1.0"]
    assert (members(tree, "0.1"), members(tree, "0.1.1")) == ([1, 5], [])
    assert {row["name"]: row["merged_into"] for row in tree.to_json()}["0.1.1"] == "0.0"
    assert tree.nodes["0.1"].split.parts[1] == (3,)  # what was, was


@pytest.mark.parametrize(("name", "into"), [("0.0", "0.0"), ("0.0", "0.1"), ("0.1", "0.0"), ("0.1.1", "0.1.0")])
def test_illegal_merges_are_refused(name, into):
    """With itself, with an inner node, and with what was merged already."""
    with pytest.raises(AssertionError, match="not two leaves"):
        split_tree().merge("0.1.1", "0.0").merge(name, into)


def test_a_split_into_many_parts_has_a_child_for_each_in_their_order():
    parts = [[part] for part in reversed(range(12))]
    tree = Tree.planted(12).split("0", parts, 5, 1.0)
    assert tree.nodes["0"].children == tuple(f"0.{i}" for i in range(12))
    assert [members(tree, f"0.{i}") for i in range(12)] == parts  # "0.1" is not above "0.10"
    assert tree.nodes["0"].split.evidence == {}
    assert not tree.nodes["0"].is_leaf


def test_a_part_of_a_split_may_be_empty_and_so_may_a_leaf_whose_last_device_moved_away():
    tree = Tree.planted(3).split("0", [[0, 1, 2], [], []], 0, 0.0)
    assert [leaf.devices for leaf in tree.leaves()] == [(0, 1, 2), (), ()]
    tree = split_tree().move(3, "0.0")
    assert (tree.nodes["0.1.1"].devices, tree.nodes["0.1.1"].is_leaf) == ((), True)
    assert tree.leaf_of() == ["0.0", "0.1.0", "0.0", "0.0", "0.0", "0.1.0"]
    assert tree.move(3, "0.1.1") == split_tree()


def test_the_leaves_below_a_node_are_told_through_splits_and_mergers():
    tree = split_tree()
    assert [tree.leaves_below(name) for name in ("0", "0.0", "0.1")] == [
        ["0.0", "0.1.0", "0.1.1"],
        ["0.0"],
        ["0.1.0", "0.1.1"],
    ]
    tree = tree.merge("0.1.1", "0.0")
    assert (tree.leaves_below("0.1"), tree.leaves_below("0.1.1")) == (["0.1.0", "0.0"], ["0.0"])
    tree = tree.split("0.0", [[0, 3], [2, 4]], 9, 30.0)  # what took others over may itself be split later
    assert tree.leaves_below("0.1.1") == ["0.0.0", "0.0.1"]
    assert split_tree().merge("0.1.1", "0.1.0").leaves_below("0.1") == ["0.1.0"]  # once


def test_a_change_leaves_the_tree_it_came_from_as_it_was():
    tree = split_tree()
    tree.split("0.0", [[0, 4], [2]], 9, 30.0, EVIDENCE)
    tree.move(1, "0.0")
    tree.with_stop("0.0", 9)
    tree.merge("0.0", "0.1.0")
    assert tree == split_tree()


def test_a_leaf_is_stopped_and_opened_again():
    tree = split_tree().with_stop("0.0", 9)
    assert tree.nodes["0.0"].stopped_round == 9
    assert tree.with_stop("0.0", None) == split_tree()


@pytest.mark.parametrize(
    ("leaf", "parts"),
    [
        ("0.0", [[0, 2, 4]]),  # one part is no cut
        ("0.0", []),
        ("0.0", [[0], [4]]),  # a device left out
        ("0.0", [[0, 2], [2, 4]]),  # a device in two parts
        ("0.0", [[0, 4], [1, 2]]),  # a device of another leaf
        ("0.0", [[0, 4], [2, 99]]),  # no device at all
        ("0", [[0, 2, 4, 5], [1, 3]]),  # already split
        ("0.1.1", [[3]]),  # one device cannot be cut
    ],
)
def test_illegal_splits_are_refused(leaf, parts):
    with pytest.raises(AssertionError, match="no cut of leaf"):
        split_tree().split(leaf, parts, 9, 30.0, EVIDENCE)


def test_a_leaf_that_was_merged_into_another_is_not_split_again():
    with pytest.raises(AssertionError, match="no cut of leaf"):
        split_tree().merge("0.1.1", "0.0").split("0.1.1", [[], []], 9, 30.0)


def test_new_devices_wait_in_the_largest_leaf():
    tree = split_tree()
    largest = max(tree.leaves(), key=lambda leaf: len(leaf.devices)).name
    grown = tree.grown(2)
    assert grown.device_count == 8
    assert set(grown.members(largest)) - set(tree.members(largest)) == {6, 7}


def test_illegal_moves_are_refused():
    with pytest.raises(AssertionError, match="no leaf"):
        split_tree().move(0, "0.1")  # an inner node
    with pytest.raises(AssertionError, match="no leaf"):
        split_tree().merge("0.1.1", "0.0").move(0, "0.1.1")  # gone


def test_a_tree_that_loses_or_doubles_a_device_cannot_exist():
    with pytest.raises(AssertionError, match="do not partition"):
        Tree(Tree.planted(3).nodes, 4)
    rows = split_tree().to_json()
    with pytest.raises(AssertionError, match="do not partition"):
        Tree.from_json([{**row, "members": [0, *row["members"]]} for row in rows], 6)
    *rest, sibling, _ = rows
    with pytest.raises(AssertionError, match="lacks a child"):
        Tree.from_json([*rest, {**sibling, "members": [1, 3, 5]}], 6)


def test_moving_several_devices_at_once_is_moving_them_one_by_one():
    tree = Tree.planted(6).split("0", [[0, 1, 2], [3, 4, 5]], 1, 1.0)
    assert tree.moved({0: "0.1", 4: "0.0"}) == tree.move(0, "0.1").move(4, "0.0")
    assert tree.moved({}) is tree
    with pytest.raises(AssertionError):
        tree.moved({0: "0"})
