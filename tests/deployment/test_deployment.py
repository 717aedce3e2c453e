"""A whole deployment with the real ServerApp and ClientApp code, on a Grid that lives in this process."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from fake_grid import FakeGrid
from flwr.app import Message
from own_question import Rarest, Unheard
from replay import simulated
from safetensors.numpy import load_file

from data_builders import error_line
from fedclade import Experiment, UserError, open_run
from fedclade.deployment import fleet as fleets
from fedclade.deployment import uploads
from fedclade.deployment.fleet import DeployedFleet
from fedclade.deployment.flower import federation as federations
from fedclade.deployment.flower.client_app import app
from fedclade.deployment.flower.messages import VERSION, pack, unpack
from fedclade.deployment.flower.server_app import config_of, deploy
from fedclade.deployment.run import Deployment
from fedclade.deployment.transport import ASK, QUESTION, TRAIN, UPLOAD
from fedclade.fleet.questions import SurveyModels
from tiny_runs import TINY, merged_run, refusal

FIELDS = {
    f"{section}.{name}": str(value) if isinstance(value, list) else value
    for section, fields in TINY.items()
    for name, value in fields.items()
}
SETTINGS = {**FIELDS, "run.conventional": "frozen", "training.engine": "sequential", "grace-seconds": 300.0}
TWO_AT_ONCE = {"edge.bandwidth_hz": 2e6}
CROSS_EVALUATION = {"clustering.method": "cross-evaluation"}
NUMBERS = {
    **CROSS_EVALUATION,
    "population.source": "synthetic",
    "population.synthetic_models": "group",
    "population.synthetic_targets": "numbers",
    "population.samples": 900,
    "training.epochs": 6,
    "incongruence.kind": "none",
}


class ImpatientClock:
    """The clock as it is, but whoever sleeps wakes at once, ten seconds later.

    So deadlines may be generous, which a busy machine needs, and devices that never answer are not waited for.
    """

    def __init__(self) -> None:
        self._slept = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += 10.0


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    clock = ImpatientClock()
    for module in (federations, fleets, uploads):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(federations, "LOOK_SECONDS", 0.0)


def grid_of(devices: int = 6) -> FakeGrid:
    grid = FakeGrid()
    for k in range(devices):
        grid.join(100 + k, partition_id=k, num_partitions=6)
    return grid


def events(run, kind: str) -> list[tuple[int, int]]:
    found = run.events[run.events["kind"] == kind]
    return list(zip(found["round"], found["device"].fillna(-1).astype(int), strict=True))


def reasons(run, kind: str = "missed") -> list[str]:
    return [detail["reason"] for detail in run.events[run.events["kind"] == kind]["detail"]]


def incidents(run) -> str:
    return "\n".join(detail["what"] for detail in run.events[run.events["kind"] == "incident"]["detail"])


# -------------------------------------------------------------------------------- as in simulation


@pytest.mark.parametrize(
    "at_once",
    [{}, TWO_AT_ONCE, CROSS_EVALUATION, NUMBERS],
    ids=["one message", "called one by one", "asked", "numbers instead of classes"],
)
def test_selections_splits_and_models_are_those_of_the_simulator(tmp_path, at_once):
    run = deploy(grid_of(), {**SETTINGS, **at_once, "out": str(tmp_path / "real")})
    same = simulated(run, tmp_path / "simulated")
    for table in ("rounds", "clusters", "evaluations", "models"):
        mine, theirs = run.table(table), same.table(table)
        shared = [
            c
            for c in mine
            if c not in ("seconds", "start_seconds", "asking_seconds") and "span" not in c and "bound" not in c
        ]
        shared = [c for c in shared if "latency" not in c]
        here, there = (each[shared].select_dtypes("number") for each in (mine, theirs))
        np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6, err_msg=table)
    assert set(zip(run.uploads["round"], run.uploads["device"], strict=True)) == set(
        zip(same.uploads["round"], same.uploads["device"], strict=True)
    )
    assert [node["members"] for node in run.tree] == [node["members"] for node in same.tree]
    for node in run.tree:
        for name, tensor in run.model(node["name"]).items():
            np.testing.assert_allclose(tensor, same.model(node["name"])[name], rtol=1e-5, atol=1e-7)
    assert run.summary["adjusted_rand_index"] == 1.0
    assert run.score.name == ("r2" if at_once == NUMBERS else "accuracy")
    assert (run.folder / "report.html").is_file() == run.config.run.report


HEADS = {"model.name": "mlp", "model.hidden": 8, "model.local": "['3.*']"}


def test_tensors_that_stay_on_devices_are_those_of_the_simulator_and_the_server_never_sees_them(tmp_path):
    grid = grid_of()
    for device in range(6):
        grid.nodes[100 + device].context.node_config["model"] = str(tmp_path / f"{device}.safetensors")
    run = deploy(grid, {**SETTINGS, **HEADS, "out": str(tmp_path / "real")})
    same = simulated(run, tmp_path / "simulated")
    mine, theirs = (each.evaluations[["accuracy", "loss"]].to_numpy() for each in (run, same))
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    kept, leaf_of = same.model("local"), run.read_tree().leaf_of()
    first = deploy(grid_of(), {**SETTINGS, **HEADS, "run.rounds": 1, "out": str(tmp_path / "first")}).model("0")
    for device in range(6):
        own = load_file(tmp_path / f"{device}.safetensors")
        shared = run.model(leaf_of[device])
        for name, tensor in own.items():
            expected = kept[name][device] if name.startswith("3.") else shared[name]
            np.testing.assert_allclose(tensor, expected, rtol=1e-4, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(shared["3.weight"], first["3.weight"])  # nobody ever moved it there
        assert not np.array_equal(own["3.weight"], first["3.weight"])


def test_a_device_that_is_told_to_train_a_round_again_begins_where_it_began(tmp_path):
    grid, sent = grid_of(), []

    def twice(message, context):
        replies = [app(message, context) for _ in range(2)]
        sent.extend(unpack(reply.content)[1]["update"] for reply in replies)
        return replies[1]

    grid.nodes[102].faults[(TRAIN, "2")] = twice
    deploy(grid, {**SETTINGS, **HEADS, "out": str(tmp_path / "run")})
    np.testing.assert_array_equal(*sent)


def test_a_pattern_that_chooses_no_tensor_is_told_before_anybody_trains(tmp_path):
    settings = {**SETTINGS, "model.local": "['head.*']", "out": str(tmp_path / "run")}
    assert "matches none of the model's tensors" in error_line(deploy, grid_of(), settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", [{"training.scaffold": True}, {"training.ditto": 1.0}])
def test_what_only_simulated_devices_can_keep_is_refused_before_anybody_trains(setting, tmp_path):
    settings = {**SETTINGS, **setting, "out": str(tmp_path / "run")}
    assert "is for simulated devices only" in error_line(deploy, grid_of(), settings)
    assert not (tmp_path / "run").exists()


def fleet_on(grid: FakeGrid) -> DeployedFleet:
    """Before any round."""
    config = config_of({**SETTINGS, **CROSS_EVALUATION})
    federation = federations.Federation(grid, config)
    federation.gather(6, 1.0)
    return Deployment(config, federation, 300.0, 1.0).fleet


def test_a_survey_of_devices_is_the_simulators_and_one_that_is_gone_says_nothing():
    grid = grid_of()
    fleet, devices = fleet_on(grid), np.array([4, 0, 2, 5])
    survey = SurveyModels(np.stack([fleet.initial_model() * scale for scale in np.float32([1, 3, -2])]), devices)
    expected = survey.run(Experiment(config_of({**SETTINGS, **CROSS_EVALUATION})).trainer.examiner)
    assert expected.samples.any(axis=1).all()
    answers = fleet.ask(survey)
    found = answers.value
    np.testing.assert_array_equal(found.samples, expected.samples)
    np.testing.assert_allclose(found.misfit, expected.misfit, rtol=1e-6)
    assert answers.incidents == ()
    assert answers.cost.seconds > 0
    assert answers.cost.joules.tolist() == [0] * 6

    grid.leave(102)
    fleet.muster(1)
    found, there = fleet.ask(survey).value, [0, 1, 3]
    np.testing.assert_array_equal(found.samples[there], expected.samples[there])
    np.testing.assert_allclose(found.misfit[there], expected.misfit[there], rtol=1e-6)
    assert not found.samples[2].any()
    assert not found.misfit[2].any()


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"samples": np.ones(10, np.int64)},
        {"samples": np.ones(9, np.int64), "misfit": np.ones((2, 9))},
        {"samples": np.ones(10, np.int64), "misfit": np.ones((1, 10))},
        {"samples": np.ones(10, np.int64), "misfit": np.full((2, 10), np.nan)},
    ],
    ids=["nothing", "no misfits", "other classes", "one model", "not finite"],
)
def test_nonsense_in_a_survey_is_no_answer(told):
    grid = grid_of()
    fleet = fleet_on(grid)
    grid.nodes[103].faults[(ASK, "0")] = lambda message, context: Message(pack({}, told), reply_to=message)
    answers = fleet.ask(SurveyModels(np.stack([fleet.initial_model()] * 2), np.arange(6)))
    found = answers.value
    assert found.samples.any(axis=1).tolist() == [k != 3 for k in range(6)]
    assert not found.misfit[3].any()
    (incident,) = answers.incidents
    assert incident.startswith("device 3 gave no answer (survey): unreadable: ")


def test_a_question_of_ones_own_travels_and_one_that_no_device_knows_is_refused():
    fleet, devices = fleet_on(grid_of()), np.array([5, 1])
    answers = fleet.ask(Rarest(devices))
    expected = Rarest(devices).run(Experiment(config_of({**SETTINGS, **CROSS_EVALUATION})).trainer.examiner)
    assert (answers.value.tolist(), answers.incidents) == (expected.tolist(), ())
    answers = fleet.ask(Unheard(devices))
    assert answers.value.tolist() == [-1, -1]
    why = "question 'unheard-of': no such kind; known: compare, evaluate, subspaces, survey, try-cut"
    assert sorted(answers.incidents) == [f"device {k} gave no answer (unheard-of): refused: {why}" for k in (1, 5)]


def test_a_device_that_does_not_answer_a_survey_costs_its_own_opinion_only(tmp_path):
    grid = grid_of()
    for round_ in ("1", "2", "3"):
        grid.nodes[102].faults[(ASK, round_)] = only("survey", broken)
    run = deploy(grid, {**SETTINGS, **CROSS_EVALUATION, "run.rounds": 3, "out": str(tmp_path / "run")})
    assert "device 2 gave no answer (survey): refused: disk on fire" in incidents(run)
    assert run.summary["rounds"] == 3
    assert run.summary["uploads"] == 18


def test_devices_add_noise_to_their_answers_where_the_config_says_so(tmp_path):
    settings = {**SETTINGS, **CROSS_EVALUATION, "privacy.noise": 0.1, "run.rounds": 1}
    run = deploy(grid_of(), {**settings, "out": str(tmp_path / "run")})
    assert "gave no answer" not in incidents(run)
    tenths = 10 * run.evaluations["accuracy"].to_numpy()  # each device has ten test images
    assert (np.abs(tenths - np.round(tenths)) > 1e-6).sum() >= 4


def test_at_most_as_many_uploads_as_sub_channels_are_on_their_way(tmp_path):
    grid = grid_of()
    deploy(grid, {**SETTINGS, **TWO_AT_ONCE, "run.rounds": 1, "out": str(tmp_path / "run")})
    lines = [json.loads(line) for line in (tmp_path / "run/messages.jsonl").read_text().splitlines()]
    flying, most, sent = 0, 0, 0
    for line in lines:
        if line["kind"] == UPLOAD:
            flying += {"sent": 1, "arrived": -1}[line["what"]]
            sent += line["what"] == "sent"
            most = max(most, flying)
    assert (most, flying, sent) == (2, 0, 6)


def test_where_everybody_fits_at_once_training_and_upload_are_one_message(tmp_path):
    grid = grid_of()
    deploy(grid, {**SETTINGS, "run.rounds": 1, "out": str(tmp_path / "run")})
    assert [kind for kind, _, _ in grid.seen].count(TRAIN) == 6
    assert UPLOAD not in [kind for kind, _, _ in grid.seen]


def test_every_device_gets_its_clusters_model(tmp_path):
    grid = grid_of()
    grid.nodes[104].context.node_config["model"] = str(tmp_path / "device/mine.safetensors")
    run = deploy(grid, {**SETTINGS, "out": str(tmp_path / "run")})
    leaf = next(node["name"] for node in run.tree if 4 in node["members"] and not node["children"])
    for name, tensor in load_file(tmp_path / "device/mine.safetensors").items():
        np.testing.assert_array_equal(tensor, run.model(leaf)[name])


def test_devices_of_a_merged_cluster_get_the_model_of_the_cluster_they_went_to(tmp_path):
    run, sent = merged_run(tmp_path / "run"), {}
    Deployment.deliver(SimpleNamespace(fleet=SimpleNamespace(deliver=sent.update)), run)
    assert {device: name for device, (name, _) in sent.items()} == dict.fromkeys(range(6), "0.0")


# -------------------------------------------------------------------------------- faults


def silent(message, context):
    return None


def broken(message, context):
    raise RuntimeError("disk on fire")


def only(question, fault):
    """The fault, for one kind of question."""

    def sometimes(message, context):
        asked = message.content.config_records["facts"][QUESTION]
        return fault(message, context) if asked == question else app(message, context)

    return sometimes


def sends(**arrays):
    return lambda message, context: Message(pack({"seconds": 0.1}, arrays), reply_to=message)


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (silent, "missed", "late: no answer within"),
        (broken, "missed", "refused: disk on fire"),
        (sends(), "missed", "unreadable: update is missing: must be float32 numbers of shape [650]"),
        (
            sends(update=np.zeros(3, np.float32)),
            "missed",
            "unreadable: update: float32[3], must be float32 numbers of shape [650]",
        ),
        (sends(update=np.full(650, np.nan, np.float32)), "rejected", "not finite"),
        (
            lambda message, context: Message(message.content, reply_to=message),
            "missed",
            "unreadable: update is missing",
        ),
    ],
)
@pytest.mark.parametrize("at_once", [{}, TWO_AT_ONCE], ids=["one message", "called one by one"])
def test_a_device_that_fails_costs_its_own_update_only(tmp_path, fault, kind, said, at_once):
    grid = grid_of()
    grid.nodes[102].faults[(UPLOAD if at_once else TRAIN, "2")] = fault
    run = deploy(grid, {**SETTINGS, **at_once, "out": str(tmp_path / "run")})
    asked_again = [(3, 2)] if fault is silent else []  # who gave no answer is called again once it has told who it is
    assert events(run, kind) == [(2, 2), *asked_again]
    assert reasons(run, kind)[0].startswith(said)
    assert run.uploads.groupby("round")["missed"].sum().tolist() == [0, int(kind == "missed"), len(asked_again)]
    assert run.summary["rounds"] == 3


def test_a_device_that_dies_while_training_holds_nobody_up_and_its_round_is_recorded(tmp_path):
    grid = grid_of()
    grid.on_push = lambda message: (
        grid.leave(102)
        if 102 in grid.nodes and message.metadata.message_type == TRAIN and message.metadata.group_id == "2"
        else None
    )
    run = deploy(grid, {**SETTINGS, "out": str(tmp_path / "run")})
    assert events(run, "missed") == [(2, 2), (3, 2)]
    assert reasons(run) == ["gone: its node is gone", "away"]
    last = run.evaluations[run.evaluations["round"] == 3]
    assert last["accuracy"].isna().tolist() == [k == 2 for k in range(6)]
    assert 0 < run.summary["accuracy_min"] <= run.summary["accuracy_mean"] <= 1
    assert "report" in (run.folder / "config.toml").read_text()


@pytest.mark.parametrize("told", [{"score": [0.5]}, {"score": ["x"], "loss": [0.1]}, {}, {"score": 1, "loss": 1}])
def test_nonsense_about_an_evaluation_is_no_evaluation(tmp_path, told):
    grid = grid_of()
    grid.nodes[103].faults[(ASK, "1")] = lambda message, context: Message(pack(told), reply_to=message)
    run = deploy(grid, {**SETTINGS, "run.rounds": 1, "out": str(tmp_path / "run")})
    assert run.evaluations["accuracy"].isna().tolist() == [k == 3 for k in range(6)]
    assert "device 3 gave no answer (evaluate): unreadable: " in incidents(run)


@pytest.mark.parametrize("seconds", ["long", -5.0, 1e9, float("nan")])
def test_nonsense_about_seconds_does_no_harm(tmp_path, seconds):
    grid = grid_of()
    update = np.zeros(650, np.float32)
    told = pack({"seconds": seconds}, {"update": update})
    grid.nodes[103].faults[(TRAIN, "1")] = lambda message, context: Message(told, reply_to=message)
    run = deploy(grid, {**SETTINGS, "run.rounds": 1, "out": str(tmp_path / "run")})
    assert run.uploads["missed"].sum() == 0
    assert run.uploads["ready_seconds"].between(0, run.rounds["seconds"].iloc[0]).all()


def test_the_page_and_the_tables_can_be_made_of_a_run_that_lost_a_device(tmp_path):
    from fedclade.report import terminal
    from fedclade.report.page import write_run_page

    grid = grid_of()
    grid.nodes[101].faults[(ASK, "3")] = broken
    run = deploy(grid, {**SETTINGS, "out": str(tmp_path / "run")})
    assert "NaN" not in write_run_page(run).read_text("utf-8").split("<script")[-1]
    assert terminal.show_run(run, True)


def test_a_device_that_comes_back_as_another_node_is_the_same_device(tmp_path):
    grid = grid_of()

    def restart(message):
        if 102 in grid.nodes and message.metadata.message_type == TRAIN and message.metadata.group_id == "2":
            grid.leave(102)
        if 102 not in grid.nodes and message.metadata.message_type == ASK:
            grid.join(999, partition_id=2, num_partitions=6)

    grid.on_push = restart
    run = deploy(grid, {**SETTINGS, "run.rounds": 5, "out": str(tmp_path / "run")})
    assert len(run.devices) == 6
    assert (2, 2) in events(run, "missed")
    assert 2 in run.uploads.query("round == 5 and missed == 0")["device"].tolist()


def test_a_new_device_joins_and_is_placed_where_its_loss_is_smallest(tmp_path, capsys):
    grid = grid_of(5)  # device 5 of the second group comes after the split
    grid.on_push = lambda message: (
        grid.join(105, partition_id=5, num_partitions=6) if message.metadata.group_id == "3" else None
    )
    settings = {**SETTINGS, "devices": 5, "run.rounds": 8, "clustering.min_cluster_size": 2}
    run = deploy(grid, {**settings, "out": str(tmp_path / "run")})
    assert run.devices["train_samples"].tolist() == [40] * 6
    assert run.summary["devices"] == 6
    assert run.summary["adjusted_rand_index"] == 1.0
    ((round_, _),) = [(round_, device) for round_, device in events(run, "joined") if device == 5]
    (joined,) = run.events[run.events["kind"] == "joined"]["node"]
    assert f"joined device 5 (5) of {joined}" in capsys.readouterr().out
    assert joined == next(node["name"] for node in run.tree if 5 in node["members"] and not node["children"])
    assert 5 in run.uploads.query(f"round == {round_} and missed == 0")["device"].tolist()


def test_a_node_that_cannot_take_part_is_told_of_and_left_out(tmp_path):
    grid = grid_of()
    grid.join(200, device="nobody")
    run = deploy(grid, {**SETTINGS, "out": str(tmp_path / "run")})
    assert len(run.devices) == 6
    assert "node 200 cannot take part: node config: partition-id = None" in incidents(run)


def test_an_interrupted_run_goes_on_from_its_last_checkpoint_to_the_same_end(tmp_path):
    whole = deploy(grid_of(), {**SETTINGS, "out": str(tmp_path / "whole")})
    grid = grid_of()

    def crash(message):
        if message.metadata.group_id == "3":
            raise KeyboardInterrupt

    grid.on_push = crash
    with pytest.raises(KeyboardInterrupt):
        deploy(grid, {**SETTINGS, "out": str(tmp_path / "cut")})
    assert not open_run(tmp_path / "cut").finished
    assert "a run of real devices: go on with flwr run" in refusal("run", "--resume", tmp_path / "cut")
    backwards = FakeGrid()
    for k in reversed(range(6)):
        backwards.join(500 + k, partition_id=k, num_partitions=6)
    run = deploy(backwards, {"resume": str(tmp_path / "cut"), "grace-seconds": 300.0})
    assert run.rounds["round"].tolist() == [1, 2, 3]
    for node in whole.tree:
        for name, tensor in whole.model(node["name"]).items():
            np.testing.assert_array_equal(tensor, run.model(node["name"])[name])
    assert deploy(backwards, {"resume": str(tmp_path / "cut")}).summary == run.summary  # only sends models again


def test_a_message_that_finds_nobody_when_time_is_up_is_told_at_once_and_only_once():
    federation = federations.Federation(grid_of(), config_of(SETTINGS))
    federation.send(3, TRAIN, 1, {}, {}, 1.0)
    assert [(reply.device, reply.failure) for reply in federation.replies(until=0.0)] == [(3, "gone")]
    assert list(federation.replies(until=0.0)) == []


# -------------------------------------------------------------------------------- what a user may get wrong


def test_without_devices_the_run_does_not_start(tmp_path):
    with pytest.raises(UserError, match=r"no device answered within 0\.1 s"):
        deploy(FakeGrid(), {**SETTINGS, "wait-seconds": 0.1, "out": str(tmp_path / "run")})
    assert not (tmp_path / "run").exists()


def test_settings_are_checked():
    assert config_of({"run.rounds": 7, "set": "run.seed=5; model.name=mlp"}).run.seed == 5
    with pytest.raises(UserError, match="devices = 'six': must be a number from 0"):
        deploy(FakeGrid(), {**SETTINGS, "devices": "six"})
    with pytest.raises(UserError, match="run config: rounds: no such setting"):
        config_of({"rounds": 7})
    with pytest.raises(UserError, match=r"run\.rounds.* = 0: must be at least 1"):
        config_of({"run.rounds": 0})


def test_a_simulation_cannot_be_resumed_on_devices(tmp_path):
    Experiment(TINY, ["run.rounds=1"]).run(tmp_path / "run")
    with pytest.raises(UserError, match="not a run of real devices"):
        deploy(FakeGrid(), {"resume": str(tmp_path / "run")})


def test_a_device_of_another_version_says_so():
    records = pack({})
    records["facts"]["version"] = VERSION - 1
    with pytest.raises(UserError, match=f"does not speak version {VERSION}"):
        unpack(records)
