"""Putting runs together: same seed, same bytes; plans; progress; the Python interface."""

import numpy as np
import pytest

import fedclade
from fedclade import Experiment, UserError
from fedclade import config as configuration
from tiny_runs import TINY, outcome, tiny, tiny_file

POLICIES = [
    "fair",
    "full",
    "random",
    "round-robin",
    "best-channel",
    "best-update",
    "most-data",
    "most-data-available",
]
FEW = ("scheduling.per_round=3", "run.rounds=2", "norm_thresholds.warmup_rounds=0")


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(policy, tmp_path):
    def bytes_of(name, seed):
        return outcome(tiny(f"scheduling.policy={policy}", f"run.seed={seed}", *FEW).run(tmp_path / name).folder)

    once, again, other = bytes_of("once", 1), bytes_of("again", 1), bytes_of("other", 2)
    assert once == again
    for model in ("0.safetensors", "conventional.safetensors"):
        assert once[model] != other[model]
    assert once["summary"]["simulated_seconds"] != other["summary"]["simulated_seconds"]


def test_policies_differ_in_whom_they_hear(tmp_path):
    heard = {
        name: tiny(f"scheduling.policy={name}", *FEW).run(tmp_path / name).summary["uploads"]
        for name in ("full", "random", "best-update")
    }
    assert heard == {"full": 2 * 6, "random": 2 * 3, "best-update": 2 * 3}


def test_a_time_budget_ends_the_run_before_the_round_that_would_not_fit(tmp_path):
    whole = tiny().run(tmp_path / "whole")
    second = whole.rounds["start_seconds"][2]  # when round 3 begins
    summary = tiny(f"run.time_budget_seconds={second + 1e-9}").run(tmp_path / "short").summary
    assert (summary["rounds"], summary["ended_by"]) == (2, "time budget")
    assert summary["simulated_seconds"] == pytest.approx(second)
    assert whole.summary["ended_by"] == "rounds"


def test_a_run_may_end_when_all_clusters_have_stopped(tmp_path):
    calm = ("run.end=stopped", "norm_thresholds.epsilon1=100", "norm_thresholds.epsilon2=100")
    summary = tiny(*calm).run(tmp_path / "run").summary
    assert (summary["rounds"], summary["ended_by"], summary["clusters"]) == (2, "stopped", 1)  # after one of warm-up


def test_a_plan_is_what_the_run_does_in_that_round(tmp_path):
    experiment = tiny("clustering.method=none")
    run = experiment.run(tmp_path / "run")
    for round_ in (1, 2):
        planned = experiment.plan(round_).timeline
        done = run.uploads.query(f"round == {round_}")
        assert planned.device.tolist() == done["device"].tolist()
        assert planned.end.tolist() == done["end_seconds"].tolist()
    assert planned.makespan == run.rounds["makespan_seconds"][1]


def test_a_plan_needs_no_trainer():
    experiment = tiny("training.engine=workers", "training.workers=2")
    assert experiment.plan().model_bits == 32 * (64 * 10 + 10)  # logistic regression on 8x8 images
    assert "trainer" not in vars(experiment)
    assert "server" not in vars(experiment)


def test_a_plan_is_compared_under_the_users_own_rule_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_rule.py").write_text("def as_given(slots):\n    return slots.settled()\n")
    plan = tiny("scheduling.allocation=own_rule:as_given").plan(compare=True)
    rules = ["fixed", "slack", "boost", "own_rule:as_given"]
    assert list(dict.fromkeys(rule for _, rule in plan.compared)) == rules
    mine, fixed = (plan.compared["longest-upload", rule].joules for rule in (rules[-1], rules[0]))
    assert mine == pytest.approx(fixed)


def test_a_plan_warns_of_the_papers_literal_noise():
    assert tiny().plan().warnings == []
    (warning,) = tiny("edge.noise=paper-text").plan().warnings
    assert "median SNR" in warning


def test_progress_is_told_after_every_round(tmp_path):
    told = []
    tiny().run(tmp_path / "run", on_round=told.append)
    assert [p.record.round for p in told] == [p.state.round for p in told] == [1, 2, 3]
    assert {(p.rounds, p.done_before) for p in told} == {(3, 0)}
    assert sorted(p.wall_seconds for p in told) == [p.wall_seconds for p in told]


def test_devices_are_described_by_what_they_hold_and_where_they_stand():
    experiment = tiny()
    devices, edge = experiment.devices(), experiment.config.edge
    assert devices["device"].tolist() == list(range(6))
    assert devices["train_samples"].tolist() == experiment.population.samples.tolist()
    assert devices["distance_m"].between(edge.distance_min_m, edge.distance_max_m).all()
    assert devices["cpu_hz"].between(edge.cpu_min_hz, edge.cpu_max_hz).all()


def test_an_experiment_comes_from_a_preset_a_file_a_mapping_or_a_config(tmp_path):
    path = tiny_file(tmp_path)
    config = configuration.load(TINY)
    assert [Experiment(source).config for source in (path, TINY, config)] == [config] * 3
    assert [Experiment(source).name for source in ("quickstart", path, TINY)] == ["quickstart", "tiny", "run"]


def test_the_python_interface_runs_resumes_and_opens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = ["run.rounds=1"]
    first, second = (fedclade.run(TINY, overrides=overrides) for _ in range(2))
    assert [run.folder.as_posix() for run in (first, second)] == ["runs/run", "runs/run-2"]
    assert outcome(first.folder) == outcome(second.folder)
    assert fedclade.resume("runs/run").summary == fedclade.open_run("runs/run").summary
    with pytest.raises(UserError, match="exists: resume it"):
        fedclade.run(TINY, "runs/run", overrides=overrides)
    assert fedclade.run(TINY, "runs/run", overrides=["run.seed=2", *overrides], overwrite=True).summary["seed"] == 2


def test_the_package_offers_what_it_lists_and_nothing_else():
    for name in fedclade.__all__:
        assert getattr(fedclade, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = fedclade.nothing


def test_a_run_records_which_model_fitted_its_data_and_may_be_resumed_without_naming_it(tmp_path):
    settings = {name: fields for name, fields in TINY.items() if name != "model"}
    run = Experiment(settings, ["run.rounds=1"]).run(tmp_path)
    assert run.config.model.name == run.module("0").card.architecture["name"] == "mlp"
    assert Experiment(settings, ["run.rounds=1"]).resume(tmp_path).summary == run.summary


def test_a_users_own_model_is_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_net.py").write_text(
        "from torch import nn\n"
        "def squeeze(shape, classes):\n"
        "    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, classes))\n"
    )
    run = tiny("model.name=own_net:squeeze", "run.rounds=1").run("run")
    assert {name: values.shape for name, values in run.model("0").items()} == {"2.weight": (10, 16), "2.bias": (10,)}
    assert np.isfinite(run.summary["accuracy_mean"])
