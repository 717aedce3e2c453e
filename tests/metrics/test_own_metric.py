"""A metric of one's own: one function and its name in the config make it appear wherever numbers are told."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedclade import Interrupted, Run, open_run, resume
from fedclade.report import terminal
from fedclade.report.comparison import _metrics
from fedclade.report.figures import write_figures
from fedclade.report.page import run_data
from fedclade.report.tables import write_tables
from fedclade.study import Comparison, Job, collect, prepare
from tiny_runs import fedclade, outcome, refusal, tiny, tiny_file

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE_GROUP = ("incongruence.kind=none", "incongruence.groups=[1]")  # of which three rounds serve some devices well
OWN = ('run.metrics=["own_metric:well_served"]', *ONE_GROUP)


@pytest.fixture(autouse=True)
def beside_the_examples(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A run that the example's metric is told of."""
    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(EXAMPLES)
        answer = fedclade("run", tiny_file(folder, *OWN), "--tensorboard", "--out", folder / "run", "-q")
    assert (answer.code, answer.err) == (0, "")
    return open_run(folder / "run")


def share(accuracy: "np.ndarray") -> float:
    return float((accuracy >= 0.8).mean())


@pytest.fixture(scope="module")
def shares(run) -> list[float]:
    """What the metric must be in each round, by the accuracies that were written down."""
    return [share(part["accuracy"].to_numpy()) for _, part in run.evaluations.groupby("round")]


def test_it_is_in_the_summary_and_in_the_table_of_rounds(run, shares):
    assert run.summary["well_served"] == shares[-1]
    assert run.metrics.to_dict("list") == {"round": [1, 2, 3], "name": ["well_served"] * 3, "value": shares}
    assert len(set(shares)) > 1


def test_it_is_in_the_terminals_closing_lines(run, shares):
    console = Console(file=io.StringIO(), width=200)
    for part in terminal.show_run(run):
        console.print(part)
    assert f"Own metrics well served (%) {100 * shares[-1]:.1f}\n" in console.file.getvalue()


def test_it_is_on_the_page(run, shares):
    (row,) = (row for row in run_data(run)["numbers"] if row[0] == "well served (%)")
    meaning = "Share of the devices whose model names at least 80 % of their test images right."
    assert row[1:] == [f"{100 * shares[-1]:.1f}", meaning]


def test_it_is_a_curve_in_tensorboard(run, shares):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scalars = EventAccumulator(str(run.folder / "tensorboard")).Reload().Scalars("metrics/well_served")
    assert [scalar.step for scalar in scalars] == [1, 2, 3]
    assert [scalar.value for scalar in scalars] == pytest.approx(shares)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> list[Job]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(EXAMPLES)
        jobs = prepare(tiny(*OWN, "compare.seeds=1").config, tmp_path_factory.mktemp("comparison"))
        for job in jobs:
            resume(job.folder)
    return jobs


@pytest.fixture(scope="module")
def comparison(jobs) -> Comparison:
    return collect(tiny("compare.seeds=1").config, jobs)


def test_it_is_in_the_tables_and_on_the_page_of_a_comparison(comparison, jobs, tmp_path):
    told = [Run(job.folder).summary["well_served"] for job in jobs]
    assert comparison.frame["well_served"].tolist() == told
    write_tables(comparison, tmp_path)
    table = (tmp_path / "tables/own.md").read_text("utf-8")
    assert "| K | policy | well served (%) |" in table
    assert f"| 6 | fair | {100 * told[0]:.1f} |" in table
    assert (tmp_path / "tables/own-difference.tex").is_file()
    shown = _metrics(comparison)["well_served"]
    assert (shown["title"], shown["values"]["6"]["fair"]["mean"]) == ("well served (%)", pytest.approx(100 * told[0]))


@pytest.mark.slow
def test_it_is_a_panel_in_the_figures_of_a_comparison(comparison, tmp_path):
    assert tmp_path / "figures/own.pdf" in write_figures(comparison, tmp_path)


def test_a_run_can_be_shown_where_the_metrics_code_is_not(run, shares, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedclade.metrics.registry.load", lambda *_: pytest.fail("the code was asked for"))
    copy = open_run(shutil.copytree(run.folder, tmp_path / "copy"))
    assert [metric.title for metric in copy.own_metrics] == ["well served (%)"]
    assert f"well served (%) {100 * shares[-1]:.1f}" in fedclade("show-run", copy.folder).out
    assert fedclade("report", copy.folder).code == 0


def test_an_interrupted_run_ends_with_the_same_metrics(run, tmp_path):
    done = []
    with pytest.raises(Interrupted):
        tiny(*OWN, stop_requested=lambda: len(done) == 1).run(tmp_path / "run", on_round=done.append)
    resumed = resume(tmp_path / "run")
    assert outcome(resumed.folder) == outcome(run.folder)
    assert resumed.metrics.equals(run.metrics)


# -------------------------------------------------------------------------------- mistakes

MODULE = """
from fedclade.metrics import metric

number = 3
plain = lambda outcome: 0.5
taken = metric("accuracy_min", "mine")(plain)
column = metric("seed", "mine")(plain)
astray = metric("astray", "mine", table="nowhere")(plain)
words = metric("words", "mine")(lambda outcome: "many")
endless = metric("endless", "mine")(lambda outcome: float("inf"))
broken = metric("broken", "mine")(lambda outcome: 1 / 0)
nothing = metric("nothing", "mine", every_round=True)(lambda outcome: None)
missing = metric("missing", "mine")(lambda outcome: float("nan"))
"""


@pytest.fixture
def mistakes(tmp_path, monkeypatch) -> str:
    """A module of wrong metrics, and the tiny config beside it."""
    (tmp_path / "mistaken_metrics.py").write_text(MODULE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tiny_file(tmp_path)


NO_METRIC = "must be a metric: a function of an Outcome under @metric(name, title)"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("number", NO_METRIC),
        ("plain", NO_METRIC),
        ("absent", "module 'mistaken_metrics' has no 'absent'"),
        ("taken", "the name 'accuracy_min' is taken: choose another"),
        ("column", "the name 'seed' is taken: choose another"),
        ("astray", "table = 'nowhere': must be one of accuracy, speed, fairness, cost, own"),
    ],
)
def test_what_is_no_metric_is_refused_before_anything_is_written(name, complaint, mistakes, tmp_path):
    spec = f"mistaken_metrics:{name}"
    line = refusal("run", mistakes, "--set", f'run.metrics=["{spec}"]', "--out", tmp_path / "run", "-q")
    assert line == f"fedclade: run.metrics = {spec!r}: {complaint}"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("words", " gave 'many': must be a finite number"),
        ("endless", " gave inf: must be a finite number"),
        ("broken", ": fails: ZeroDivisionError: division by zero"),
    ],
)
def test_a_metric_that_gives_no_number_is_told_in_one_line(name, told, mistakes, tmp_path):
    words = ("--set", f'run.metrics=["mistaken_metrics:{name}"]', "--set", "run.rounds=1", "--out", tmp_path / "run")
    line = refusal("run", mistakes, *words, "-q")
    assert line.startswith(f"fedclade: metric {name!r}{told}")


def test_a_metric_that_does_not_exist_is_null(mistakes, tmp_path):
    specs = '["mistaken_metrics:nothing", "mistaken_metrics:missing"]'
    run = tiny(f"run.metrics={specs}", "run.rounds=1").run(tmp_path / "run")
    assert (run.summary["nothing"], run.summary["missing"]) == (None, None)
    assert run.metrics.empty
    assert "\nOwn metrics mine –, mine –\n" in fedclade("show-run", run.folder).out


def test_the_example_is_short():
    assert len((EXAMPLES / "own_metric.py").read_text("utf-8").splitlines()) <= 30
