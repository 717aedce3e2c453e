"""The server's loop with made-up devices and links: every number can be worked out by hand. See ``made_up``."""

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade import UserError
from fedclade.core.records import ClusterRecord, Event, RoundRecord
from fedclade.core.state import State
from fedclade.fleet.evaluation import models_by_devices, tuned_score
from fedclade.fleet.fleet import Cost, Roster
from fedclade.fleet.simulated.fleet import SimulatedFleet
from fedclade.fleet.trouble import Trouble
from fedclade.scheduling import Policy
from made_up import FACING, INF, LINE, clusters, kinds, make, play


def model(state: State, name: str = "0") -> list[float]:
    return pytest.approx(state.models[name].tolist())


def heard(record: RoundRecord) -> list[int]:
    return sorted(record.timeline.arrived.tolist())


def usable(record: RoundRecord) -> list[int]:
    """Heard, and not rejected."""
    rejected = {event.device for event in record.events if event.kind == "rejected"}
    return [device for device in heard(record) if device not in rejected]


# -------------------------------------------------------------------------------- bad updates


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_rejected_and_the_round_goes_on(bad):
    server = make([[2], [4], [bad]], "clustering.method=none")
    state, (record,) = play(server, 1)
    assert kinds(record) == [("rejected", "0")]
    assert record.events[0].device == 2
    assert model(state) == [3]  # the mean of the other two
    assert state.last_heard.tolist() == [1, 1, 0]
    assert state.memory.devices.tolist() == [0, 1]
    assert record.device_joules.tolist() == [11, 11, 11]  # it was sent all the same


def test_where_every_update_is_broken_the_model_stays():
    state, (record,) = play(make([[math.nan], [math.inf]]), 1)
    assert model(state) == [0]
    assert kinds(record) == [("rejected", "0")] * 2


# -------------------------------------------------------------------------------- splitting


def test_a_split_takes_effect_in_its_round_and_each_child_averages_its_own_members_by_samples():
    server = make(LINE, samples=[1, 3, 1, 1])
    state, (first, second) = play(server, 2)
    # round 1, from 0: mean (2 + 4 - 3 - 3) / 4 = 0 < ε1 and max 4 > ε2
    assert first.clusters == [ClusterRecord("0", 4, 4, 0.0, 4.0, "split")]
    assert kinds(first) == [("split", "0")]
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}
    assert model(state, "0") == [(1 * 2 + 3 * 4 - 3 - 3) / 6, 0]  # as it stood at its split
    # round 2, from (1·2 + 3·4) / 4 = 3.5 and from -3: updates -1.5, 0.5 and 0, 0; then 3.5 + (1·-1.5 + 3·0.5) / 4 = 3.5
    assert second.clusters == [
        ClusterRecord("0.0", 2, 2, 0.5, 1.5, "go-on"),
        ClusterRecord("0.1", 2, 2, 0.0, 0.0, "stop"),
    ]
    assert (model(state, "0.0"), model(state, "0.1")) == ([3.5, 0], [-3, 0])


def test_a_split_is_told_with_its_members_its_second_and_how_clear_it_was():
    state, (record,) = play(make(LINE), 1)
    # cosines are 1 within and -1 across: gap 2, bound sqrt((1 + 1) / 2) = 1
    facts = {"by": "similarity", "sim_within_min": 1.0, "sim_cross_max": -1.0, "gap": 2.0, "gamma_bound": 1.0}
    facts |= {"gamma_max": None, "gamma_error": None}
    assert record.events == [Event("split", "0", detail={"parts": [[0, 1], [2, 3]], **facts})]
    split = state.tree.nodes["0"].split
    assert (split.round, split.seconds) == (1, state.seconds)


@pytest.mark.parametrize(
    ("override", "splits"),
    [
        ("norm_thresholds.gamma=0.99", True),  # the bound is 1
        ("norm_thresholds.gamma=1.0", False),
        ("norm_thresholds.gamma=estimated", False),  # two devices in a child say nothing of its error
        ("clustering.min_cluster_size=2", True),
        ("clustering.min_cluster_size=3", False),
        ("clustering.method=none", False),
        ("norm_thresholds.warmup_rounds=1", False),
        ("norm_thresholds.epsilon2=4.0", False),  # the largest is 4, not above
    ],
)
def test_a_refused_split_means_going_on_with_one_model(override, splits):
    state, (record,) = play(make(LINE, override), 1)
    assert record.clusters[0].verdict == ("split" if splits else "go-on")
    assert kinds(record) == ([("split", "0")] if splits else [])
    assert len(clusters(state)) == (2 if splits else 1)


def test_a_split_is_accepted_by_the_estimated_gamma_and_told_with_its_error():
    state, _ = play(make(FACING, "norm_thresholds.gamma=estimated"), 1)
    facts = state.tree.nodes["0"].split.evidence
    # |4 - 3| / 3; without one of the three it is 1/3, 1/3 or 0, whose jackknife error is sqrt(2/3 · 6/81) = 2/9
    assert (facts["gamma_max"], facts["gamma_error"]) == (pytest.approx(1 / 3), pytest.approx(2 / 9))
    assert facts["gamma_bound"] == 1
    assert len(clusters(state)) == 2


def test_devices_may_train_their_clusters_model_on_by_themselves_before_the_last_test():
    server = make(LINE, "clustering.method=none", pull=lambda round_: 0.5)
    state, _ = play(server, 1)
    w = float(state.models["0"][0])
    once, twice = (tuned_score(server.fleet, state, times) for times in (1, 2))
    targets = np.array([2, 4, -3, -3])
    np.testing.assert_allclose(once, 1 / (1 + np.abs(targets - w) / 2), rtol=1e-5)  # halfway to their targets
    np.testing.assert_allclose(twice, 1 / (1 + np.abs(targets - w) / 4), rtol=1e-5)
    assert tuned_score(server.fleet, state, 0) is None


def test_devices_unheard_at_a_split_go_to_the_child_their_last_update_is_closest_to_but_are_not_averaged():
    server = make(FACING, "norm_thresholds.warmup_rounds=1", script={2: [0, 1, 3, 4]})
    state, _ = play(server, 2)
    assert clusters(state) == {"0.0": (0, 1, 2), "0.1": (3, 4, 5)}
    assert (model(state, "0.0"), model(state, "0.1")) == ([3], [-3])  # with the old updates it would be ±10/3


def test_a_device_never_heard_is_placed_by_the_smallest_loss_when_first_heard():
    state, (first, second) = play(make(FACING, script={1: [0, 1, 3, 4]}), 2)
    assert kinds(first) == [("split", "0")]
    # 5 waited with the first of two equal children; its target -4 is 7 from that child's 3 and 1 from the other's -3
    assert second.events[0] == Event("placed", "0.1", 5, {"from": "0.0", "by": "smallest loss"})
    assert clusters(state) == {"0.0": (0, 1, 2), "0.1": (3, 4, 5)}
    assert model(state, "0.1") == [(-3 - 3 - 4) / 3]  # it trained from, and moved, its new cluster's model


def test_a_device_never_heard_waits_in_the_larger_child():
    state, _ = play(make([[4], [4], [-2], [-2]], "clustering.min_cluster_size=1", script={1: [0, 2, 3]}), 1)
    assert clusters(state) == {"0.0": (0,), "0.1": (1, 2, 3)}


@pytest.mark.parametrize(("max_age", "found"), [(0, {"0": (0, 1, 2, 3)}), (1, {"0.0": (0, 1), "0.1": (2, 3)})])
def test_an_update_serves_the_similarity_up_to_max_age_and_is_never_averaged_again(max_age, found):
    # round 2 hears three: too few for two children of two, unless device 3's update of round 1 counts
    server = make(
        [[3], [3], [-3], [-4]],
        "norm_thresholds.warmup_rounds=1",
        "norm_thresholds.epsilon1=1.5",
        f"clustering.max_age={max_age}",
        script={2: [0, 1, 2]},
    )
    state, (_, record) = play(server, 2)
    # from w = (3 + 3 - 3 - 4) / 4 = -0.25: updates 3.25, 3.25, -2.75, mean 1.25; with the old -4 it is -0.0625
    mean = 0.0625 if max_age else 1.25
    assert (record.clusters[0].mean_norm, record.clusters[0].heard) == (pytest.approx(mean), 3)
    assert clusters(state) == found
    if max_age:
        assert model(state, "0.1") == [-3]


@given(st.data())
def test_leaves_partition_the_devices_and_children_their_parent_whoever_is_heard(data):
    devices = data.draw(st.integers(3, 8))
    number = st.integers(-3, 3)
    targets = data.draw(st.lists(st.tuples(number, number), min_size=devices, max_size=devices))
    subset = st.lists(st.integers(0, devices - 1), unique=True)
    script = dict(enumerate(data.draw(st.lists(subset, min_size=6, max_size=6)), start=1))
    options = {
        "clustering.min_cluster_size": st.integers(1, 3),
        "clustering.max_age": st.integers(0, 3),
        "norm_thresholds.epsilon1": st.sampled_from([1, 3]),
    }
    overrides = [f"{name}={data.draw(values)}" for name, values in options.items()]
    server = make(targets, *overrides, "scheduling.recheck_every=2", pull=lambda round_: 0.5, script=script)
    state, records = server.initial_state(), []
    for _ in script:
        state, record = server.step(state)
        records.append(record)
        assert sorted(d for members in clusters(state).values() for d in members) == list(range(devices))
        for name, node in state.tree.nodes.items():
            below = [state.tree.members(child) for child in node.children]
            assert not below or sorted(np.concatenate(below)) == state.tree.members(name).tolist()
        assert set(state.models) == set(state.tree.nodes)
        assert sum(cluster.heard for cluster in record.clusters) == len(usable(record))
    assert state.participation.tolist() == [sum(d in usable(r) for r in records) for d in range(devices)]
    assert state.last_heard.tolist() == [
        max((r.round for r in records if d in usable(r)), default=0) for d in range(devices)
    ]


# -------------------------------------------------------------------------------- stopping


ALONE = "scheduling.greedy_clusters=1"  # a single cluster has a greedy phase, too
PAPER = ("scheduling.after_stop=greedy", "scheduling.n_greedy=1", ALONE)
CALM = [[0.4]] * 3  # mean and max 0.4: below both ε


@pytest.mark.parametrize(
    ("overrides", "phase2"),
    [
        (["scheduling.n_greedy=1"], [[1], [1], [1]]),
        (["scheduling.n_greedy=2"], [[1, 2], [1, 2], [1, 2]]),
        (["scheduling.after_stop=round-robin", "scheduling.n_greedy=1"], [[1], [2], [0]]),
        (["scheduling.after_stop=cover", "scheduling.n_greedy=1"], [[0], [1], [2]]),
        (["scheduling.after_stop=freeze"], [[], [], []]),
        (["scheduling.policy=full"], [[0, 1, 2], [0, 1, 2], [0, 1, 2]]),
    ],
)
def test_after_its_stop_a_cluster_hears_only_whom_phase_2_lets_go_on(overrides, phase2):
    server = make(CALM, "scheduling.after_stop=greedy", ALONE, *overrides, compute=[3, 1, 2])
    state, (first, *later) = play(server, 4)
    assert first.clusters[0].verdict == "stop"
    assert kinds(first) == [("stop", "0")]
    assert heard(first) == [0, 1, 2]
    assert [heard(record) for record in later] == phase2
    assert {record.clusters[0].verdict for record in later} == {"stopped"}
    assert state.tree.nodes["0"].stopped_round == 1


@pytest.mark.parametrize("after_stop", ["greedy", "cover", "round-robin", "freeze"])
@pytest.mark.parametrize("policy", ["fair", "fair-cover"])
def test_as_long_as_the_root_is_whole_everybody_goes_on_though_it_has_stopped(after_stop, policy):
    server = make(CALM, f"scheduling.after_stop={after_stop}", f"scheduling.policy={policy}")
    state, records = play(server, 3)
    assert [heard(record) for record in records] == [[0, 1, 2]] * 3
    assert [record.clusters[0].verdict for record in records] == ["stop", "stopped", "stopped"]
    assert model(state) == [0.4]


def test_a_whole_root_that_has_stopped_may_still_split():
    # nobody pulls hard at first: at most 0.1 · 4; then they do, around a mean of 0
    server = make(LINE, *PAPER[:2], pull=lambda round_: 0.1 if round_ == 1 else 1.0)
    state, (first, second) = play(server, 2)
    assert (kinds(first), kinds(second)) == ([("stop", "0")], [("reopen", "0"), ("split", "0")])
    assert clusters(state) == {"0.0": (0, 1), "0.1": (2, 3)}


@pytest.mark.parametrize(("after_stop", "moved"), [("cover", 0.325), ("greedy", 0.4), ("round-robin", 0.4)])
def test_after_a_stop_cover_counts_an_update_by_its_share_of_the_clusters_data(after_stop, moved):
    few = (f"scheduling.after_stop={after_stop}", "scheduling.n_greedy=1", ALONE)
    server = make([[0.4], [0.3], [0.2]], *few, samples=[1, 2, 1], compute=[1, 2, 3], script={2: np.array([0])})
    state, _ = play(server, 1)
    assert model(state) == [0.3]
    state, (record,) = play(server, 1, state)
    assert (record.clusters[0].verdict, heard(record)) == ("stopped", [0])
    assert model(state) == [moved]


def test_hearing_everybody_after_a_stop_is_a_round_as_any_other():
    spread = [[0.4], [0.3], [0.2]]
    models = [
        play(make(spread, f"scheduling.after_stop={rule}", "scheduling.policy=full"), 3)[0].models["0"]
        for rule in ("cover", "greedy")
    ]
    np.testing.assert_array_equal(*models)


def _pulls_hard_from(round_: int) -> Callable[[int], float]:
    """With targets at 4: updates of at most 0.4 first, then of more than 1."""
    return lambda now: 1.0 if now >= round_ else 0.1


def test_a_recheck_reopens_a_stopped_cluster_whose_norms_are_up_again():
    server = make([[4]] * 3, *PAPER, "scheduling.recheck_every=3", pull=_pulls_hard_from(4))
    state, records = play(server, 5)
    assert [heard(record) for record in records] == [[0, 1, 2], [0], [0], [0, 1, 2], [0, 1, 2]]
    assert [kinds(record) for record in records] == [[("stop", "0")], [], [], [("reopen", "0")], [("stop", "0")]]
    assert state.tree.nodes["0"].stopped_round == 5  # all are served by 4 now


def test_a_recheck_that_finds_small_norms_leaves_the_cluster_stopped():
    server = make([[4]] * 3, *PAPER, "scheduling.recheck_every=3", pull=_pulls_hard_from(99))
    state, records = play(server, 5)
    assert [len(heard(record)) for record in records] == [3, 1, 1, 3, 1]
    assert state.tree.nodes["0"].stopped_round == 1
    assert [kinds(record) for record in records[1:]] == [[], [], [], []]


def test_a_recheck_that_hears_too_few_to_judge_leaves_the_cluster_stopped():
    server = make([[4]] * 4, "scheduling.recheck_every=1", pull=_pulls_hard_from(2), script={2: [0, 1], 3: []})
    state, (_, *later) = play(server, 3)
    assert [(kinds(record), record.clusters[0].verdict) for record in later] == [([], "stopped")] * 2
    assert state.tree.nodes["0"].stopped_round == 1


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["scheduling.after_stop=freeze", ALONE], "stopped"),
        (["scheduling.after_stop=freeze"], None),  # as long as the root is whole, everybody goes on
        (["scheduling.after_stop=freeze", ALONE, "scheduling.recheck_every=5"], None),
        (["scheduling.after_stop=freeze", ALONE, "scheduling.policy=random"], None),
        (["run.end=stopped"], "stopped"),
        (["run.end=stopped", "scheduling.policy=random"], "stopped"),
        ([], None),
        (["run.rounds=1"], "rounds"),
    ],
)
def test_a_run_whose_clusters_all_stopped_ends_if_nobody_goes_on_or_the_user_wants_it(overrides, reason):
    server = make(CALM, *overrides)
    state, _ = play(server, 1)
    assert server.finished(server.initial_state()) is None
    assert server.finished(state) == reason


def test_one_open_cluster_keeps_the_run_going():
    # 0.0 is served by 3 and stops; in 0.1, (-3, ±1) pull with exactly ε2 = 1 around (-3, 0)
    server = make([[3, 0], [3, 0], [-3, 1], [-3, -1]], "run.end=stopped")
    state, (_, record) = play(server, 2)
    assert [cluster.verdict for cluster in record.clusters] == ["stop", "go-on"]
    assert server.finished(state) is None


# -------------------------------------------------------------------------------- clock, energy, misses


@pytest.mark.parametrize(
    ("budget", "rounds", "overrides", "links"),
    [
        (5.0, 2, [], {}),  # 1 s computing + 1 s upload
        (6.0, 3, [], {}),
        (5.0, 1, [], {"broadcast": 1.0}),  # 3 s with the broadcast
        (1.2, 2, ["scheduling.deadline_seconds=0.5"], {}),  # nobody makes it: 0.5 s of waiting
        (3.0, 1, ["scheduling.policy=best-update"], {"subchannels": 1}),  # one upload: 2 s; all would take 4 s
    ],
)
def test_a_round_that_would_not_end_within_the_budget_is_not_started(budget, rounds, overrides, links):
    server = make(LINE[:3], f"run.time_budget_seconds={budget}", "clustering.method=none", *overrides, **links)
    state, _ = play(server, rounds)
    assert server.step(state) is None
    assert state.seconds <= budget


def test_no_device_trains_for_a_round_beyond_the_budget():
    server = make(CALM, "run.time_budget_seconds=3")
    state, _ = play(server, 1)
    server.step(state)
    assert server.trainer.trained == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("overrides", "slow_upload", "reason"),
    [(["scheduling.deadline_seconds=3"], 5.0, "deadline"), ([], INF, "unreachable")],
)
def test_a_device_that_misses_the_round_neither_trains_nor_spends_energy_and_is_told_of(overrides, slow_upload, reason):
    server = make([[1], [9], [3]], "clustering.method=none", *overrides, upload=[1, slow_upload, 1])
    state, (record,) = play(server, 1)
    assert record.events == [Event("missed", "0", 1, {"reason": reason})]
    assert server.trainer.trained == [[0, 2]]
    assert state.energy_joules.tolist() == [11, 0, 11]
    assert record.energy_joules == 22
    assert state.participation.tolist() == [1, 0, 1]
    assert state.last_heard.tolist() == [1, 0, 1]
    assert (state.seconds, model(state)) == (2, [2])


@pytest.mark.parametrize(("overrides", "seconds"), [(["scheduling.deadline_seconds=0.5"], 0.5), ([], 0.0)])
def test_where_nobody_arrives_the_clock_advances_by_the_deadline_and_nothing_else_happens(overrides, seconds):
    server = make(CALM, *overrides, upload=INF)
    state, (record,) = play(server, 1)
    assert (state.seconds, record.seconds, record.energy_joules) == (seconds, seconds, 0)
    assert record.clusters == [ClusterRecord("0", 3, 0, None, None, "go-on")]
    assert [event.kind for event in record.events] == ["missed"] * 3
    assert model(state) == [0]


def test_a_device_that_is_away_misses_the_round_and_is_not_waited_for():
    server = make(CALM, "clustering.method=none", upload=[1, 1, 5])
    server.edge.away = {1: [2]}
    state, (first, second) = play(server, 2)
    assert first.events == [Event("missed", "0", 2, {"reason": "away"})]
    assert (first.seconds, second.seconds) == (2, 6)
    assert state.present_rounds.tolist() == [2, 2, 1]
    assert state.participation.tolist() == [2, 2, 1]


def test_a_lost_upload_costs_time_and_energy_is_told_of_and_sent_again_in_the_next_round():
    server = make([[1], [9], [3]], "clustering.method=none", upload=[1, 5, 1], script={2: [0], 3: [0]})
    server.edge.lost = {1: [1]}
    state, (first, second, third) = play(server, 3)
    assert first.events == [Event("lost", "0", 1)]
    assert first.seconds == 6
    assert first.device_joules.tolist() == [11, 11, 11]
    assert [sorted(record.timeline.device) for record in (second, third)] == [[0, 1], [0]]  # the script says 0 alone
    assert state.participation.tolist() == [3, 1, 1]
    assert state.last_heard.tolist() == [3, 2, 1]
    assert state.retry.tolist() == []


def test_a_lost_update_moves_no_model():
    server = make([[1], [9], [3]], "clustering.method=none")
    server.edge.lost = {1: [1]}
    state, _ = play(server, 1)
    assert model(state) == [2]


def test_the_deadline_shrinks_with_the_share_of_devices_whose_cluster_is_open():
    # after round 1: 0.0 and 0.1 of two each; after round 2: 0.1 has stopped, half of the devices are left
    server = make(LINE, "scheduling.deadline_seconds=8", "scheduling.deadline_final_seconds=2", samples=[1, 3, 1, 1])
    _, records = play(server, 3)
    assert [record.deadline_seconds for record in records] == [8, 8, 5]


@pytest.mark.parametrize("first", [[], ["scheduling.deadline_seconds=1"]])
def test_a_deadline_that_grows_is_refused(first):
    with pytest.raises(UserError, match=r"deadline_final_seconds = 2.0: must be at most deadline_seconds = "):
        make(CALM, *first, "scheduling.deadline_final_seconds=2")


def test_best_update_makes_everybody_compute_and_the_largest_upload_after_the_slowest_computed():
    server = make(
        [[1], [5], [3], [2]],
        "clustering.method=none",
        "scheduling.policy=best-update",
        samples=[1, 1, 3, 1],
        compute=[1, 2, 3, 4],
        subchannels=2,
    )
    state, (record,) = play(server, 1)
    assert record.computed.tolist() == [0, 1, 2, 3]
    assert record.timeline.start.tolist() == [4, 4]
    assert state.seconds == 5
    assert state.energy_joules.tolist() == [1, 11, 11, 1]
    assert state.participation.tolist() == [0, 1, 1, 0]
    assert model(state) == [(1 * 5 + 3 * 3) / 4]


def test_an_edge_that_tells_no_limits_keeps_speed_and_power_fixed():
    server = make(CALM, "scheduling.allocation=slack")
    with pytest.raises(UserError, match=r'scheduling.allocation = "slack": this edge does not tell'):
        server.step(server.initial_state())


def test_every_model_that_is_multicast_takes_its_broadcast_seconds():
    state, records = play(make(LINE, broadcast=0.25), 2)
    assert [record.broadcast_seconds for record in records] == [0.25, 0.5]  # one model, then two
    assert [record.seconds for record in records] == [2.25, 2.5]
    assert (records[1].start_seconds, state.seconds) == (2.25, 4.75)


# -------------------------------------------------------------------------------- norms, comparison, evaluation


@pytest.mark.parametrize(
    ("override", "mean", "largest"),
    [
        ("norm_thresholds.norm=update", (3 - 2) / 2, 3),
        ("norm_thresholds.weighting=samples", (8 * 2 - 4 * 3) / 12, 3),
        ("norm_thresholds.norm=per-step", (3 / (0.1 * 2) - 2 / (0.1 * 4)) / 2, 3 / (0.1 * 2)),
    ],
)
def test_norms_are_of_updates_or_of_updates_per_step(override, mean, largest):
    # E = 2 epochs, b = 4, η = 0.1: 4 samples are 2 steps, 8 samples 4
    sgd = ["training.epochs=2", "training.batch_size=4", "training.learning_rate=0.1"]
    _, (record,) = play(make([[3], [-2]], override, *sgd, samples=[4, 8]), 1)
    assert record.clusters[0].mean_norm == pytest.approx(mean)
    assert record.clusters[0].max_norm == pytest.approx(largest)


def test_norms_per_step_follow_the_decay_of_the_learning_rate():
    # one step a round of η = 0.1 · 0.5^(round - 1), updates 3 and then 0.5 · (3 - 1.5) as the model moves half way
    sgd = ["training.epochs=1", "training.learning_rate=0.1", "training.learning_rate_decay=0.5"]
    server = make([[6]], "norm_thresholds.norm=per-step", *sgd, pull=lambda round_: 0.5)
    _, records = play(server, 2)
    assert [r.clusters[0].max_norm for r in records] == pytest.approx([3 / 0.1, 1.5 / 0.05])


@pytest.mark.parametrize(("kind", "second", "third"), [("frozen", 2 / 3, 2 / 3), ("continued", 1.0, 7 / 6)])
def test_the_conventional_model_is_the_root_at_the_first_split_frozen_or_trained_on_by_everybody(kind, second, third):
    # everybody's weighted target is (1·2 + 3·4 - 3 - 3) / 6 = 4/3; half way there in round 1 is 2/3, then 1, then 7/6
    server = make(LINE, f"run.conventional={kind}", samples=[1, 3, 1, 1], pull=lambda round_: 0.5)
    assert server.initial_state().conventional is None
    state, found = server.initial_state(), []
    for _ in range(3):
        state, _ = server.step(state)
        found.append(state.conventional[0])
    assert found == pytest.approx([2 / 3, second, third])
    assert model(state, "0") == [2 / 3, 0]


def test_continuing_the_conventional_model_costs_neither_time_nor_energy():
    frozen, continued = (play(make(LINE, f"run.conventional={kind}"), 3)[0] for kind in ("frozen", "continued"))
    assert frozen.seconds == continued.seconds
    assert frozen.energy_joules.tolist() == continued.energy_joules.tolist()
    assert frozen.participation.tolist() == continued.participation.tolist()


def test_every_device_is_evaluated_under_its_own_model_and_the_conventional_one():
    _, (record,) = play(make(LINE, samples=[1, 3, 1, 1]), 1)
    # own models 3.5 and -3, conventional 4/3; accuracy is 1 / (1 + distance)
    assert record.evaluation.node == ["0.0", "0.0", "0.1", "0.1"]
    assert record.evaluation.loss == pytest.approx([1.5, 0.5, 0, 0])
    assert record.evaluation.score == pytest.approx([1 / 2.5, 1 / 1.5, 1, 1])
    assert record.evaluation.conventional_score == pytest.approx([3 / 5, 3 / 11, 3 / 16, 3 / 16])


def test_models_by_devices_holds_every_model_on_every_device():
    server = make([[3], [3], [-3], [-3]])
    before, accuracy = models_by_devices(server.fleet, server.initial_state(), server.config.run)
    assert (before, accuracy.tolist()) == (["0", "conventional"], [[0.25] * 4] * 2)
    names, accuracy = models_by_devices(server.fleet, play(server, 1)[0], server.config.run)
    assert names == ["0", "0.0", "0.1", "conventional"]
    assert accuracy == pytest.approx(np.array([[0.25] * 4, [1, 1, 1 / 7, 1 / 7], [1 / 7, 1 / 7, 1, 1], [0.25] * 4]))


def test_evaluation_is_due_every_so_many_rounds_and_at_the_end():
    _, records = play(make(CALM, "run.evaluate_every=2", "run.rounds=5"), 5)
    assert [record.evaluation is not None for record in records] == [False, True, False, True, True]


# -------------------------------------------------------------------------------- contracts


@pytest.mark.parametrize("chosen", [[0, 0], [-1], [3], [0.5], [[0, 1]], ["a"], [True, False, True], None, 1])
def test_a_policy_that_breaks_its_contract_is_named(chosen):
    server = make(CALM, script={1: chosen})
    with pytest.raises(UserError, match="policy 'script': "):
        server.step(server.initial_state())


def test_a_policy_cannot_let_devices_upload_that_did_not_compute():
    server = make(CALM)
    server.planner.policy = Policy(
        "mine", lambda situation: np.array([0, 1]), lambda situation, ids, norms: np.array([2])
    )
    with pytest.raises(UserError, match="policy 'mine': lets"):
        server.step(server.initial_state())


def test_a_policy_may_pick_nobody():
    state, (record,) = play(make(CALM, script={1: []}), 1)
    assert (heard(record), state.round, state.seconds) == ([], 1, 0)


def plain(state: State) -> dict[str, object]:
    """A state as values that can be compared."""
    memory = state.memory.devices, state.memory.rows(state.memory.devices)
    best = {name: vars(best) for name, best in state.best.items()}
    return {**vars(state), "memory": memory, "tree": state.tree.to_json(), "best": best}


def test_stepping_twice_from_the_same_state_gives_the_same_round_and_leaves_the_state_as_it_was():
    server = make(FACING, "run.conventional=continued", "clustering.max_age=2", script={2: [0, 1, 3, 4], 3: [2, 5]})
    state = server.initial_state()
    for _ in range(4):
        before = copy.deepcopy(plain(state))
        once, record = server.step(state)
        again, same = server.step(state)
        np.testing.assert_equal(asdict(record), asdict(same))
        np.testing.assert_equal(plain(once), plain(again))
        np.testing.assert_equal(plain(state), before)
        state = once


@pytest.mark.parametrize("policy", ["fair", "best-update"])
def test_a_round_that_does_not_happen_leaves_no_trace(policy):
    # best-update knows the round's length only after everybody has trained
    server = make(LINE, f"scheduling.policy={policy}", "run.time_budget_seconds=3.0", "clustering.max_age=3")
    state, _ = play(server, 1)
    before = copy.deepcopy(plain(state))
    assert server.step(state) is None
    np.testing.assert_equal(plain(state), before)


# -------------------------------------------------------------------------------- fleets in which things go wrong


class ClumsyFleet:
    """Carries plans out, but for one device; a round takes a second longer than planned. Devices may join."""

    def __init__(self, fleet: SimulatedFleet, clumsy: int | None = None) -> None:
        self.fleet, self.clumsy, self.samples = fleet, clumsy, fleet.muster(1).samples
        self.parameters, self.simulated, self.keeps_updates = fleet.parameters, False, True

    def __getattr__(self, name: str):
        return getattr(self.fleet, name)

    def at(self, links):
        return self

    def muster(self, round_):
        return Roster(self.samples)

    def ask(self, question):
        return replace(self.fleet.ask(question), cost=Cost.nothing(len(self.samples)))

    def carry_out(self, plan, serving):
        arrival = self.fleet.carry_out(plan, serving)
        missed = arrival.timeline.missed | (arrival.timeline.device == self.clumsy)
        timeline = replace(arrival.timeline, missed=missed, makespan=arrival.timeline.makespan + 1)
        return replace(
            arrival,
            timeline=timeline,
            updates=arrival.updates.among(np.setdiff1d(arrival.heard, [self.clumsy])),
            cost=Cost(timeline.makespan, plan.joules_of(timeline)),
            failed={self.clumsy: Trouble("gone", "it died")},
        )


def test_who_fails_while_a_plan_is_carried_out_is_not_heard_and_the_clock_is_the_real_one():
    server = make(CALM)
    server.fleet = ClumsyFleet(server.fleet, clumsy=1)
    state, (record,) = play(server, 1)
    assert heard(record) == [0, 2]
    assert [(event.kind, event.device, event.detail) for event in record.events if event.kind == "missed"] == [
        ("missed", 1, {"reason": "gone: it died", "failure": "gone"})
    ]
    assert state.seconds == record.seconds == record.timeline.makespan
    assert state.last_heard.tolist() == [1, 0, 1]


@pytest.mark.parametrize("method", ["norm-thresholds", "cross-evaluation", "none", "ifca"])
def test_devices_that_join_are_members_from_the_next_round_on(method):
    targets = [*FACING, [3], [-3]]
    server = make(targets, f"clustering.method={method}", "run.conventional=frozen")
    server.fleet = ClumsyFleet(server.fleet)
    server.fleet.samples = np.ones(len(FACING), dtype=np.int64)
    server.edge.compute = server.edge.upload = np.ones(len(FACING))
    state, _ = play(server, 2)
    assert state.devices == len(FACING)
    server.fleet.samples = np.ones(len(targets), dtype=np.int64)
    server.edge.compute = server.edge.upload = np.ones(len(targets))
    state, (record,) = play(server, 1, state)
    assert state.devices == len(targets)
    assert sorted(device for members in clusters(state).values() for device in members) == list(range(len(targets)))
    assert {6, 7} <= set(heard(record))
    leaf_of = state.tree.leaf_of()
    assert [event.device for event in record.events if event.kind == "joined"] == [6, 7]
    if method in ("norm-thresholds", "ifca"):  # both ask for the smallest loss
        assert (leaf_of[6], leaf_of[7]) == (leaf_of[0], leaf_of[3])


def test_devices_tell_their_training_losses_where_the_policy_needs_them():
    server = make(LINE, "clustering.method=none", "scheduling.policy=power-of-choice", "scheduling.per_round=2")
    state, _ = play(server, 1)
    heard = np.flatnonzero(state.last_heard)
    assert (len(heard), np.isnan(state.losses).sum()) == (2, 2)
    np.testing.assert_allclose(state.losses[heard], np.abs([[2, 4, -3, -3][device] for device in heard]))
    state, _ = play(server, 1, state)
    assert not np.isnan(state.losses).any()  # of whom nothing is known comes first
    assert play(make(LINE, "scheduling.policy=random"), 1)[0].losses is None
