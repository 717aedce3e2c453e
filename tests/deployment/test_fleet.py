"""Whole runs over a transport that is made up in memory: nothing here knows of Flower."""

import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_question import Rarest, Unheard
from replay import simulated

from fedclade import Experiment, UserError, open_run
from fedclade import config as configuration
from fedclade.config import DeploymentConfig
from fedclade.deployment.register import Device, Inputs, Register, by_name
from fedclade.deployment.run import Deployment, known_devices, read_latencies
from fedclade.deployment.transport import ASK, DELIVER, TRAIN, UPLOAD, Reply
from fedclade.deployment.uploads import Turns
from fedclade.fleet.questions import Evaluate
from fedclade.runs import RunWriter
from fedclade.runs.directory import append
from made_up_transport import MadeUpTransport
from tiny_runs import TINY

REAL = ["run.conventional=frozen", "run.checkpoint_every=1", "training.engine=sequential"]
TWO_AT_ONCE = "edge.bandwidth_hz=2e6"


def deployment(*overrides, here=None) -> tuple[Deployment, MadeUpTransport]:
    config = configuration.load(TINY, [*REAL, *overrides])
    transport = MadeUpTransport(config, here)
    transport.gather(1, 1.0)
    return Deployment(config, transport, 300.0, 1.0), transport


def events(run, kind: str) -> list[tuple[int, int, str]]:
    found = run.events[run.events["kind"] == kind]
    columns = zip(found["round"], found["device"].fillna(-1).astype(int), found["detail"], strict=True)
    return [(round_, device, detail.get("reason") or detail.get("what") or "") for round_, device, detail in columns]


@pytest.mark.parametrize(
    "more", [[], [TWO_AT_ONCE], ["clustering.method=cross-evaluation"], ["clustering.method=ifca"]]
)
def test_a_run_over_any_transport_decides_as_the_simulator_does(tmp_path, more):
    deployed, transport = deployment("ifca.clusters=2", *more)
    run = deployed.run(tmp_path / "run")
    same = simulated(run, tmp_path / "same")
    assert run.finished
    assert [node["members"] for node in run.tree] == [node["members"] for node in same.tree]
    assert set(zip(run.uploads["round"], run.uploads["device"], strict=True)) == set(
        zip(same.uploads["round"], same.uploads["device"], strict=True)
    )
    for node in run.tree:
        for name, tensor in run.model(node["name"]).items():
            np.testing.assert_allclose(tensor, same.model(node["name"])[name], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(run.models["accuracy"], same.models["accuracy"])
    assert (run.rounds["seconds"] > 0).all()
    assert deployed.deliver(run) == 6
    assert sorted(transport.delivered) == list(range(6))


@pytest.mark.parametrize("more", [[], [TWO_AT_ONCE]], ids=["one message", "called one by one"])
def test_devices_that_fail_in_every_way_cost_their_own_updates_only(tmp_path, more):
    deployed, transport = deployment("run.rounds=4", *more)
    kind = UPLOAD if more else TRAIN
    failures = ("late", "gone", "refused", "unreadable")
    transport.faults = {(device, kind, 2): failure for device, failure in enumerate(failures)}
    transport.faults[4, kind, 2] = lambda: ({}, {"update": np.zeros((2, 325), np.float32)})
    transport.faults |= {(device, ASK, 2): failure for device, failure in enumerate(failures)}
    transport.faults[5, DELIVER, 4] = "refused"
    run = deployed.run(tmp_path / "run")
    reasons = [*(f"{failure}: as the test says" for failure in failures)]
    reasons += ["unreadable: update: float32[2, 325], must be float32 numbers of shape [650]"]
    assert sorted(events(run, "missed")) == [(2, device, reason) for device, reason in enumerate(reasons)]
    arrived = run.uploads[run.uploads["missed"] == 0].groupby("round")["device"].apply(list)
    assert [sorted(devices) for devices in arrived] == [[*range(6)], [5], [*range(6)], [*range(6)]]
    # those who were late or are gone are not even asked; they are called again once they have told who they are
    told = [f"device {k} gave no answer (evaluate): {failures[k]}: as the test says" for k in (2, 3)]
    assert [what for round_, _, what in events(run, "incident") if round_ == 2] == told
    assert run.evaluations.query("round == 2")["accuracy"].isna().tolist() == [True] * 4 + [False] * 2
    assert run.summary["rounds"] == 4
    assert run.summary["uploads"] == 19
    assert deployed.deliver(run) == 5


def test_a_round_in_which_nobody_is_heard_changes_no_model(tmp_path):
    deployed, transport = deployment("run.rounds=1", "clustering.method=none")
    transport.faults = {(device, TRAIN, 1): "refused" for device in range(6)}
    run = deployed.run(tmp_path / "run")
    assert run.summary["uploads"] == 0
    before = deployed.fleet.named_tensors(deployed.fleet.initial_model())
    for name, tensor in run.model("0").items():
        np.testing.assert_array_equal(tensor, before[name])


def test_a_device_that_comes_later_gets_the_next_number_and_is_told_of(tmp_path):
    deployed, transport = deployment("run.rounds=5", here={0, 2, 3, 4, 5})
    looks = iter(range(99))
    transport.before_round = lambda: transport.here.add(1) if next(looks) == 4 else None  # of round 4
    run = deployed.run(tmp_path / "run")
    assert [device.name for device in transport.register.devices] == ["0", "2", "3", "4", "5", "1"]
    assert events(run, "joined") == [(4, 5, "")]
    assert run.uploads[run.uploads["device"] == 5]["round"].tolist() == [4, 5]
    assert run.summary["devices"] == 6
    assert run.summary["adjusted_rand_index"] == 1.0
    known = json.loads((run.folder / "devices.json").read_text("utf-8"))
    assert [device["name"] for device in known["devices"]] == ["0", "2", "3", "4", "5", "1"]
    assert [len(seconds) for seconds, _ in read_latencies(run.folder / "latencies.csv").values()] == [5, 5, 5, 6, 6]


def test_where_nobody_is_left_the_run_ends_and_can_be_resumed(tmp_path):
    deployed, transport = deployment()
    transport.faults = {(device, TRAIN, 2): "gone" for device in range(6)}
    transport.before_round = lambda: transport.here.clear() if (TRAIN, 0, 2) in transport.seen else None
    with pytest.raises(UserError, match="no device answered within 1 s"):
        deployed.run(tmp_path / "run")
    cut = open_run(tmp_path / "run")
    assert (cut.finished, cut.rounds["round"].tolist()) == (False, [1, 2])

    config = cut.config
    transport = MadeUpTransport(config)
    transport.register.remember(json.loads((cut.folder / "devices.json").read_text("utf-8")))
    transport.gather(6, 1.0)
    run = Deployment(config, transport, 1.0, 1.0).resume(cut.folder)
    assert run.finished
    assert run.rounds["round"].tolist() == [1, 2, 3]
    assert run.uploads.groupby("round")["missed"].sum().tolist() == [0, 6, 0]


def test_killed_right_after_a_checkpoint_no_newcomer_has_lost_its_number(tmp_path):
    deployed, transport = deployment(here={0, 2, 3, 4, 5})
    looks = iter(range(99))
    transport.before_round = lambda: transport.here.add(1) if next(looks) == 2 else None  # of round 2
    written = RunWriter.checkpoint

    def killed(*given):
        written(*given)
        if transport.here == set(range(6)):
            raise KeyboardInterrupt

    with patch.object(RunWriter, "checkpoint", killed), pytest.raises(KeyboardInterrupt):
        deployed.run(tmp_path / "run")
    known = known_devices(tmp_path / "run")["devices"]
    assert [device["name"] for device in known] == ["0", "2", "3", "4", "5", "1"]


def test_a_run_that_died_before_it_had_begun_begins(tmp_path):
    with patch("fedclade.runs.directory.write_machine", side_effect=KeyboardInterrupt):
        deployed, _ = deployment()
        with pytest.raises(KeyboardInterrupt):
            deployed.run(tmp_path / "run")
    (tmp_path / "run/devices.json").unlink()  # it may have died before this file, too
    deployed, transport = deployment()
    transport.register.remember(known_devices(tmp_path / "run"))
    assert deployed.resume(tmp_path / "run").finished


def test_devices_json_that_was_damaged_or_changed_is_told(tmp_path):
    deployed, _ = deployment("run.rounds=1")
    path = deployed.run(tmp_path / "run").folder / "devices.json"
    path.write_text(path.read_text("utf-8").replace('"train_samples": ', '"train_samples": 1', 1), "utf-8")
    with pytest.raises(UserError, match=r"devices\.json: damaged: does not match its checksum"):
        known_devices(tmp_path / "run")


def test_what_a_killed_process_left_of_a_line_is_cut_off_and_no_log_is_spoilt(tmp_path):
    deployed, transport = deployment()
    transport.faults = {(device, TRAIN, 2): "gone" for device in range(6)}
    transport.before_round = lambda: transport.here.clear() if (TRAIN, 0, 2) in transport.seen else None
    with pytest.raises(UserError, match="no device answered"):
        deployed.run(tmp_path / "run")
    for name in ("messages.jsonl", "latencies.csv"):
        path = tmp_path / "run" / name
        path.write_bytes(path.read_bytes() + path.read_bytes()[-30:-15])
    transport = MadeUpTransport(deployed.config)
    transport.gather(6, 1.0)
    run = Deployment(deployed.config, transport, 300.0, 1.0).resume(tmp_path / "run")
    assert sorted(read_latencies(run.folder / "latencies.csv")) == [1, 2, 3]
    for line in (run.folder / "messages.jsonl").read_text("utf-8").splitlines():
        json.loads(line)


def test_a_full_disk_under_the_log_of_messages_is_one_line(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "messages.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left on device; make room, then go on with --resume"):
        append(tmp_path / "messages.jsonl", "one\n")


def test_where_a_policy_chooses_by_norms_everybody_uploads_and_some_count(tmp_path):
    deployed, transport = deployment("run.rounds=2", "scheduling.policy=best-update", "scheduling.per_round=2")
    transport.faults[0, TRAIN, 2] = "refused"
    run = deployed.run(tmp_path / "run")
    assert [device for kind, device, round_ in transport.seen if kind == TRAIN and round_ == 2] == list(range(6))
    assert run.uploads.groupby("round").size().tolist() == [2, 2]
    assert run.uploads["missed"].sum() == 0  # one whose update did not come is not chosen
    assert 0 not in run.uploads.query("round == 2")["device"].tolist()


def test_a_round_is_given_up_at_the_deadline_of_its_plan(tmp_path):
    shrinking = ("scheduling.deadline_seconds=500", "scheduling.deadline_final_seconds=100")
    stopping = ("scheduling.after_stop=cover", "norm_thresholds.epsilon1=5", "norm_thresholds.epsilon2=6")
    deployed, _ = deployment(*shrinking, *stopping, "scheduling.greedy_clusters=1")
    run = deployed.run(tmp_path / "run")
    lines = [json.loads(line) for line in (run.folder / "messages.jsonl").read_text("utf-8").splitlines()]
    told = [line["deadline_seconds"] for line in lines if line["kind"] == "round"]
    assert told == run.rounds["deadline_seconds"].tolist() == [500, 500, 100]  # all have stopped in round 2


# -------------------------------------------------------------------------------- questions


def test_a_question_of_ones_own_travels():
    deployed, transport = deployment()
    transport.faults[2, ASK, 0] = lambda: ({"counts": 3}, {})
    transport.faults[3, ASK, 0] = "late"
    everyone = np.arange(6)
    expected = Rarest(everyone).run(Experiment(deployed.config).trainer.examiner)
    answers = deployed.fleet.ask(Rarest(everyone))
    assert answers.value.tolist() == [-1 if k in (2, 3) else expected[k] for k in everyone]
    assert answers.incidents == (
        "device 2 gave no answer (own_question:Rarest): unreadable: count is missing",
        "device 3 gave no answer (own_question:Rarest): late: as the test says",
    )
    assert answers.cost.seconds > 0


def test_what_is_known_of_a_model_is_not_asked_again_but_who_was_silent_is():
    deployed, transport = deployment()
    fleet, model = deployed.fleet, deployed.fleet.initial_model()[None]
    transport.faults[1, ASK, 0] = "refused"
    everyone = np.arange(6)
    first = fleet.ask(Evaluate(model, everyone, np.zeros(6, dtype=np.int64))).value
    assert np.isnan(first.score).tolist() == [k == 1 for k in everyone]
    del transport.faults[1, ASK, 0]
    second = fleet.ask(Evaluate(np.concatenate([model, model]), everyone, np.ones(6, dtype=np.int64))).value
    assert not np.isnan(second.score).any()
    assert [device for _, device, _ in transport.seen] == [*everyone, 1]


def test_real_devices_do_not_train_for_the_sake_of_a_comparison():
    deployed, _ = deployment()
    with pytest.raises(AssertionError, match=r"run\.conventional must be"):
        deployed.fleet.train_all(1, deployed.fleet.initial_model())


def test_what_is_not_flowers_does_not_need_flower():
    code = "import sys, fedclade.deployment.run; sys.exit('flwr' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# -------------------------------------------------------------------------------- the parts


def device(name: str) -> Device:
    return Device(name, 4, 1, -1, 1e9, 0.1)


LIMITS = DeploymentConfig()
INPUTS = Inputs((1, 8, 8), 10, (0.5,), (0.2,))


def test_devices_are_numbered_as_they_come_and_keep_their_numbers():
    register = Register(LIMITS)
    assert [register.seat(device(name), INPUTS) for name in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    again = Register(LIMITS)
    again.remember(json.loads(json.dumps(register.to_json())))
    assert (again.devices, again.inputs) == (register.devices, register.inputs)
    assert again.seat(device("c"), INPUTS) == 2
    assert by_name({"b", "10", "9", "a"}) == ["9", "10", "a", "b"]


def test_data_that_does_not_fit_the_others_is_refused():
    register = Register(LIMITS)
    register.settle([INPUTS, Inputs((1, 8, 8), 12, (0.5,), (0.2,))])
    assert register.settled.classes == 12
    for other, why in (
        (Inputs((3, 8, 8), 10, (0.5,), (0.2,)), r"uint8 of shape \(3, 8, 8\), not uint8 of shape \(1, 8, 8\)"),
        (Inputs((1, 8, 8), 10, (0.5,), (0.2,), "float32"), r"data are float32 of shape \(1, 8, 8\), not uint8"),
        (Inputs((1, 8, 8), 10, (0.4,), (0.2,)), "scaled differently"),
        (Inputs((1, 8, 8), 13, (0.5,), (0.2,)), "13 classes, not 12: set classes in the run config"),
    ):
        with pytest.raises(UserError, match=why):
            register.seat(device("a"), other)
    assert register.devices == []
    with pytest.raises(UserError, match="data are object, must be uint8, float32 or int32"):
        Inputs((1, 8, 8), 10, (0.5,), (0.2,), "object")
    with pytest.raises(UserError, match="has 0 and 1 samples"):
        Device("a", 0, 1, -1, 1e9, 0.1)


def test_groups_count_where_every_device_knows_its_own():
    register = Register(LIMITS)
    for name, group in (("a", 1), ("b", 0)):
        register.seat(Device(name, 4, 1, group, 1e9, 0.1), INPUTS)
    assert register.groups.tolist() == [1, 0]
    register.seat(device("c"), INPUTS)
    assert register.groups.tolist() == [0, 0, 0]


@given(st.permutations(range(6)), st.integers(1, 5), st.randoms(use_true_random=False))
def test_uploads_are_called_in_the_planned_order_as_soon_as_a_sub_channel_is_free(order, subchannels, chance):
    turns = Turns(order, subchannels)
    computing, waiting, sending, called = list(range(6)), [], [], []
    while computing or sending:
        if computing and (not sending or chance.random() < 0.5):
            one = computing.pop(chance.randrange(len(computing)))
            waiting.append(one)
            turns.trained(Reply(one, TRAIN, 0.0, 1.0), 0.0)
        else:
            one = sending.pop(chance.randrange(len(sending)))
            span = turns.ended(Reply(one, UPLOAD, 0.0, 3.0), 0.0)
            assert (span.ready, span.start, span.end) == (1.0, 2.0, 3.0)
            assert 0 <= span.subchannel < subchannels
        expected = sorted(waiting, key=order.index)[: subchannels - len(sending)]
        assert turns.called(2.0) == expected
        waiting = [one for one in waiting if one not in expected]
        sending += expected
        called += expected
    assert sorted(called) == list(range(6))


def test_an_unheard_of_question_is_refused_by_the_device_that_does_not_know_it():
    from fedclade.fleet.questions import find_question

    with pytest.raises(UserError, match="question 'unheard-of': no such kind"):
        find_question(Unheard.kind)
    with pytest.raises(UserError, match="must be a class derived from Question"):
        find_question("own_question:dataclass")
