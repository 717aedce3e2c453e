"""The paper's rule on made-up devices: what test_server does not say of it."""

from dataclasses import replace

import numpy as np
import pytest

from fedclade.core.tree import Tree
from fedclade.fleet.questions import Evaluate
from made_up import FACING, clusters, kinds, make, model_of, play


def with_two_leaves(server, first, second):
    """The state after a split in round 1, before anybody was heard."""
    state = server.initial_state()
    tree = Tree.planted(state.devices).split("0", [first, second], 1, 0.0)
    models = {"0": model_of(0), "0.0": model_of(3), "0.1": model_of(-3)}
    return replace(state, tree=tree, models=models, round=1)


def moves(server, state, devices):
    decided = server.method.before_training(state, np.array(devices, dtype=np.int64), server.fleet)
    return [(move.device, move.to, move.kind) for move in decided.moves]


def test_devices_never_heard_are_placed_by_the_smallest_loss_before_they_train():
    server = make(FACING)
    state = with_two_leaves(server, [0, 3, 4], [1, 2, 5])
    assert moves(server, state, [0, 1, 2, 3, 4, 5]) == [
        (1, "0.0", "placed"),
        (2, "0.0", "placed"),
        (3, "0.1", "placed"),
        (4, "0.1", "placed"),
    ]
    assert moves(server, state, [4, 5]) == [(4, "0.1", "placed")]  # only those asked
    assert moves(server, state, []) == []


def test_who_was_heard_before_is_not_placed_again_and_asked_nothing():
    server = make(FACING)
    state = replace(with_two_leaves(server, [0, 3, 4], [1, 2, 5]), last_heard=np.array([0, 1, 1, 1, 0, 1]))
    asked = list[int]()
    ask = server.fleet.ask
    server.fleet.ask = lambda question: asked.extend(question.devices.tolist()) or ask(question)
    assert moves(server, state, [0, 1, 2, 3, 4, 5]) == [(4, "0.1", "placed")]
    assert sorted(asked) == [0, 0, 4, 4]
    assert (
        server.method.before_training(replace(state, last_heard=state.last_heard + 1), np.arange(6), None).cost is None
    )


def test_the_last_device_of_a_leaf_is_not_placed_elsewhere():
    server = make(FACING)
    state = with_two_leaves(server, [3, 4], [0, 1, 2, 5])
    assert moves(server, state, [3, 4]) == [(3, "0.1", "placed")]


def test_a_device_that_does_not_answer_waits_where_it_is():
    server = make(FACING)
    state = with_two_leaves(server, [0, 3, 4], [1, 2, 5])
    ask = server.fleet.ask

    def silent(question):
        answers = ask(question)
        assert isinstance(question, Evaluate)
        answers.value.loss[question.devices == 3] = np.nan
        return answers

    server.fleet.ask = silent
    assert moves(server, state, [3, 4]) == [(4, "0.1", "placed")]


def test_a_recheck_that_finds_groups_reopens_and_splits_the_cluster_at_once():
    # updates of at most 0.4 at first: stopped; then of 4, in two directions
    server = make(FACING, "scheduling.recheck_every=2", pull=lambda round_: 1.0 if round_ >= 3 else 0.1)
    state, records = play(server, 3)
    assert [record.clusters[0].verdict for record in records] == ["stop", "stopped", "split"]
    assert kinds(records[2]) == [("reopen", "0"), ("split", "0")]
    assert clusters(state) == {"0.0": (0, 1, 2), "0.1": (3, 4, 5)}


@pytest.mark.parametrize("bipartition", ["minmax", "average", "complete"])
@pytest.mark.parametrize("seed", range(4))
def test_planted_groups_are_found_one_split_after_the_other(seed, bipartition):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(3), 4))
    angles = 2 * np.pi / 3 * np.arange(3)
    centres = 5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    targets = centres[group] + rng.normal(0, 0.1, (12, 2))
    state, records = play(make(targets, f"norm_thresholds.bipartition={bipartition}", "scheduling.policy=full"), 4)
    assert sorted(clusters(state).values()) == sorted(tuple(np.flatnonzero(group == each)) for each in range(3))
    assert sum(kind == "split" for record in records for kind, _ in kinds(record)) == 2
    for name, devices in clusters(state).items():
        np.testing.assert_allclose(state.models[name], targets[list(devices)].mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_one_group_is_never_split(seed):
    targets = 5 + np.random.default_rng(seed).normal(0, 0.1, (12, 2))
    state, _ = play(make(targets), 5)
    assert len(clusters(state)) == 1
    assert state.tree.nodes["0"].stopped_round == 2  # all are served by their mean
