"""Carrying a method's decisions out, worked out by hand on small states; and how methods are found by their names."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import error_line, stand_in_folder_with
from fedclade import config as configuration
from fedclade.clustering import BaseMethod, Decisions, find_method, method_names
from fedclade.clustering.method import (
    NOBODY,
    Conversation,
    Merge,
    Move,
    NewSplit,
    averaged,
    events_of,
    rearranged,
    regrouped,
)
from fedclade.clustering.methods.cross_evaluation import CrossEvaluation
from fedclade.config import Config, SchedulingConfig
from fedclade.core.records import Event
from fedclade.core.state import State
from fedclade.core.tree import ROOT, Tree
from fedclade.fleet.fleet import Answers, Cost
from made_up import arrival_of, clusters, model_of, state_of


def ids(*devices: int) -> np.ndarray:
    return np.array(devices, dtype=np.int64)


def two_leaves(**facts) -> State:
    """0.0 of devices 0 and 1, and 0.1 of 2, 3 and 4; device k has k + 1 images."""
    tree = Tree.planted(5).split(ROOT, [[0, 1], [2, 3, 4]], 1, 10.0)
    return state_of(tree, {"0": [0], "0.0": [1], "0.1": [6]}, samples=[1, 2, 3, 4, 5], **facts)


def numbers(state: State) -> dict[str, float]:
    return {name: pytest.approx(float(model[0]), abs=1e-5) for name, model in state.models.items()}


# -------------------------------------------------------------------------------- stops, reopenings, splits


def test_clusters_stop_and_go_on_again_in_the_round_that_the_state_is_in():
    state = two_leaves(round_=7)
    state = replace(state, tree=state.tree.with_stop("0.1", 3))
    after = regrouped(state, Decisions("mine", stops={"0.0": {}}, reopens={"0.1": {}}))
    assert [leaf.stopped_round for leaf in after.tree.leaves()] == [7, None]
    assert after.method == "mine"
    assert numbers(after) == numbers(state)
    assert [leaf.stopped_round for leaf in state.tree.leaves()] == [None, 3]  # as it was


def test_the_children_of_a_split_have_their_parents_model_unless_the_method_has_another():
    state = two_leaves(round_=7)
    split = NewSplit("0.1", (ids(2), ids(3), ids(4)), {"by": "chance"}, seconds=2.5)
    after = regrouped(state, Decisions(splits=(split,), models={"0.1.1": model_of(9)}))
    assert clusters(after) == {"0.0": (0, 1), "0.1.0": (2,), "0.1.1": (3,), "0.1.2": (4,)}
    assert numbers(after) == {"0": 0, "0.0": 1, "0.1": 6, "0.1.0": 6, "0.1.1": 9, "0.1.2": 6}
    told = after.tree.nodes["0.1"].split
    assert (told.round, told.seconds, told.evidence) == (7, 102.5, {"by": "chance"})
    assert set(state.models) == {"0", "0.0", "0.1"}  # as it was


def test_a_cluster_that_goes_on_again_may_be_split_at_once():
    state = two_leaves()
    state = replace(state, tree=state.tree.with_stop("0.1", 1))
    after = regrouped(state, Decisions(reopens={"0.1": {}}, splits=(NewSplit("0.1", (ids(2), ids(3, 4))),)))
    assert [leaf.name for leaf in after.tree.leaves()] == ["0.0", "0.1.0", "0.1.1"]
    assert after.tree.nodes["0.1"].stopped_round is None


# -------------------------------------------------------------------------------- averaging

PLAIN, COVER = (Config(scheduling=SchedulingConfig(after_stop=what)) for what in ("greedy", "cover"))


def test_each_cluster_is_moved_by_its_own_members_updates_weighted_by_their_data():
    state = two_leaves()
    arrival = arrival_of({0: [3], 1: [6], 2: [1], 4: [-1]})
    after = averaged(state, state, arrival, NOBODY, PLAIN)
    # 1 + (1·3 + 2·6) / 3 = 6; 6 + (3·1 - 5·1) / 8 = 5.75, device 3 was not heard
    assert numbers(after) == {"0": 0, "0.0": 6, "0.1": 5.75}
    assert numbers(state)["0.0"] == 1


def test_a_cluster_of_which_nobody_was_heard_keeps_its_model():
    state = two_leaves()
    assert numbers(averaged(state, state, arrival_of({3: [2]}), NOBODY, PLAIN)) == {"0": 0, "0.0": 1, "0.1": 8}
    assert numbers(averaged(state, state, arrival_of({}), NOBODY, COVER)) == numbers(state)


def test_updates_left_out_count_neither_in_the_sum_nor_in_the_weights():
    state = two_leaves()
    arrival = arrival_of({0: [3], 1: [600], 2: [1]})
    after = averaged(state, state, arrival, ids(1, 3), PLAIN)
    assert numbers(after) == {"0": 0, "0.0": 4, "0.1": 7}


def test_a_cluster_just_split_is_averaged_once_more_as_a_whole_beside_its_children():
    state = two_leaves()
    arrival = arrival_of({1: [5], 2: [3], 3: [-3], 4: [0.6]})
    decided = Decisions(splits=(NewSplit("0.1", (ids(2), ids(3, 4))),))
    after = averaged(state, regrouped(state, decided), arrival, NOBODY, PLAIN)
    # the parent: 6 + (3·3 - 4·3 + 5·0.6) / 12; the children: 6 + 3, and 6 + (-4·3 + 5·0.6) / 9
    assert numbers(after) == {"0": 0, "0.0": 6, "0.1": 6, "0.1.0": 9, "0.1.1": 5}
    assert after.conventional is None  # only at the first split of all


def test_the_conventional_model_is_the_roots_as_it_stands_at_the_first_split():
    state = state_of(Tree.planted(3), {ROOT: [1]}, samples=[1, 1, 2])
    decided = Decisions(splits=(NewSplit(ROOT, (ids(0, 1), ids(2))),), models={"0.1": model_of(50)})
    after = averaged(state, regrouped(state, decided), arrival_of({0: [4], 2: [1]}), NOBODY, PLAIN)
    assert numbers(after) == {"0": 3, "0.0": 5, "0.1": 51}  # 1 + (4 + 2·1) / 3; device 1 was not heard
    assert after.conventional.tolist() == [3]
    again = averaged(after, after, arrival_of({0: [1]}), NOBODY, PLAIN)
    assert again.conventional.tolist() == [3]


@pytest.mark.parametrize(("holding", "model"), [(True, 1 + 9 * 1 / 3), (False, 1 + 9)])
def test_after_a_stop_an_update_may_count_by_its_share_of_all_the_clusters_data(holding, model):
    state = two_leaves()
    state = replace(state, tree=state.tree.with_stop("0.0", 1))
    after = averaged(state, state, arrival_of({0: [9], 4: [1]}), NOBODY, COVER if holding else PLAIN)
    assert numbers(after) == {"0": 0, "0.0": model, "0.1": 7}  # the other one goes on as ever


def test_a_cluster_that_stops_in_this_round_is_averaged_as_it_was_trained():
    state = two_leaves()
    stopped = regrouped(state, Decisions(stops={"0.0": {}}))
    assert numbers(averaged(state, stopped, arrival_of({0: [9]}), NOBODY, COVER))["0.0"] == 10


@given(st.integers(0, 9999), st.integers(2, 9), st.booleans())
def test_averaging_is_that_of_a_plain_loop_whoever_is_heard_and_whatever_splits(seed, devices, holding):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, devices)
    parts = [np.flatnonzero(group == each).tolist() for each in range(3)]
    tree = Tree.planted(devices).split(ROOT, parts, 1, 1.0).with_stop("0.1", 1)
    models = {name: rng.normal(size=2).tolist() for name in tree.nodes}
    state = state_of(tree, models, samples=rng.integers(1, 9, devices).tolist())
    half = rng.permutation(parts[0]).astype(np.int64)
    decided = Decisions(splits=(NewSplit("0.0", (half[::2], half[1::2])),))
    heard = np.flatnonzero(rng.random(devices) < 0.7)
    updates = {int(device): rng.normal(size=2).tolist() for device in heard}
    left_out = heard[rng.random(len(heard)) < 0.2]
    before = regrouped(state, decided)
    after = averaged(state, before, arrival_of(updates), left_out, COVER if holding else PLAIN)
    for name in ("0.0", "0.1", "0.2", "0.0.0", "0.0.1"):
        members = before.tree.members(name)
        mine = [device for device in members.tolist() if device in heard and device not in left_out]
        total = state.samples[members if holding and name == "0.1" else mine].sum()
        move = sum((state.samples[device] / total * np.array(updates[device]) for device in mine), np.zeros(2))
        np.testing.assert_allclose(after.models[name], before.models[name] + move, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(after.models[ROOT], state.models[ROOT])


# -------------------------------------------------------------------------------- moves and mergers


def test_a_device_moves_and_takes_no_model_along():
    after = rearranged(two_leaves(), Decisions(moves=(Move(4, "0.0"),)))
    assert clusters(after) == {"0.0": (0, 1, 4), "0.1": (2, 3)}
    assert numbers(after) == {"0": 0, "0.0": 1, "0.1": 6}


@pytest.mark.parametrize(
    ("closing", "left"), [(True, {"0.1": (0, 1, 2, 3, 4)}), (False, {"0.0": (), "0.1": (0, 1, 2, 3, 4)})]
)
def test_a_leaf_whose_last_device_moves_away_ends_with_it_or_stays_empty(closing, left):
    moves = (Move(0, "0.1", closing=closing), Move(1, "0.1", closing=closing))
    after = rearranged(two_leaves(), Decisions(moves=moves))
    assert clusters(after) == left
    assert after.tree.nodes["0.0"].merged_into == ("0.1" if closing else None)
    assert numbers(after) == {"0": 0, "0.0": 1, "0.1": 6}  # a device alone brings no model


def test_a_move_to_where_a_device_is_changes_nothing():
    state = state_of(Tree.planted(2).split(ROOT, [[0], [1]], 1, 1.0), {"0": [0], "0.0": [1], "0.1": [2]})
    after = rearranged(state, Decisions(moves=(Move(0, "0.0", closing=True),)))
    assert after.tree == state.tree


def test_two_clusters_that_merge_have_the_mean_of_their_models_by_their_data():
    state = two_leaves()
    state = replace(state, tree=state.tree.with_stop("0.0", 1))
    after = rearranged(state, Decisions(moves=(Merge("0.1", "0.0"),)))
    assert clusters(after) == {"0.0": (0, 1, 2, 3, 4)}
    assert after.tree.nodes["0.0"].stopped_round is None
    assert numbers(after) == {"0": 0, "0.0": (3 * 1 + 12 * 6) / 15, "0.1": 6}


@pytest.mark.parametrize("closing", [True, False])
def test_whoever_moved_before_a_merger_counts_where_it_is_now(closing):
    tree = Tree.planted(3).split(ROOT, [[0], [1], [2]], 1, 1.0)
    state = state_of(tree, {"0": [0], "0.0": [0], "0.1": [4], "0.2": [10]}, samples=[1, 2, 5])
    after = rearranged(state, Decisions(moves=(Move(2, "0.1", closing=closing), Merge("0.1", "0.0"))))
    assert clusters(after) == ({"0.0": (0, 1, 2)} if closing else {"0.0": (0, 1, 2), "0.2": ()})
    assert numbers(after)["0.0"] == (1 * 0 + 7 * 4) / 8
    assert after.tree.nodes["0.2"].merged_into == ("0.1" if closing else None)


# -------------------------------------------------------------------------------- what is told


def test_decisions_are_told_cluster_by_cluster_then_who_moved_and_what_merged_then_the_rest():
    likeness = ids(2, 3, 4), np.eye(3, dtype=np.float32)
    decided = Decisions(
        stops={"0.0": {"loss": 0.5}},
        splits=(NewSplit("0.1", (ids(2), ids(3, 4)), {"by": "chance"}, likeness),),
        left_out=ids(1, 2, 3),
        moves=(Move(0, "0.1.0", {"from": "0.0"}), Move(4, "0.0", {}, "placed"), Merge("0.0", "0.1.1", {"gain": 1.0})),
        notes=(Event("incident", "", detail={"what": "smoke"}), Event("split-test", "0.0", detail={"passed": False})),
    )
    told = events_of(two_leaves(), decided, heard=ids(0, 1, 3, 4))
    assert told == [
        Event("split-test", "0.0", detail={"passed": False}),
        Event("stop", "0.0", detail={"loss": 0.5}),
        Event("trimmed", "0.0", 1),
        Event("trimmed", "0.1", 3),  # device 2 is left out, too, but was not heard
        Event("split", "0.1", detail={"parts": [[2], [3, 4]], "by": "chance"}),
        Event("moved", "0.1.0", 0, {"from": "0.0"}),
        Event("placed", "0.0", 4),
        Event("merge", "0.1.1", detail={"merged": "0.0", "gain": 1.0}),
        Event("incident", "", detail={"what": "smoke"}),
    ]
    assert told[4].likeness is likeness


def test_a_cluster_that_goes_on_again_is_told_of_and_nothing_decided_is_nothing_told():
    assert events_of(two_leaves(), Decisions(reopens={"0.1": {"loss": 2.0}}), NOBODY) == [
        Event("reopen", "0.1", detail={"loss": 2.0})
    ]
    assert events_of(two_leaves(), Decisions(), ids(0, 1, 2, 3, 4)) == []


class Telling:
    """A fleet that answers a question with itself."""

    def ask(self, question):
        return Answers(question, Cost(2.0, np.array([1.0, 0.0]), 8.0), (f"about {question}",))


def test_a_conversation_adds_up_what_was_asked_and_what_went_wrong():
    talk = Conversation(Telling(), 2)
    assert (talk.cost.seconds, talk.cost.joules.tolist(), talk.notes()) == (0.0, [0.0, 0.0], ())
    assert (talk.ask("this"), talk.ask("that")) == ("this", "that")
    assert (talk.cost.seconds, talk.cost.joules.tolist(), talk.cost.downlink_bits) == (4.0, [2.0, 0.0], 16.0)
    assert talk.notes() == tuple(Event("incident", "", detail={"what": f"about {each}"}) for each in ("this", "that"))


# -------------------------------------------------------------------------------- methods by name


def named(name: str):
    return find_method(configuration.load(None, [f"clustering.method={name}"]), ids(0, 1))


def test_every_method_that_ships_is_found_by_its_name():
    others = ["fedgroup", "fesem", "flhc", "ifca", "local", "none", "norm-thresholds", "oracle", "pacfl"]
    assert method_names() == ["cross-evaluation", *others]
    for name in method_names():
        found = find_method(configuration.load(None, [f"clustering.method={name}"]), ids(0, 1))
        assert (found.name, bool(found.reveals)) == (name, True)
    assert isinstance(named("cross-evaluation"), CrossEvaluation)


def test_a_method_that_decides_nothing_remembers_nothing():
    method, state = named("none"), two_leaves(method="anything")
    assert type(method) is BaseMethod
    assert method.init(5) is None
    assert method.grown(None, 3) is None
    assert method.before_training(state, ids(0), None).method == "anything"
    assert method.after_training(state, arrival_of({}), None).splits == ()
    assert method.screen(state, arrival_of({0: [1]})) == {}
    assert method.load(*method.save(None)) is None


def test_a_name_that_no_method_has_is_said_in_one_line():
    line = error_line(named, "cross-evalution")
    assert line == "clustering.method = \"cross-evalution\": no such method; did you mean 'cross-evaluation'?"


def test_a_method_of_ones_own_is_found_and_told_the_planted_groups(tmp_path, monkeypatch):
    text = (
        "from fedclade.clustering import BaseMethod\n"
        "class Mine(BaseMethod):\n    name = 'mine'\n"
        "class Half:\n"
        "    def __init__(self, config, groups): ...\n"
        "    def init(self, devices): ...\n"
        "    def after_training(self, state, arrival, fleet): ...\n"
        "number = 3\n"
    )
    stand_in_folder_with(monkeypatch, tmp_path, "my_methods", text)
    mine = named("my_methods:Mine")
    assert (mine.name, mine.groups.tolist()) == ("mine", [0, 1])
    assert "has no grown, calls, before_training, screen, save, load" in error_line(named, "my_methods:Half")
    assert "must be a class or function" in error_line(named, "my_methods:number")
