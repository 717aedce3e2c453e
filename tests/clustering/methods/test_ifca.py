"""IFCA with made-up devices: each device takes the nearest model, and pulls it to its target."""

import numpy as np
import pytest

from fedclade.core.records import Event
from fedclade.fleet.questions import Evaluate
from fedclade.server import Server
from made_up import clusters, kinds, make, play

TWO = ("clustering.method=ifca", "ifca.clusters=2", "training.epochs=1")
APART = [[-3], [-2], [3], [4]]  # models start at 0 and 1: 3 and 2 away from 0, 2 and 3 away from 1


def numbers(state) -> dict[str, list[float]]:
    return {name: pytest.approx(model.tolist()) for name, model in state.models.items()}


def test_each_device_trains_the_model_with_the_smallest_loss_from_the_first_round_on():
    server = make(APART, *TWO, samples=[1, 3, 1, 1])
    state, (record,) = play(server, 1)
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}
    assert numbers(state) == {"0": [0], "0.0": [(-3 - 3 * 2) / 4], "0.1": [3.5]}
    parts = {"parts": [[0, 1], [2, 3]], "by": "smallest loss"}
    assert record.events == [Event("split", "0", detail=parts)]
    split = state.tree.nodes["0"].split
    assert (split.round, split.seconds) == (0, 0.0)  # before anybody trained
    assert [(cluster.node, cluster.verdict) for cluster in record.clusters] == [("0.0", "go-on"), ("0.1", "go-on")]
    assert len(server.trainer.trained) == 2  # once for the clusters, once for the conventional model


def test_models_start_from_different_weights():
    server = make([[0], [1], [2]], "clustering.method=ifca", "ifca.clusters=3", pull=lambda round_: 0.0)
    state, _ = play(server, 1)
    assert numbers(state) == {"0": [0], "0.0": [0], "0.1": [1], "0.2": [2]}


def test_whoever_is_closer_to_another_model_by_now_takes_that():
    # 0.4 takes the model at 0, and with -6 pulls it to -2.8: then 1.5 is closer
    state, (first, second) = play(make([[0.4], [-6], [1.5]], *TWO), 2)
    assert first.events[0].detail["parts"] == [[0, 1], [2]]
    (event,) = second.events
    assert (event.kind, event.node, event.device, event.detail["from"]) == ("moved", "0.1", 0, "0.0")
    assert event.detail["loss"] == pytest.approx(1.1)
    assert clusters(state) == {"0.0": (1,), "0.1": (0, 2)}
    assert numbers(state) == {"0": [0], "0.0": [-6], "0.1": [(0.4 + 1.5) / 2]}  # it trained its new model at once


def test_a_model_that_nobody_takes_stays_as_it_is_and_may_be_taken_later():
    server = make([[-1], [-2]], *TWO)
    state, (record,) = play(server, 1)
    assert clusters(state) == {"0.0": (0, 1), "0.1": ()}
    assert numbers(state)["0.1"] == [1]
    assert [(cluster.node, cluster.members, cluster.heard) for cluster in record.clusters] == [
        ("0.0", 2, 2),
        ("0.1", 0, 0),
    ]
    server.trainer.targets[0] = 5  # its data are others by now
    state, (record,) = play(server, 1, state)
    assert kinds(record) == [("moved", "0.1")]
    assert numbers(state)["0.1"] == [5]


@pytest.mark.parametrize("policy", ["fair", "fair-cover", "random", "full", "best-update"])
def test_every_policy_can_do_with_a_cluster_that_is_empty(policy):
    state, _ = play(make([[-1], [-2], [-3]], *TWO, f"scheduling.policy={policy}"), 3)
    assert clusters(state) == {"0.0": (0, 1, 2), "0.1": ()}
    assert state.participation.sum() > 0


def test_whoever_does_not_train_yet_waits_with_the_first_model():
    server = make(APART, *TWO, script={1: [0, 2]})
    state, (first, second) = play(server, 2)
    assert first.events[0].detail["parts"] == [[0, 1, 3], [2]]
    assert kinds(second) == [("moved", "0.1")]
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}


def test_one_model_is_conventional_federated_learning():
    one = play(make(APART, *TWO, "ifca.clusters=1"), 3)[0]
    none = play(make(APART, "clustering.method=none"), 3)[0]
    assert clusters(one) == {"0": (0, 1, 2, 3)}
    np.testing.assert_array_equal(one.models["0"], none.models["0"])


def test_all_models_go_to_every_device_in_every_round_and_the_clock_and_the_bill_count_it():
    # two models at 0.25 s, not sent again to train; two looks of a third of the training of one image, 1 s
    state, records = play(make(APART, *TWO, broadcast=0.25), 2)
    for record in records:
        assert record.asking_seconds == pytest.approx(2 * 0.25 + 2 / 3)
        assert record.seconds == pytest.approx(2 + record.asking_seconds)
        assert record.device_joules == pytest.approx(np.full(4, 11 + 2 / 3))
    assert state.seconds == pytest.approx(sum(record.seconds for record in records))


def test_only_devices_that_are_about_to_train_are_asked():
    asked = list[list[int]]()
    server = make(APART, *TWO, script={1: [0, 2], 2: [3], 3: []})
    ask = server.fleet.ask
    server.fleet.ask = lambda question: (
        (asked.append(question.devices.tolist()) if question.share == "train" else None) or ask(question)
    )
    play(server, 3)
    assert asked == [[0, 2, 0, 2], [3, 3]]


def without_an_answer_of(server: Server, device: int) -> Server:
    ask = server.fleet.ask

    def silent(question):
        answers = ask(question)
        if isinstance(question, Evaluate) and question.share == "train":
            answers.value.loss[question.devices == device] = np.nan
        return answers

    server.fleet.ask = silent
    return server


def test_a_device_that_does_not_answer_stays_where_it_is():
    state, (record,) = play(without_an_answer_of(make(APART, *TWO), 3), 1)
    assert record.events[0].detail["parts"] == [[0, 1, 3], [2]]
    state, (record,) = play(without_an_answer_of(make(APART, *TWO), 3), 1, state)
    assert kinds(record) == []
    assert clusters(state) == {"0.0": (0, 1, 3), "0.1": (2,)}


@pytest.mark.parametrize("seed", range(5))
def test_planted_groups_are_found_when_their_number_is_known_and_each_model_is_its_groups_mean(seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(3), (6, 4, 2)))
    centres = np.array([[-4, -4, -4], [1, 1, 1], [7, 7, 7]])  # models start at (0, 0, 0), (1, 1, 1) and (2, 2, 2)
    targets = centres[group] + rng.normal(0, 0.3, (12, 3))
    samples = rng.integers(1, 9, 12)
    server = make(targets, "clustering.method=ifca", "ifca.clusters=3", samples=samples.tolist())
    state, _ = play(server, 4)
    assert clusters(state) == {f"0.{each}": tuple(np.flatnonzero(group == each)) for each in range(3)}
    for each in range(3):
        mean = np.average(targets[group == each], axis=0, weights=samples[group == each])
        np.testing.assert_allclose(state.models[f"0.{each}"], mean, rtol=1e-4)
