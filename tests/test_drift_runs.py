"""Runs in which devices' data change: what is trained, asked, told and resumed; and what docs/how-to/drift.md says."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from browser import browser
from fedclade import open_run
from fedclade.core.errors import Interrupted
from fedclade.fleet.questions import Evaluate
from fedclade.metrics.groups import adjusted_rand_index
from fedclade.report.page import run_data, write_run_page
from fedclade.report.terminal import spans
from tiny_runs import digits, fedclade, outcome, tiny

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "how-to" / "drift.md").read_text("utf-8")
GROUP = ("drift.kind=group", "drift.round=2", "drift.share=0.4")
SWAP = ("drift.kind=swap", "drift.round=2", "drift.share=0.4")
UNEVEN = ("population.sizes=power-law", "population.max_samples=100")


def test_the_automatic_method_follows_and_the_run_tells_when_and_what_it_cost(tmp_path):
    experiment = digits("drift.kind=group", "drift.round=4", "drift.share=0.25", "run.evaluate_every=1")
    run = experiment.run(tmp_path / "run")
    drifted, group = run.events.query("kind == 'drifted'"), experiment.drift.group_after
    assert (set(drifted["round"]), len(drifted)) == ({4}, 3)
    summary = run.summary
    assert (summary["drift_devices"], summary["drift_followed"]) == (3, 1.0)
    assert 0 <= summary["drift_rounds"] <= 3
    assert summary["adjusted_rand_index"] == adjusted_rand_index(group, run.read_tree().leaf_of())
    shown = fedclade("show-run", tmp_path / "run").out
    assert re.search(r"^Drift +3 devices changed group in round 4; 3 of them are with their new group", shown, re.M)
    table = [re.split(r"  +", line.strip())[:2] for line in shown.splitlines()]
    assert [["0", spans(np.flatnonzero(group == 0).tolist())], ["1", spans(np.flatnonzero(group == 1).tolist())]] == [
        cells for cells in table if cells[0] in ("0", "1")
    ]


def test_the_page_draws_who_changed_when_each_was_followed_and_what_it_lost(tmp_path):
    drift = ("drift.kind=group", "drift.round=4", "drift.share=0.25", "run.evaluate_every=1")
    seen = []
    during = lambda _: seen.append(run_data(open_run(tmp_path / "run"))["drift"])  # noqa: E731
    run = digits(*drift).run(tmp_path / "run", on_round=during)
    assert [each is None for each in seen] == [True] * 3 + [False] * 5  # also while the run is going on
    told = run_data(run)["drift"]
    assert (told["round"], told["rounds"], len(told["devices"])) == (4, list(range(1, 9)), 3)
    lost = [device["lost"] for device in told["devices"]]
    assert run.summary["drift_accuracy_lost"] == pytest.approx(np.mean(lost), abs=1e-4)
    assert run.summary["drift_rounds"] == pytest.approx(np.mean([device["after"] for device in told["devices"]]))
    with browser() as page:
        page.see()
        page.open(write_run_page(run))
        lines = page.value("document.getElementById('drift-chart').data.map((trace) => trace.name)")
        names = [f"device {device['device']}" for device in told["devices"]]
        assert lines == [*names, "their mean", "mean of the others", "with its new group"]
        stars = page.value("document.getElementById('drift-chart').data.at(-1).x")
        assert stars == [4 + device["after"] for device in told["devices"]]
        assert "3 of them are with their new group" in page.value("document.getElementById('drift-line').textContent")
        rows = "[...document.querySelectorAll('#drift-table tbody tr')].map((row) => row.cells[0].textContent)"
        assert page.value(rows) == [str(device["device"]) for device in told["devices"]]
        page.click("input[value=seconds]")
        assert page.value("document.getElementById('drift-chart').data.at(-1).x[0]") != stars[0]
        assert page.complaints == []


def test_where_no_groups_are_known_nothing_is_said_of_following(tmp_path):
    nobody = ("incongruence.kind=none", "incongruence.groups=[6]")
    run = tiny(*SWAP, *nobody, "run.report=true").run(tmp_path / "run")
    names = ("drift_devices", "drift_followed", "drift_rounds")
    assert [run.summary[name] for name in names] == [2, None, None]
    shown = fedclade("show-run", tmp_path / "run").out
    assert "2 devices swapped data in round 2; no groups are known" in shown
    told = run_data(run)["drift"]
    assert (told["known"], [device["after"] for device in told["devices"]]) == (False, [None, None])


def test_a_run_without_a_drift_has_no_such_chart(tmp_path):
    run = tiny("run.rounds=1", "run.report=true").run(tmp_path / "run")
    assert run_data(run)["drift"] is None
    with browser() as page:
        page.see()
        page.open(run.folder / "report.html")
        assert page.value("document.getElementById('drift-section').hidden")
        page.click("input[value=seconds]")
        assert page.complaints == []


def test_without_clusters_nobody_is_followed(tmp_path):
    run = tiny(*SWAP, "clustering.method=none").run(tmp_path / "run")
    assert run.summary["drift_followed"] == 0.0  # two of five others are of one's group
    assert run.summary["drift_rounds"] is None
    assert "Drift" not in "".join(fedclade("show-run", tiny().run(tmp_path / "other").folder).out)


@pytest.mark.parametrize("drift", [GROUP, SWAP])
def test_models_before_the_change_are_those_of_a_run_without_it(tmp_path, drift):
    plain, changed = (tiny(*more, "run.rounds=3").run(tmp_path / str(len(more))) for more in ((), drift))
    first = [run.evaluations.query("round == 1")[["accuracy", "loss"]].to_numpy() for run in (plain, changed)]
    assert np.array_equal(*first)
    later = [run.evaluations.query("round == 2")["loss"].to_numpy() for run in (plain, changed)]
    assert not np.array_equal(*later)


def test_a_cluster_whose_data_change_looks_for_its_best_round_anew(tmp_path):
    drift = ("incongruence.groups=[5, 1]", "drift.kind=group", "drift.round=3", "drift.share=0.5")
    run = tiny(*drift, "clustering.method=none", "run.rounds=4").run(tmp_path / "run")
    told = run.objectives.set_index("round")
    assert told.loc[[3, 4], "loss"].min() > told.loc[2, "loss"]  # or else the round before would not be the best
    assert told["best_round"].tolist()[1:3] == [2, 3]
    assert told.loc[4, "best_loss"] == told.loc[[3, 4], "loss"].min()


def test_devices_that_swap_are_each_other_in_all_but_radio_and_processor():
    experiment = tiny(*SWAP, *UNEVEN)
    drift, samples, edge = experiment.drift, experiment.population.samples, experiment.edge
    one, other = drift.devices[0], drift.row_after[drift.devices[0]]
    assert samples[one] != samples[other]
    fleet = experiment.server.fleet
    assert fleet.muster(1).samples.tolist() == samples.tolist()
    roster = fleet.muster(2)
    assert roster.samples[[one, other]].tolist() == samples[[other, one]].tolist()
    assert set(roster.drifted) == set(drift.devices.tolist())
    before, after = edge.observe(1).compute_seconds, edge.observe(2).compute_seconds
    assert after[one] == pytest.approx(before[one] * samples[other] / samples[one])
    model = fleet.initial_model()

    def loss(device: int) -> float:
        answer = fleet.ask(Evaluate(model[None], np.array([device]), np.array([0])))
        return float(answer.value.loss[0])

    after = [loss(one), loss(other)]  # what was found out of the old data is forgotten
    fleet.muster(1)
    assert [loss(other), loss(one)] == after
    assert after[0] != after[1]


@pytest.mark.parametrize("drift", [GROUP, SWAP])
@pytest.mark.parametrize("rounds_before", [1, 2, 3])
def test_a_run_that_was_stopped_goes_on_exactly(tmp_path, drift, rounds_before):
    settings = (*drift, *UNEVEN, "run.rounds=4", "run.checkpoint_every=1")
    whole = tiny(*settings).run(tmp_path / "whole")
    done = []
    stopped = tiny(*settings, stop_requested=lambda: len(done) >= rounds_before)
    with pytest.raises(Interrupted):
        stopped.run(tmp_path / "halved", on_round=done.append)
    resumed = tiny(*settings).resume(tmp_path / "halved")
    assert outcome(resumed.folder) == outcome(whole.folder)
    assert resumed.events.equals(whole.events)
    assert resumed.evaluations.equals(whole.evaluations)


def test_a_round_beyond_the_budget_leaves_the_data_as_they_were(tmp_path):
    seconds = tiny("run.rounds=1").run(tmp_path / "first").summary["simulated_seconds"]
    run = tiny(*SWAP, f"run.time_budget_seconds={1.5 * seconds!r}").run(tmp_path / "run")
    assert run.summary["rounds"] == 1
    last = run.evaluations.query("round == 1")["accuracy"].mean()
    assert run.summary["accuracy_mean"] == pytest.approx(last)
    assert run.summary["drift_devices"] is None


def test_hostile_devices_stay_hostile_with_other_data():
    experiment = tiny(*GROUP, "attack.kind=not-finite", "attack.share=1.0")
    models = experiment.trainer.initial_model()[None]
    devices = experiment.drift.devices
    updates = experiment.trainer.train(2, models, devices, np.zeros_like(devices))
    assert np.isnan(updates).all()


@pytest.mark.slow
@pytest.mark.parametrize("drift", [GROUP, SWAP])
def test_the_number_of_processes_does_not_matter(tmp_path, drift):
    def run(workers: int) -> dict[str, object]:
        chosen = ("training.engine=workers", f"training.workers={workers}")
        return outcome(tiny(*drift, *UNEVEN, *chosen).run(tmp_path / str(workers)).folder)

    assert run(2) == run(1)


# -------------------------------------------------------------------------------- the page and the example


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    return [shlex.split(line, comments=True)[1:] for block in blocks for line in block.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_of_the_page_works(words, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "examples")
    fewer = ("--set", "run.rounds=3", "--set", "drift.round=2", "--set", "run.report=false")
    out = tmp_path / "run"
    answer = fedclade(*words, *fewer, "--out", out)
    assert (answer.code, answer.err) == (0, "")
    assert "Drift " in answer.out
    assert open_run(out).summary["drift_devices"] > 0


def test_the_example_shows_a_drift_that_is_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "examples")
    (command,) = re.findall(r"fedclade (run .*)", Path("drift.toml").read_text("utf-8"))
    assert f"`fedclade {command}`" in Path("README.md").read_text("utf-8")
    answer = fedclade(*command.split(), "--set", "run.report=false", "--out", tmp_path / "run")
    assert answer.code == 0
    assert "3 of them are with their new group" in answer.out
    assert "round 8: the data of device" in answer.out
