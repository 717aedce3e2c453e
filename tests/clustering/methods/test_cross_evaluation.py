"""Whole runs that split by themselves, on real digits: groups are found, where there are none nothing splits.

Twelve devices of 150 images, and a small network: a run takes about a second. Nothing of clustering is set unless a
test says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedclade import Experiment, Run
from fedclade.clustering import find_method
from fedclade.clustering.method import Conversation
from fedclade.clustering.methods.cross_evaluation import review
from fedclade.clustering.methods.cross_evaluation.rehearsal import Rehearsal
from fedclade.clustering.methods.cross_evaluation.review import losses_of, settled
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook
from fedclade.config import AttackConfig, CrossEvaluationConfig
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.records import Event
from fedclade.core.state import State
from fedclade.core.stopwatch import Stopwatch
from fedclade.core.tree import ROOT
from fedclade.data import Population
from fedclade.fleet.attacks import HostileTrainer
from fedclade.fleet.questions import TryCut
from fedclade.fleet.simulated.fleet import SimulatedFleet
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.fleet.simulated.trainer import Trainer
from fedclade.server import Server
from tiny_runs import digits

NO_GROUPS = ("incongruence.kind=none", "incongruence.groups=[1]")
PLANTED = [list(range(8)), list(range(8, 12))]
DEFAULTS = CrossEvaluationConfig()


def clusters(run: Run) -> list[list[int]]:
    return sorted(node["members"] for node in run.tree if not node["split"] and node["merged_into"] is None)


def kinds(run: Run) -> set[str]:
    return set(run.events["kind"])


def play(server: Server, state: State, rounds: int) -> tuple[State, list[Event]]:
    """Some rounds more, and what was told of them."""
    events = list[Event]()
    for _ in range(rounds):
        result = server.step(state)
        assert result is not None
        state, record = result
        events += record.events
    return state, events


def server_of(experiment: Experiment, trainer: Trainer | None = None) -> Server:
    config, edge, stopwatch = experiment.config, experiment.edge, Stopwatch()
    fleet = SimulatedFleet(config, trainer or experiment.trainer, edge, experiment.population.samples, stopwatch)
    return Server(config, fleet, edge, find_method(config), stopwatch)


# -------------------------------------------------------------------------------- splitting


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("incongruence.kind=permute-labels",),
        ("incongruence.kind=disjoint-classes", "incongruence.groups=[6,6]"),
        ("incongruence.groups=[10,2]",),  # the smallest group there may be
        ("population.partition=dirichlet", "population.alpha=1.0"),
        ("training.learning_rate=0.02",),
        ("training.epochs=1",),
        ("model.name=logistic",),
        ("scheduling.policy=random", "scheduling.per_round=6", "run.rounds=15"),  # half of them at a time
        ("clustering.sketch=256",),
    ],
)
def test_the_planted_groups_are_found_exactly_with_nothing_tuned(overrides, seed, tmp_path):
    run = digits(f"run.seed={seed}", *overrides).run(tmp_path / "run")
    planted = run.devices.groupby("planted_group")["device"].apply(list).tolist()
    assert clusters(run) == planted
    assert run.summary["adjusted_rand_index"] == 1.0


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("population.partition=dirichlet", "population.alpha=0.5"),
        ("population.sizes=power-law", "population.max_samples=300"),
        ("training.learning_rate=0.5",),
        ("scheduling.policy=random", "scheduling.per_round=6"),
    ],
)
def test_where_there_are_no_groups_nothing_splits(overrides, seed, tmp_path):
    run = digits(*NO_GROUPS, f"run.seed={seed}", "run.rounds=14", *overrides).run(tmp_path / "run")
    assert run.summary["clusters"] == 1
    assert "split-test" in kinds(run)  # it was tried
    assert not {"split", "moved", "merge", "trimmed", "rejected"} & kinds(run)


def test_in_the_last_rounds_nothing_is_decided_and_nobody_is_asked(tmp_path):
    run = digits("training.refit_share=0.9").run(tmp_path / "run")
    assert not {"moved", "merge", "stop", "split-test"} & set(run.events[run.events["round"] > 1]["kind"])
    asked = run.rounds.set_index("round")["asking_seconds"]
    assert asked[1] > 0
    assert (asked[2:] == 0).all()
    first, second = (digits("training.refit_share=0.9").edge.observe(round_).compute_seconds for round_ in (1, 2))
    assert (second > first).all()  # held-out images take time, too


def test_too_many_devices_are_cut_by_similarity_alone_and_nothing_is_kept_of_each_pair():
    server = server_of(digits("cross_evaluation.survey_devices=11"))
    state, events = play(server, server.initial_state(), 6)
    assert state.method.affinity is None
    assert "split-test" in {event.kind for event in events} or len(state.tree.leaves()) == 2


def test_a_split_is_told_with_its_test_and_may_be_in_the_first_round(tmp_path):
    run = digits().run(tmp_path / "run")
    (split,) = run.events[run.events["node"] == "0"].itertuples()
    assert (split.kind, split.round) == ("split", 1)
    (root, *_) = run.tree
    told = root["split"]["evidence"]
    assert told["by"] in ("affinity", "similarity")
    assert told["p_group"] * told["cuts"] < run.config.cross_evaluation.level
    assert max(told["p_parent"]) < 0.05


def test_no_cluster_is_tried_in_its_warm_up(tmp_path):
    run = digits("cross_evaluation.warmup_rounds=2").run(tmp_path / "run")
    assert run.summary["first_split_round"] == 3
    tried = run.events[run.events["kind"] == "split-test"]
    assert tried.groupby("node")["round"].min().to_dict() == {"0.0": 6, "0.1": 6}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_cut_is_tried_once_all_have_answered(seed):
    server = server_of(
        digits(f"run.seed={seed}", "scheduling.policy=random", "scheduling.per_round=6", "run.rounds=15")
    )
    state, events = server.initial_state(), list[Event]()
    while not events:
        state, more = play(server, state, 1)
        events = [event for event in more if event.kind in ("split-test", "split")]
        assert not events or (state.last_heard > 0).all()
    assert state.round > 1


def test_the_cuts_of_a_cluster_that_are_tried_in_a_round_share_the_level(monkeypatch):
    server = server_of(digits(*NO_GROUPS))
    shares = dict[tuple[int, str], list[float]]()
    test = Rehearsal.split_test

    def noted(self, state, leaf, devices, side, cuts=1.0):
        shares.setdefault((state.round, leaf.name), []).append(1 / cuts)
        return test(self, state, leaf, devices, side, cuts)

    monkeypatch.setattr(Rehearsal, "split_test", noted)
    play(server, server.initial_state(), 6)
    assert [sum(each) for each in shares.values()] == pytest.approx([1.0] * len(shares))
    both = [each for each in shares.values() if len(each) == 2]
    assert both
    assert all(each == pytest.approx([1 - DEFAULTS.similarity_share, DEFAULTS.similarity_share]) for each in both)


@pytest.mark.parametrize("sketch", [(), ("clustering.sketch=256",)])
def test_a_tests_models_are_made_of_all_members_last_updates_where_these_are_kept(sketch, monkeypatch):
    server = server_of(digits("scheduling.policy=random", "scheduling.per_round=6", "run.rounds=15", *sketch))
    states, models = list[State](), list[Singles]()
    test, ask = Rehearsal.split_test, server.fleet.ask

    def on_test(self, state, *given):
        states.append(state)
        return test(self, state, *given)

    def noted(question):
        if isinstance(question, TryCut):
            models.append(question.models)
        return ask(question)

    monkeypatch.setattr(Rehearsal, "split_test", on_test)
    monkeypatch.setattr(server.fleet, "ask", noted)
    before = state = server.initial_state()
    while not models:
        before, state = state, play(server, state, 1)[0]
    tried = models[0]
    tested = states[-1]  # before that, too few of one side were there
    heard = np.flatnonzero(tested.last_heard > 0)
    assert len(heard) > 6
    parent = tried[2] - before.models[ROOT]
    samples = tested.samples[heard]
    if sketch:
        expected = state.models[ROOT] - before.models[ROOT]  # this round's updates alone
    else:
        expected = (samples / samples.sum()) @ tested.memory.rows(heard)
    np.testing.assert_allclose(parent, expected, atol=1e-6)


def test_a_cut_is_tried_without_those_who_do_not_come(tmp_path):
    late = ("edge.late_share=0.25", "edge.late_round=99")
    run = digits(*late, "clustering.max_age=3").run(tmp_path / "run")
    assert run.summary["first_split_round"] == 3
    assert run.clusters["heard"].max() == 9


def test_a_cluster_that_gets_no_better_stops(tmp_path):
    restless = ("training.learning_rate=0.5", "cross_evaluation.patience=2", "run.rounds=30", "run.end=stopped")
    run = digits(*NO_GROUPS, *restless).run(tmp_path / "run")
    assert run.summary["ended_by"] == "stopped"
    assert run.summary["rounds"] < 30
    assert run.events["kind"].tolist()[-1] == "stop"


def test_a_cluster_that_may_be_of_two_kinds_has_more_patience():
    settings = CrossEvaluationConfig(patience=4)
    suspect = settings.suspect_level
    for p_value, patience in ((suspect, 4 * settings.suspect_patience), (2 * suspect, 4)):
        outlook = Outlook(next_test=99, best_round=10).refused(12, 0, p_value)
        assert [outlook.stands_still(10 + wait, settings) for wait in (patience - 1, patience)] == [False, True]
    assert not Outlook(next_test=99, best_round=10).stands_still(99, settings)  # nothing was tried yet


def test_sketches_keep_so_many_numbers_of_each_device():
    server = server_of(digits("clustering.sketch=256"))
    state, _ = play(server, server.initial_state(), 5)
    assert state.memory.rows(np.arange(12)).shape == (12, 256)
    assert len(state.tree.leaves()) == 2


# -------------------------------------------------------------------------------- devices that come late, or change


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_device_that_comes_late_is_placed_with_its_group(seed, tmp_path):
    late = ("edge.late_share=0.25", "edge.late_round=7")
    experiment = digits(f"run.seed={seed}", *late, "run.rounds=10")
    away = np.flatnonzero(experiment.edge.observe(6).away)
    assert len(away) == 3
    assert not experiment.edge.observe(7).away.any()
    run = experiment.run(tmp_path / "run")
    assert clusters(run) == PLANTED
    placed = run.events[run.events["kind"] == "placed"]
    assert set(placed["device"]) <= set(away)
    assert set(placed["round"]) <= {7}


class DriftingTrainer:
    """From some round on, the devices hold other images."""

    def __init__(self, before: Trainer, after: Trainer, round_: int) -> None:
        self._before, self._after, self._round, self._now = before, after, round_, before
        self.parameters, self.incidents = before.parameters, list[str]()

    @property
    def examiner(self):
        return self._now.examiner

    def initial_model(self, variant=0):
        return self._before.initial_model(variant)

    def train(self, round_, *asked):
        self._now = self._before if round_ < self._round else self._after
        return self._now.train(round_, *asked)


def with_images_of(population: Population, device: int, donor: int) -> Population:
    """The same population, but one device holds what another does."""
    shares = {
        name: tuple(getattr(population, name)[donor if each == device else each] for each in range(population.devices))
        for name in ("train", "validation", "test")
    }
    return replace(population, **shares)


@pytest.mark.parametrize(("device", "donor", "home"), [(0, 9, "0.1"), (9, 0, "0.0")])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_device_whose_data_become_those_of_another_group_is_moved_there(device, donor, home, seed):
    experiment = digits(f"run.seed={seed}", "run.rounds=14")
    before, after = (
        SequentialTrainer(experiment.config, population)
        for population in (experiment.population, with_images_of(experiment.population, device, donor))
    )
    server = server_of(experiment, DriftingTrainer(before, after, round_=7))
    state, _ = play(server, server.initial_state(), 6)
    assert state.tree.leaf_of() == ["0.0"] * 8 + ["0.1"] * 4
    state, events = play(server, state, 6)
    move = next(event for event in events if event.kind == "moved")
    assert (move.device, move.node) == (device, home)
    assert move.detail["p_value"] < 0.01
    assert move.detail["gain"] > 0
    expected = ["0.0"] * 8 + ["0.1"] * 4
    expected[device] = home
    assert adjusted_rand_score(expected, state.tree.leaf_of()) == 1.0  # a split in that very round is mended


def test_nobody_moves_out_of_a_cluster_that_may_be_of_several_kinds():
    server = server_of(digits())
    state, events = play(server, server.initial_state(), 1)
    assert "split" in {event.kind for event in events}
    everybody = np.arange(12)
    for devices in (everybody, everybody[:0]):
        assert len(settled(state, devices, DEFAULTS)) == 0
    tried = replace(state, method=replace(state.method, outlooks={"0.1": Outlook(next_test=4, tests=1)}))
    assert settled(tried, everybody, DEFAULTS).tolist() == PLANTED[1]


def with_a_false_split(state: State, second: Sequence[int]) -> State:
    first = [device for device in range(state.devices) if device not in second]
    tree = state.tree.split(ROOT, [first, second], state.round, state.seconds)
    return replace(state, tree=tree, models={**state.models, "0.0": state.models[ROOT], "0.1": state.models[ROOT]})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_clusters_of_a_false_split_are_one_again(seed):
    server = server_of(digits(*NO_GROUPS, f"run.seed={seed}"))
    state, _ = play(server, server.initial_state(), 4)
    state, events = play(server, with_a_false_split(state, range(6, 12)), 10)
    (merge,) = (event for event in events if event.kind == "merge")
    assert (merge.node, merge.detail["merged"]) == ("0.0", "0.1")
    assert sum(merge.detail["gain"]) > 0
    assert merge.detail["p_groups"] > 0.05
    assert [leaf.name for leaf in state.tree.leaves()] == ["0.0"]
    assert state.tree.nodes["0.1"].merged_into == "0.0"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_torn_group_is_one_again_whatever_the_others_say_of_their_models(seed, monkeypatch):
    def lied(models: Singles, devices: Ints, talk: Conversation) -> Floats:
        found = losses_of(models, devices, talk)
        found[:, devices >= 8] *= -1.0
        return found

    monkeypatch.setattr(review, "losses_of", lied)
    server = server_of(digits(f"run.seed={seed}"))
    state, _ = play(server, server.initial_state(), 4)
    assert state.tree.leaf_of() == ["0.0"] * 8 + ["0.1"] * 4
    tree = state.tree.split("0.0", [range(4), range(4, 8)], state.round, state.seconds)
    models = {**state.models, "0.0.0": state.models["0.0"], "0.0.1": state.models["0.0"]}
    _, events = play(server, replace(state, tree=tree, models=models), 10)
    (merge,) = (event for event in events if event.kind == "merge")
    assert (merge.node, merge.detail["merged"]) == ("0.0.0", "0.0.1")


def test_a_few_voices_do_not_merge_clusters():
    server = server_of(digits(*NO_GROUPS, "scheduling.policy=random", "scheduling.per_round=4"))
    state, _ = play(server, server.initial_state(), 4)
    _, events = play(server, with_a_false_split(state, range(6, 12)), 10)
    assert "merge" not in {event.kind for event in events}


def test_clusters_of_real_groups_are_never_merged(tmp_path):
    run = digits("run.rounds=20", "cross_evaluation.review_every=1").run(tmp_path / "run")
    assert clusters(run) == PLANTED
    assert not {"merge", "moved"} & kinds(run)


def test_without_reviews_nobody_moves():
    experiment = digits("run.rounds=14", "cross_evaluation.review_every=0")
    after = SequentialTrainer(experiment.config, with_images_of(experiment.population, 0, 9))
    before = SequentialTrainer(experiment.config, experiment.population)
    server = server_of(experiment, DriftingTrainer(before, after, round_=7))
    _, events = play(server, server.initial_state(), 10)
    assert not [event for event in events if event.kind in ("moved", "merge")]


# -------------------------------------------------------------------------------- attacks


@dataclass(frozen=True)
class Outcome:
    run: Run
    hostile: Ints  # who attacks, or would if there were an attack

    @property
    def honest(self) -> Ints:
        return np.setdiff1d(np.arange(15), self.hostile)

    @property
    def accuracy(self) -> float:
        """Of the honest devices at the end."""
        last = self.run.evaluations[self.run.evaluations["round"] == 12].sort_values("device")
        return float(last["accuracy"].to_numpy()[self.honest].mean())

    def told_of(self, kind: str) -> Ints:
        """The devices of some events."""
        return self.run.events["device"][self.run.events["kind"] == kind].to_numpy(dtype=np.int64)


def attacked(folder: Path, *overrides: str) -> Outcome:
    experiment = digits("population.devices=15", "run.rounds=12", "run.evaluate_every=12", *overrides)
    honest = SequentialTrainer(experiment.config, experiment.population)
    some = HostileTrainer(honest, AttackConfig(kind="huge"), 15, experiment.config.run.seed).hostile
    return Outcome(experiment.run(folder), some)


SCENES = {
    "one group": NO_GROUPS,
    "two groups": ("incongruence.groups=[10,5]",),
}


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory) -> dict[str, Outcome]:
    """The same without an attack."""
    folder = tmp_path_factory.mktemp("peaceful")
    return {scene: attacked(folder / scene, *overrides) for scene, overrides in SCENES.items()}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("kind", "reason"), [("not-finite", "not finite"), ("huge", "norm ")])
def test_useless_updates_are_rejected_and_recorded_and_the_run_goes_on(kind, reason, scene, peaceful, tmp_path):
    spoilt = attacked(tmp_path / "run", *SCENES[scene], f"attack.kind={kind}")
    rejected = spoilt.run.events[spoilt.run.events["kind"] == "rejected"]
    assert rejected["device"].tolist() == spoilt.hostile.tolist() * 12  # of every one in every round, and of no other
    assert all(detail["reason"].startswith(reason) for detail in rejected["detail"])
    assert spoilt.run.summary["rounds"] == 12
    assert spoilt.run.summary["clusters"] == peaceful[scene].run.summary["clusters"]
    assert spoilt.accuracy > peaceful[scene].accuracy - 0.03


@pytest.mark.parametrize(
    ("kind", "scene", "cost"),
    [("random", "one group", 0.03), ("random", "two groups", 0.04), ("sign-flip", "one group", 0.06)],
)
def test_a_fifth_of_hostile_devices_cost_the_honest_ones_little(kind, scene, cost, peaceful, tmp_path):
    spoilt = attacked(tmp_path / "run", *SCENES[scene], f"attack.kind={kind}")
    assert len(spoilt.hostile) == 3
    assert spoilt.accuracy > peaceful[scene].accuracy - cost


@pytest.mark.parametrize("kind", ["not-finite", "huge", "sign-flip", "random"])
@pytest.mark.parametrize("scene", SCENES)
def test_no_attack_hides_the_groups_of_the_honest_devices_or_makes_any(kind, scene, tmp_path):
    spoilt = attacked(tmp_path / "run", *SCENES[scene], f"attack.kind={kind}")
    planted = spoilt.run.devices["planted_group"].to_numpy()[spoilt.honest]
    found = np.empty(15, dtype=object)
    for number, members in enumerate(clusters(spoilt.run)):
        found[members] = number
    assert (
        len({*zip(planted, found[spoilt.honest], strict=True)}) == len(set(planted)) == len(set(found[spoilt.honest]))
    )


def test_updates_that_harm_everybody_are_left_out_of_the_average_and_recorded(tmp_path):
    spoilt = attacked(tmp_path / "run", *NO_GROUPS, "attack.kind=sign-flip")
    aside = spoilt.told_of("trimmed")
    assert np.isin(aside, spoilt.hostile).sum() > 0.6 * 3 * 12
    assert np.isin(aside, spoilt.honest).sum() < 0.05 * 12 * 12
