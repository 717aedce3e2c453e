"""FL+HC, FeSEM, FedGroup, PACFL and local training with made-up devices: each pulls a model to its own target."""

import numpy as np
import pytest

from fedclade.clustering.methods.fedgroup import Groups, closest, edc
from fedclade.clustering.methods.fesem import squared_distances
from fedclade.clustering.methods.pacfl import angles
from fedclade.core.records import Event
from fedclade.fleet.answers import Spans
from fedclade.fleet.questions import Subspaces
from fedclade.fleet.told import Declared, Told
from made_up import clusters, kinds, make, play

LINE = [[2, 0], [4, 0], [-3, 0], [-3, 0]]
TURNS = [[1, 0, 0], [2, 0.1, 0], [0, 3, 0], [0, 0, 2], [0, 0.1, 1]]  # three directions


def method(name: str, *more: str) -> list[str]:
    return [f"clustering.method={name}", "training.epochs=1", *more]


def numbers(state) -> dict[str, list[float]]:
    return {name: pytest.approx(model.tolist(), abs=1e-5) for name, model in state.models.items()}


# -------------------------------------------------------------------------------- FL+HC

FLHC = method("flhc", "flhc.rounds=2", "flhc.clusters=2", "flhc.distance=manhattan")


def test_flhc_trains_one_model_for_n_rounds_and_then_clusters_once():
    state, records = play(make(LINE, *FLHC, samples=[1, 1, 2, 2], pull=lambda round_: 0.5), 4)
    # one model: 0 + 0.5 · mean(2, 4, -3, -3, -3, -3) = -0.5, then -0.75; in the third round everybody pulls from there
    assert [kinds(record) for record in records] == [[], [], [("split", "0")], []]
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}
    third, _ = play(make(LINE, *FLHC, samples=[1, 1, 2, 2], pull=lambda round_: 0.5), 3)
    assert numbers(third)["0.0"] == [-0.75 + 0.5 * 3.75, 0]
    assert numbers(third)["0.1"] == [-0.75 - 0.5 * 2.25, 0]
    assert state.tree.nodes["0"].split.evidence == {"by": "hierarchical clustering", "clusters": 2}


def test_flhc_calls_everybody_for_its_clustering_whatever_the_policy_says():
    server = make(LINE, *FLHC, script={1: [0], 2: [2], 3: [1], 4: [3]})
    state, _ = play(server, 4)
    alone = [trained for trained in server.trainer.trained if len(trained) < 4]
    assert alone == [[0], [2], [3]]  # all four in the third round, and for the one-model comparison after it
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}


def test_flhc_with_a_threshold_may_find_nothing_to_split():
    wide = method("flhc", "flhc.rounds=0", "flhc.threshold=100", "flhc.distance=manhattan")
    state, _ = play(make(LINE, *wide), 3)
    assert clusters(state) == {"0": (0, 1, 2, 3)}
    narrow = method("flhc", "flhc.rounds=0", "flhc.threshold=3", "flhc.distance=manhattan")
    state, _ = play(make(LINE, *narrow), 3)
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}


def test_flhc_places_whoever_was_away_by_the_smallest_loss():
    server = make(LINE, *FLHC)
    server.edge.away = {3: [3]}
    server.edge.observe = lambda round_, observe=server.edge.observe: observe(round_)
    state, records = play(server, 4)
    assert records[2].events[-1].detail["parts"] == [[0, 1, 3], [2]]
    assert kinds(records[3]) == [("placed", "0.1")]
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}
    assert state.method.placed.all()


# -------------------------------------------------------------------------------- FeSEM

FESEM = method("fesem", "fesem.clusters=2")


def test_fesem_starts_from_k_means_and_moves_devices_to_the_nearest_weights():
    server = make([[1], [2], [9], [10]], *FESEM, samples=[1, 1, 1, 3])
    state, (record,) = play(server, 1)
    assert kinds(record) == [("split", "0")]
    assert numbers(state) == {"0": [pytest.approx((1 + 2 + 9 + 30) / 6)], "0.0": [1.5], "0.1": [9.75]}
    server.trainer.targets[1] = 8  # its data are others by now: from 1.5 it goes to 8, which is nearer to 9.75
    state, (record,) = play(server, 1, state)
    assert record.events == [Event("moved", "0.1", 1, {"from": "0.0", "by": "nearest weights"})]
    # the mean of weights, not of updates: 8, 9 and 10 three times
    assert numbers(state)["0.0"] == [1]
    assert numbers(state)["0.1"] == [(8 + 9 + 30) / 5]


def test_a_centre_that_all_devices_leave_stays_where_it_is():
    server = make([[1], [9], [10]], *FESEM)
    state, _ = play(server, 1)
    assert clusters(state) == {"0.0": (0,), "0.1": (1, 2)}
    server.trainer.targets[0] = 9.5
    state, _ = play(server, 1, state)
    assert clusters(state) == {"0.0": (), "0.1": (0, 1, 2)}
    assert numbers(state)["0.0"] == [1]
    state, _ = play(server, 2, state)
    assert numbers(state)["0.1"] == [9.5]


def test_distances_of_weights_to_centres_by_hand():
    found = squared_distances(np.array([[3.0, 0.0]], np.float32), np.array([[0, 0], [0, 4]], np.float32), np.array([0]))
    assert found.tolist() == [[9, 25]]


# -------------------------------------------------------------------------------- FedGroup

FEDGROUP = method("fedgroup", "fedgroup.clusters=3")


def test_edc_is_the_cosine_with_each_singular_vector():
    rows = np.array([[3.0, 0, 0], [0, 2, 0], [4, 3, 0]])
    found = edc(rows @ rows.T, 2)
    vectors = np.linalg.svd(rows)[2][:2]
    expected = rows @ vectors.T / np.linalg.norm(rows, axis=1)[:, None]
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)  # a singular vector's sign is nobody's
    assert closest(np.array([[1, 5], [3, 1]], np.float32), np.array([[9, 0], [0, 0.1]], np.float32)).tolist() == [1, 0]


def test_fedgroup_groups_by_direction_in_the_first_round():
    state, (record,) = play(make(TURNS, *FEDGROUP), 1)
    assert kinds(record) == [("split", "0")]
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2,), "0.2": (3, 4)}
    assert numbers(state)["0.0"] == [1.5, 0.05, 0]
    np.testing.assert_allclose(state.method.directions, [[1.5, 0.05, 0], [0, 3, 0], [0, 0.05, 1.5]], atol=1e-6)


def test_whoever_comes_later_trains_the_first_model_and_joins_the_closest_direction():
    server = make([*TURNS, [0, 0, 5], [4, 0, 0]], *FEDGROUP, script={1: [0]})
    server.method.calls = lambda state: np.arange(5 if state.round == 0 else 0)
    server.planner.policy = type(server.planner.policy)("script", lambda s: np.array([[0], [5], [6], [6]][s.round - 1]))
    state, records = play(server, 2)
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2,), "0.2": (3, 4, 5), "0.3": (6,)}
    assert (state.method.waiting, numbers(state)["0.3"]) == ("0.3", [0, 0, 0])
    assert records[1].events == [Event("placed", "0.2", 5, {"from": "0.3", "by": "direction"})]
    assert numbers(state)["0.2"] == [0, 0.05, 1.5]  # pre-training moves no group's model
    state, _ = play(server, 2, state)
    assert clusters(state) == {"0.0": (0, 1, 6), "0.1": (2,), "0.2": (3, 4, 5)}
    assert state.method.waiting is None
    assert numbers(state)["0.0"] == [4, 0, 0]  # then it trains its group's


def test_fedgroup_calls_so_many_devices_times_the_groups():
    server = make(TURNS * 5, *FEDGROUP, "fedgroup.pretrain_scale=4", script={1: [], 2: []})
    state, _ = play(server, 1)
    assert len(server.trainer.trained[0]) == 12
    own = server.method.load(*server.method.save(state.method))
    assert isinstance(own, Groups)
    assert (own.waiting, own.directions.tolist()) == ("0.3", state.method.directions.tolist())


# -------------------------------------------------------------------------------- PACFL


def test_angles_by_hand():
    first = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)  # one class, two vectors
    second = np.array([[[0, 1, 0], [0, 0, 1]]], np.float32)
    tilted = np.array([[[np.cos(0.5), 0, np.sin(0.5)], [0, 0, 0]]], np.float32)
    smallest = angles([first, second, tilted], "smallest")
    np.testing.assert_allclose(smallest[0], [0, 0, np.degrees(0.5)], atol=1e-3)  # they share the second axis
    assert smallest[1, 2] == pytest.approx(np.degrees(np.arccos(np.sin(0.5))), abs=1e-3)
    same_rank = angles([first, second, tilted], "corresponding")
    np.testing.assert_allclose(same_rank[0], [0, 90, np.degrees(0.5)], atol=1e-3)
    np.testing.assert_allclose(same_rank, same_rank.T)


PACFL = method("pacfl", "pacfl.vectors=1")


def test_pacfl_clusters_by_the_directions_of_the_data_before_anybody_trains():
    state, (record,) = play(make(TURNS, *PACFL), 1)
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2,), "0.2": (3, 4)}
    split = state.tree.nodes["0"].split
    assert (split.round, split.evidence) == (0, {"by": "principal angles", "clusters": 3})
    np.testing.assert_allclose(record.events[0].likeness[1][0, [0, 2, 3]], [1, 0, 0], atol=1e-5)
    again, (record,) = play(make(TURNS, *PACFL), 1, state)
    assert (kinds(record), clusters(again)) == ([], clusters(state))
    both, _ = play(make(TURNS, *PACFL, "pacfl.clusters=2"), 1)
    assert len(clusters(both)) == 2


def test_the_subspaces_are_uploaded_on_the_clock_and_in_the_bill():
    # a model is 8 bits and takes 1 s and 10 J; a vector of 3 numbers is 96 bits: 12 s and 120 J, five on two channels
    # of which one carries three; before that a look, a third of a round's second
    state, (record,) = play(make(TURNS, *PACFL, subchannels=2), 1)
    assert record.asking_seconds == pytest.approx(3 * 12 + 1 / 3)
    assert record.device_joules == pytest.approx(np.full(5, 11 + 120 + 1 / 3))
    assert state.uplink_bits == pytest.approx(5 * 96 + 5 * 8)
    assert state.downlink_bits == 3 * 8  # three clusters' models are multicast
    state, (record,) = play(make(TURNS, *PACFL, subchannels=2), 1, state)
    assert (record.asking_seconds, state.uplink_bits) == (0, pytest.approx(5 * 96 + 2 * 5 * 8))


def test_the_question_for_subspaces_travels_to_a_device_and_back():
    examiner = make(TURNS, *PACFL).trainer
    question, answer = Subspaces(np.array([1, 3]), 2), Spans({}, {})
    for device in (1, 3):
        at_home = Subspaces.read(*question.part(device), device)
        question.take(answer, device, Told(*Subspaces.reply(at_home.run(examiner))))
    whole = question.run(examiner)
    assert answer.samples == whole.samples == {1: 1, 3: 1}
    assert {device: vectors.tolist() for device, vectors in answer.vectors.items()} == {
        device: vectors.tolist() for device, vectors in whole.vectors.items()
    }
    assert question.answer_bits(answer).tolist() == [96, 96]  # of one image there is one vector
    for wrong in (np.ones((1, 2, 3)), np.zeros((1, 2, 4)), np.zeros((1, 1, 3)), np.full((1, 2, 3), np.nan)):
        told = Told({"samples": 1}, {"vectors": wrong.astype(np.float32)}, Declared(values=3, classes=1))
        with pytest.raises(ValueError, match="must be"):
            question.take(answer, 1, told)


def test_pacfl_asks_late_devices_and_puts_them_to_the_nearest():
    server = make(TURNS, *PACFL)
    server.method.calls = lambda state: np.arange(0)
    server.planner.policy = type(server.planner.policy)("script", lambda s: np.array([[0, 2, 3], [1, 4]][s.round - 1]))
    state, records = play(server, 2)
    assert records[0].events[0].detail["parts"] == [[0, 1, 4], [2], [3]]
    assert [(event.kind, event.node, event.device) for event in records[1].events] == [("placed", "0.2", 4)]
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2,), "0.2": (3, 4)}
    own = server.method.load(*server.method.save(state.method))
    assert sorted(own) == [0, 1, 2, 3, 4]


# -------------------------------------------------------------------------------- local training


def test_local_training_sends_nothing():
    server = make(LINE, *method("local"), broadcast=5.0, compute=[1.0, 2.0, 3.0, 4.0])
    state, records = play(server, 2)
    assert clusters(state) == {"0.0": (0,), "0.1": (1,), "0.2": (2,), "0.3": (3,)}
    assert [numbers(state)[f"0.{i}"] for i in range(4)] == [[2, 0], [4, 0], [-3, 0], [-3, 0]]
    assert (state.seconds, state.uplink_bits, state.downlink_bits) == (8.0, 0, 0)  # the slowest computes for 4 s
    assert state.energy_joules.tolist() == [2, 2, 2, 2]
    assert all(record.broadcast_seconds == 0 for record in records)


# -------------------------------------------------------------------------------- planted groups


@pytest.mark.parametrize("name", ["flhc", "fesem", "fedgroup", "pacfl"])
@pytest.mark.parametrize("seed", range(4))
def test_planted_groups_are_found_when_their_number_is_known(name, seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(3), (6, 4, 3)))
    targets = 4 * np.eye(5)[group] + rng.normal(0, 0.3, (13, 5))
    server = make(targets, *method(name, f"{name}.clusters=3", *(["flhc.rounds=1"] if name == "flhc" else [])))
    state, _ = play(server, 5)
    assert set(clusters(state).values()) == {tuple(np.flatnonzero(group == each).tolist()) for each in range(3)}
    for leaf in state.tree.leaves():
        np.testing.assert_allclose(
            state.models[leaf.name], targets[list(leaf.devices)].mean(axis=0), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("name", ["flhc", "fesem", "fedgroup", "pacfl"])
@pytest.mark.parametrize("policy", ["fair", "random", "best-update", "fair-cover"])
def test_every_policy_goes_with_every_method(name, policy):
    server = make(
        TURNS * 2,
        *method(name, f"{name}.clusters=3"),
        f"scheduling.policy={policy}",
        "scheduling.per_round=3",
        "flhc.rounds=1",
    )
    state, _ = play(server, 5)
    assert sum(len(members) for members in clusters(state).values()) == 10
