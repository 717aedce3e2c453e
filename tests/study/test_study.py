"""Comparisons: what is planned, what is the same for all, what comes out, and stopping and going on."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from browser import browser
from data_builders import error_line
from fedclade import Experiment
from fedclade import config as configuration
from fedclade.metrics.registry import METRICS
from fedclade.report import terminal
from fedclade.report.comparison import write_comparison, write_comparison_page
from fedclade.report.tables import latex, markdown, tables
from fedclade.runs import Run
from fedclade.study import Comparison, Job, Verdict, carry_out, collect, paired, plan_jobs, prepare, spread, verdicts
from tiny_runs import TINY, fedclade, files, refusal, tiny_file

FEW = (
    "scheduling.per_round=3",
    "compare.seeds=2",
    "compare.target_accuracy=0.4",
    "compare.devices=[6, 8]",
    'compare.variants=["calm: clustering.method=none; scheduling.policy=full"]',
)


def comparing(*overrides: str) -> configuration.Config:
    return configuration.load(TINY, [*FEW, *overrides])


def done_here(config: configuration.Config, out: Path) -> list[Job]:
    """The runs of a comparison, in this process: much faster than a process for each."""
    jobs = prepare(config, out)
    for job in jobs:
        if not job.finished:
            Experiment(job.config).resume(job.folder)
    return jobs


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("comparison") / "mine"


@pytest.fixture(scope="module")
def jobs(out) -> list[Job]:
    return done_here(comparing(), out)


@pytest.fixture(scope="module")
def comparison(jobs) -> Comparison:
    return collect(comparing(), jobs)


# -------------------------------------------------------------------------------- planning


def test_every_contender_meets_every_size_with_every_seed_seed_by_seed(jobs):
    assert [(job.seed, job.devices, job.contender) for job in jobs] == [
        (seed, devices, name) for seed in (1, 2) for devices in (6, 8) for name in ("fair", "random", "calm")
    ]
    for job in jobs:
        assert (job.config.run.seed, job.config.population.devices) == (job.seed, job.devices)
        assert job.config.scheduling.policy == {"calm": "full"}.get(job.contender, job.contender)
        assert (job.config.clustering.method == "none") is (job.contender == "calm")
        assert job.config.training.workers == 1


def test_custom_settings_reach_every_run_and_may_differ_between_contenders(tmp_path):
    config = comparing("custom.step=3", 'compare.variants=["wide: custom.step=5; custom.mode=fast"]')
    found = {job.contender: job.config.custom for job in prepare(config, tmp_path / "mine")}
    assert found == {"fair": {"step": 3}, "random": {"step": 3}, "wide": {"step": 5, "mode": "fast"}}


def test_with_one_seed_all_meet_the_same_devices_data_and_channels(comparison, jobs):
    def world(job: Job) -> tuple[pd.DataFrame, pd.DataFrame]:
        experiment = Experiment(job.config)
        links = [experiment.edge.observe(round_) for round_ in (1, 2, 3)]
        return experiment.devices(), pd.DataFrame([link.snr for link in links])

    for seed in (1, 2):
        (devices, snr), *others = [world(job) for job in jobs if (job.seed, job.devices) == (seed, 6)]
        for other_devices, other_snr in others:
            pd.testing.assert_frame_equal(devices, other_devices)
            pd.testing.assert_frame_equal(snr, other_snr)
    first, second = (Experiment(job.config).devices() for job in jobs if (job.contender, job.devices) == ("fair", 6))
    assert not first.equals(second)


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ('compare.policies=["fairr", "fair"]', 'scheduling.policy = "fairr": no such policy'),
        ("compare.against=best", "compare.against = 'best': must be one of those compared: fair, random, calm"),
        ("compare.devices=[0]", "population.devices = 0: must be at least 1"),
        ('compare.variants=["auto"]', "must be 'name: section.field=value; section.field=value'"),
        ('compare.variants=["fair: run.seed=1"]', "'fair' is compared already"),
        ('compare.variants=["x: run.sed=1"]', "--set run.sed = 1: no such field; did you mean 'seed'?"),
        ("compare.policies=[]", "needs at least 1 entry"),
        ("compare.seeds=0", "must be at least 1"),
    ],
)
def test_a_mistake_is_one_line_before_anything_runs(override, complaint, tmp_path):
    assert complaint in error_line(lambda: prepare(comparing(override), tmp_path / "mine"))
    assert files(tmp_path) == {}


def test_a_directory_of_other_settings_or_of_something_else_is_refused(out, jobs, tmp_path):
    line = error_line(prepare, comparing("training.epochs=1"), out)
    assert "was made with training.epochs = 2, not 1: choose another --out" in line
    (tmp_path / "thesis.tex").write_text("precious")
    assert "exists and is no comparison" in error_line(prepare, comparing(), tmp_path)


def test_a_comparison_grows_by_seeds_and_keeps_what_is_there(out, jobs):
    before = files(out / "runs")
    more = plan_jobs(comparing("compare.seeds=3"), out)
    assert [job for job in more if job.finished] == jobs
    later = plan_jobs(comparing("run.seed=2"), out)  # seeds 2 and 3: a folder has the name of its seed
    assert [job.folder.name for job in later if job.finished] == ["seed-2"] * 6
    assert files(out / "runs") == before


# -------------------------------------------------------------------------------- what came out


def test_spread_is_mean_and_deviation_over_seeds(comparison):
    table = spread(comparison).set_index(["devices", "contender", "metric"])
    values = comparison.frame.query("devices == 6 and contender == 'random'")["accuracy_mean"]
    row = table.loc[(6, "random", "accuracy_mean")]
    assert (row["count"], row["seeds"]) == (2, 2)
    assert row["mean"] == pytest.approx(values.mean())
    assert row["std"] == pytest.approx(abs(values.iloc[0] - values.iloc[1]) / np.sqrt(2))
    assert table.loc[(6, "calm", "first_split_round")]["count"] == 0  # it never splits


def test_differences_are_taken_seed_by_seed(comparison):
    frame = comparison.frame.query("devices == 8").set_index(["contender", "seed"])["accuracy_mean"]
    expected = frame["calm"] - frame["fair"]
    row = paired(comparison).query("devices == 8 and contender == 'calm' and metric == 'accuracy_mean'").iloc[0]
    assert row["difference"] == pytest.approx(expected.mean())
    assert (row["low"], row["high"]) == pytest.approx((expected.min(), expected.max()))  # of two values, the extremes
    assert (row["against"], row["pairs"]) == ("fair", 2)


def test_the_target_is_reached_at_the_end_of_the_first_round_that_has_it(comparison, jobs):
    for job in jobs:
        rounds = comparison.first[job.devices, job.contender].rounds if job.seed == 1 else None
        if rounds is None:
            continue
        row = comparison.frame.query(f"devices == {job.devices} and contender == '{job.contender}' and seed == 1")
        reached = rounds[rounds["accuracy_mean"] >= 0.4]
        if reached.empty:
            assert row["rounds_to_target"].isna().all()
        else:
            assert row["rounds_to_target"].iloc[0] == reached["round"].iloc[0]
            end = reached["start_seconds"].iloc[0] + reached["seconds"].iloc[0]
            assert row["seconds_to_target"].iloc[0] == pytest.approx(end)
    assert comparison.frame["rounds_to_target"].notna().any()


def test_a_line_of_the_race_ends_where_its_runs_ended_and_says_what_they_came_to(comparison, jobs):
    for (devices, name), curves in comparison.curves.items():
        mine = f"devices == {devices} and contender == '{name}'"
        last = [Run(job.folder).rounds.iloc[-1] for job in jobs if (job.devices, job.contender) == (devices, name)]
        assert curves.race.end == pytest.approx(np.mean([row["start_seconds"] + row["seconds"] for row in last]))
        assert curves.race.end == pytest.approx(comparison.frame.query(mine)["simulated_seconds"].mean())
        for part in ("min", "mean"):
            assert curves.race.score[part][-1] == pytest.approx(np.mean([row[f"accuracy_{part}"] for row in last]))
    assert comparison.curves[6, "random"].race.end < comparison.curves[6, "fair"].race.end  # it stops there


def test_all_stand_abreast_at_the_last_second_at_which_everybody_was_going_on(comparison, jobs):
    assert comparison.common[6] == comparison.frame.query("devices == 6")["simulated_seconds"].min()
    rounds = [Run(job.folder).rounds for job in jobs if (job.devices, job.contender) == (6, "calm")]
    by_then = [each[each["start_seconds"] + each["seconds"] <= comparison.common[6]] for each in rounds]
    heard = [each["accuracy_mean"].iloc[-1] if len(each) else np.nan for each in by_then]
    assert comparison.abreast[6, "calm"]["mean"] == pytest.approx(np.mean(heard), nan_ok=True)


def test_with_a_time_budget_everybody_gets_the_same_seconds_and_as_many_rounds_as_fit(tmp_path):
    budget = 0.1
    config = comparing(f"compare.time_budget_seconds={budget}", "compare.devices=[6]", "compare.seeds=1")
    jobs = done_here(config, tmp_path / "mine")
    runs = {job.contender: Run(job.folder) for job in jobs}
    for run in runs.values():
        assert run.summary["ended_by"] == "time budget"
        length = run.summary["simulated_seconds"]
        assert length <= budget < length + 2 * run.rounds["seconds"].max()
    assert len({run.summary["rounds"] for run in runs.values()}) > 1  # short rounds are no longer a handicap
    assert comparing().run.rounds == 3 < max(run.summary["rounds"] for run in runs.values())


def test_the_time_budget_of_the_command_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("compare", tiny_file(tmp_path), "--policies", "fair", "--seeds", 1, "--time-budget")
    answer = fedclade(*words, 0.05)
    assert (answer.code, answer.err) == (0, "")
    assert configuration.load("comparisons/tiny-0.05s/compare.toml").compare.time_budget_seconds == 0.05
    assert "compare.time_budget_seconds = 0.0: must be greater than 0" in refusal(*words, 0)


def test_tables_say_how_many_seeds_came_to_it(comparison):
    by_name = {table.name: table for table in tables(comparison)}
    assert list(by_name)[:4] == ["accuracy", "speed", "fairness", "cost"]
    assert "mean device, tuned (%)" not in by_name["accuracy"].columns  # nobody was tuned
    shown = {(devices, name): cells for devices, name, cells in by_name["speed"].rows}
    assert shown[6, "calm"][0].text == "–"
    assert shown[6, "fair"][0].text == "2.0 ± 0.0"
    frame = comparison.frame.copy()
    frame.loc[frame["seed"] == 1, "rounds_to_target"] = np.nan
    frame.loc[frame["seed"] == 2, "rounds_to_target"] = 7.0
    some = Comparison(**{**vars(comparison), "frame": frame})
    speed = next(table for table in tables(some) if table.name == "speed")
    assert speed.rows[0][2][speed.columns.index("target (round)")].text == "7.0 (1/2)"


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("accuracy_mean", 0.8764, "87.6"),
        ("energy_joules", 1234.5, "1234"),
        ("energy_joules", 12.345, "12.3"),
        ("energy_joules", 0.0012345, "0.00123"),
        ("energy_joules", 0.0, "0.00"),
        ("upload_bits", 2.5e6, "2.50"),
        ("jain_accuracy", 0.98765, "0.988"),
    ],
)
def test_numbers_are_shown_with_the_digits_that_matter(metric, value, text):
    assert METRICS[metric].text(value) == text


def judged(comparison, **columns: list[float]) -> dict[str, Verdict]:
    """The verdicts of a comparison in which these contenders had these values with seed 1, 2, and so on."""
    rows = [
        {
            "devices": 6,
            "contender": name,
            "seed": seed,
            "accuracy_min": value,
            "accuracy_mean": 0.5,
            "seconds_to_target": value,
        }
        for name, values in columns.items()
        for seed, value in enumerate(values, 1)
    ]
    changed = {"frame": pd.DataFrame(rows), "common": {6: 1.0}, "contenders": list(columns)}
    return {verdict.question: verdict for verdict in verdicts(Comparison(**{**vars(comparison), **changed}))}


WORST, SOONEST = "Best for the worst-served device", "First at 40 % on average"


def test_the_verdict_says_who_won_by_how_much_and_how_sure_that_is(comparison):
    found = judged(comparison, a=[0.2] * 6, b=[0.4, 0.5] * 3, c=[0.4, 0.5] * 3, d=[0.3] * 6)
    assert found[WORST].headline == "b = c: 45.0 %"
    assert found[WORST].why.startswith("15.0 points better than d; clear: 95 % interval +1")
    assert found[SOONEST].headline == "a: 0.200 s"
    assert found[SOONEST].why.startswith("0.100 s sooner than d; ")
    assert found["Best on average"].winners == ("a", "b", "c", "d")
    assert found["Best on average"].why == "all the same with every seed"


@pytest.mark.parametrize(
    ("ahead", "word"),
    [
        ([0.1], "one seed says nothing of chance"),
        ([0.1, 0.2], "ahead with each of 2 seeds, which are too few to be sure"),
        ([0.1, -0.05], "too close to call: ahead with 1 of 2 seeds"),
        ([0.1, -0.05, 0.1, -0.05, 0.1], "too close to call"),
        ([0.1, 0.2, 0.1, 0.2, 0.1], "clear: "),
    ],
)
def test_the_verdict_is_as_sure_as_the_seeds_allow(ahead, word, comparison):
    found = judged(comparison, plain=[0.3] * len(ahead), best=[0.3 + more for more in ahead])[WORST]
    assert found.winners == ("best",)
    assert word in found.why


def test_who_did_not_come_to_it_with_every_seed_is_out_of_the_running(comparison):
    found = judged(comparison, quick=[1.0, np.nan], slow=[5.0, 6.0])[SOONEST]
    assert (found.headline, found.why) == (
        "slow: 5.50 s",
        "1 other did not get there with every seed",
    )
    assert judged(comparison, quick=[1.0, np.nan])[SOONEST].headline == "nobody"


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_nobody_is_better_than_the_winner(comparison, values):
    names = [f"c{i}" for i in range(len(values))]
    found = judged(comparison, **dict(zip(names, values, strict=True)))
    means = np.mean(values, axis=1)
    assert found[WORST].value == pytest.approx(means.max())
    assert found[SOONEST].value == pytest.approx(means.min())
    assert min(found[WORST].margin, found[SOONEST].margin) >= -1e-12


def test_the_terminal_begins_with_the_verdict(comparison):
    told = [line for line in printed(comparison, 80) if line[:1].strip()]
    assert [line.partition(":")[0] for line in told[:6]] == [
        f"{question} ({devices} devices)" for devices in (6, 8) for question in ("Best on average", WORST, SOONEST)
    ]


def printed(comparison: Comparison, width: int, details: bool = False) -> list[str]:
    """What a terminal of so many columns shows of a comparison."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    for part in terminal.show_comparison(comparison, details):
        console.print(part)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120, 180])
def test_at_every_width_all_numbers_are_whole_and_none_is_lost(width, comparison):
    brief, full = (printed(comparison, width, details) for details in (False, True))
    assert len(brief) < 40
    assert max(map(len, [*brief, *full])) <= width
    assert "…" not in "".join(full)
    cells = set(re.split(r"\s{2,}|\n", "\n".join(full)))
    for table in tables(comparison):
        for _, name, row in table.rows:
            assert {name, *(cell.text for cell in row)} <= cells


def test_latex_is_a_booktabs_table_with_its_marks_escaped(comparison):
    text = latex(tables(comparison)[0])
    assert text.count(r"\\") == 1 + 2 * 3
    assert r"worst device (\%)" in text
    assert r"$\pm$" in text
    assert text.count(r"\midrule") == 2  # under the heading, and between the two K
    assert "–" not in text


def test_markdown_is_a_pipe_table_under_its_title(comparison):
    table = tables(comparison)[0]
    title, _, *lines = markdown(table).splitlines()
    assert title == f"**{table.title}**"
    assert lines[0].split("|")[1:4] == [" K ", " policy ", f" {table.columns[0]} "]
    assert len(lines) == 2 + len(table.rows)
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.slow
def test_all_is_written_and_written_again_without_a_change(comparison, jobs, out):
    page = write_comparison(comparison, jobs, out)
    written = {name for name in files(out) if not name.startswith("runs/")}
    figures = {f"figures/{name}.{kind}" for kind in ("pdf", "png") for name in (
        "accuracy", "speed", "fairness", "progress-K6", "progress-K8", "race-K6", "race-K8",
        "models-K6-fair", "models-K6-random", "models-K6-calm",
    )}  # fmt: skip
    assert figures | {"compare.toml", "report.html", "runs.csv", "tables/spread.csv", "tables/paired.csv"} <= written
    assert len(pd.read_csv(out / "runs.csv")) == 12
    before = files(out)
    page.unlink()
    assert fedclade("report", out).out == f"{page}\n"
    assert files(out) == before


def test_the_page_shows_hides_chooses_and_sorts(comparison, jobs, out):
    path = write_comparison_page(comparison, jobs, out)
    with browser() as page:
        page.see()
        page.open(path)
        for name in "race abreast accuracy norms range rounds seconds metric models".split():  # noqa: SIM905 - easier to read
            assert page.value(f"document.querySelectorAll('#{name}-chart .main-svg').length") > 0, name
        traces = "document.getElementById('race-chart').data.map((trace) => trace.name)"
        assert [name for name in page.value(traces) if ": the end" not in name] == [
            n for name in ("fair", "random", "calm") for n in (name, f"{name}, worst device")
        ]
        ends = "document.getElementById('race-chart').data.map((trace) => Math.max(...trace.x))"
        races = [comparison.curves[6, name].race for name in ("fair", "random", "calm")]
        assert page.value(ends)[1::2] == pytest.approx([race.end for race in races for _ in range(2)], rel=1e-4)
        marked = "document.getElementById('race-chart').data.filter((trace) => trace.marker.size?.[1] > 0).length"
        assert page.value(marked) == 6
        page.click("input[value=random]")
        assert "random" not in page.value(traces)
        assert page.value("document.getElementById('metric-chart').data.map((trace) => trace.name)") == ["fair", "calm"]
        page.click("input[value=random]")
        assert "random" in page.value(traces)
        first = "document.getElementById('models-chart').data[0].z[0].length"
        assert page.value(first) == 6
        tiles = "[...document.querySelectorAll('#tiles .value')].map((value) => value.textContent)"
        headlines = {(verdict.devices, verdict.question): verdict.headline for verdict in verdicts(comparison)}
        assert page.value(tiles) == [text for (devices, _), text in headlines.items() if devices == 6]
        page.value(
            "(() => { const s = document.getElementById('size'); s.value = 8; s.dispatchEvent(new Event('change')) })()"
        )
        assert page.value(first) == 8
        assert page.value(tiles) == [text for (devices, _), text in headlines.items() if devices == 8]
        rows = "[...document.querySelectorAll('#table-accuracy tbody tr')]"
        means = f"{rows}.map((row) => parseFloat(row.cells[3].textContent))"
        page.click("#table-accuracy th:nth-child(4) button")
        assert page.value(means) == sorted(page.value(means))
        page.click("#table-accuracy th:nth-child(4) button")
        assert page.value(means) == sorted(page.value(means), reverse=True)
        page.see(1440)
        page.wait_for("document.querySelector('#race-chart .main-svg').clientWidth > 1200")
        cut = "[...document.querySelectorAll('#tables .scroll')].filter((t) => t.scrollWidth > t.clientWidth).length"
        assert page.value(cut) == 0
        for name in ("race", "range", "rounds", "metric"):  # a saved chart says who is who
            assert page.value(f"document.querySelectorAll('#{name}-chart .legendtext').length") >= 3, name
        ticks = "[...document.querySelectorAll('#rounds-chart .ytick text')].map((t) => t.textContent)"
        assert all(text.isdecimal() for text in page.value(ticks))
        page.see(390, dark=True)
        page.wait_for("document.querySelector('#race-chart .main-svg').clientWidth <= innerWidth")
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        assert page.complaints == []


MANY = [f"c{i}: scheduling.policy=random; scheduling.per_round={i}" for i in range(1, 6)]


def test_many_contenders_have_a_panel_each_and_thresholds_only_where_they_decide(tmp_path):
    variants = [*MANY, "auto: clustering.method=cross-evaluation"]
    config = comparing(f"compare.variants={variants}", "compare.devices=[6]", "compare.seeds=1", "run.rounds=1")
    jobs = done_here(config, tmp_path)
    path = write_comparison_page(collect(config, jobs), jobs, tmp_path)
    with browser() as page:
        page.see(1440)
        page.open(path)
        layout = "document.getElementById('{}-chart')._fullLayout"
        for chart in ("race", "accuracy", "norms"):
            titles = page.value(f"{layout.format(chart)}.annotations.map((a) => a.text.replace(/<.?b>/g, ''))")
            assert titles == ["fair", "random", *(v.partition(":")[0] for v in variants)], chart
        lines = page.value(f"{layout.format('norms')}.shapes.filter((s) => s.y0 === s.y1).map((s) => s.yref)")
        panels = page.value(f"{layout.format('norms')}.annotations.length")
        assert panels == 8
        assert set(lines) == {"y", *(f"y{i}" for i in range(2, 8))}  # not in the last panel: auto has no thresholds
        text = page.value("document.getElementById('norms-line').textContent")
        assert "the norms decide" in text
        assert "Where there are none, they decide nothing." in text
        points = "[...document.querySelectorAll('#accuracy-chart .point')].length"
        assert page.value(points) >= 3 * 8  # one round: a point each for worst, mean and best
        top = page.value(f"{layout.format('accuracy')}.yaxis.range[1]")
        best = max(Run(job.folder).rounds["accuracy_max"].max() for job in jobs)
        assert top < best + 0.15
        for width in (1440, 390):  # a row with its name for each, for there are more of them than colours
            page.see(width)
            chart = "document.getElementById('metric-chart')"
            page.wait_for(f"innerWidth === {width} && {chart}._fullLayout.width === {chart}.clientWidth")
            assert page.value("document.documentElement.scrollWidth <= innerWidth")
            for chart in ("abreast", "range", "rounds", "seconds", "metric"):
                assert page.value(f"document.querySelectorAll('#{chart}-chart .legendtext').length") == 0, chart
                rows = f"[...document.querySelectorAll('#{chart}-chart .yaxislayer-above .ytick text')].slice(0, 8)"
                edges = sorted(
                    page.value(
                        f"{rows}.map((text) => [text.getBoundingClientRect(), text.textContent])"
                        ".map(([box, name]) => [box.top, box.bottom, box.left, name])"
                    )
                )
                assert [name for *_, name in edges] == titles, chart
                assert all(above[1] < below[0] for above, below in pairwise(edges)), chart
                assert min(left for _, _, left, _ in edges) >= 0, chart
        assert page.complaints == []


def test_without_a_finished_run_there_is_nothing_to_compare(tmp_path):
    config = comparing()
    assert "no run of this comparison is finished yet" in error_line(collect, config, prepare(config, tmp_path / "x"))


# -------------------------------------------------------------------------------- carrying out

SPOILT = """
import numpy as np
def spoilt(situation):
    if situation.round == 2:
        raise RuntimeError("out of luck")
    return np.arange(situation.devices)
"""


@pytest.mark.slow
def test_a_failed_run_is_told_and_does_not_sink_the_rest_and_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("bad.py").write_text(SPOILT)
    words = ("compare", tiny_file(tmp_path), "--policies", "fair,bad:spoilt", "--seeds", "1", "--out", "mine")
    answer = fedclade(*words)
    assert answer.code == 1
    told = "policy 'bad:spoilt': round 2: fails: RuntimeError: out of luck (exit code 2)"
    assert f"fedclade: failed: bad:spoilt, 6 devices, seed 1: {told}" in answer.err
    assert "At the end" in answer.out
    kept = Path("mine/runs/K6/bad-spoilt/seed-1/failure.txt").read_text()
    assert 'bad.py", line 5, in spoilt' in kept  # the traceback, for whoever wrote it
    assert "1 of 2 runs are missing" in Path("mine/report.html").read_text("utf-8")
    kept = files(Path("mine/runs/K6/fair"))
    Path("bad.py").write_text(SPOILT.replace("== 2", "== 99"))
    assert fedclade(*words).code == 0
    assert not Path("mine/runs/K6/bad-spoilt/seed-1/failure.txt").exists()
    assert files(Path("mine/runs/K6/fair")) == kept


@pytest.mark.slow
def test_a_comparison_stopped_anywhere_goes_on_and_ends_the_same(tmp_path):
    long = ("run.rounds=200", "run.conventional=frozen")
    words = [sys.executable, "-m", "fedclade", "compare", tiny_file(tmp_path, *long), "--seeds", "1"]
    out = tmp_path / "stopped"
    child = subprocess.Popen([*words, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not list(out.glob("runs/*/*/*/run.db")):
        time.sleep(0.05)
        assert child.poll() is None
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Go on with the same command." in said
    assert not list(out.glob("runs/*/*/*/summary.json"))
    for folder in (out, tmp_path / "whole"):
        subprocess.run([*words, "--out", folder], check=True, stdout=subprocess.DEVNULL)
    for name in ("runs.csv", "tables/spread.csv", "tables/paired.csv", "figures/race-K6.pdf"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.slow
def test_a_second_time_nothing_runs_and_no_number_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("compare", tiny_file(tmp_path), "--policies", "fair,random", "--devices", "6", "--seeds", "1")
    first = fedclade(*words)
    assert first.code == 0
    assert first.out.count("seed 1") == 2
    before = files(tmp_path)
    again = fedclade(*words)
    assert again.code == 0
    assert "seed 1" not in again.out
    assert files(tmp_path) == before
    assert again.out == first.out[first.out.index("Best on average") :]
    assert "compare.devices" in refusal("compare", "tiny.toml", "--devices", "many")


def test_the_former_name_of_the_seeds_is_told():
    assert refusal("compare", "quickstart", "--trials", "3") == "fedclade: --trials is called --seeds now"
    assert "--trials" not in fedclade("compare", "--help").out


def test_nothing_is_started_where_all_is_finished(jobs):
    told = []
    assert carry_out(jobs, 2, lambda *words: told.append(words)) == {}
    assert told == []


@pytest.mark.slow
def test_methods_and_populations_from_the_command_line_with_one_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2] / "examples")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    words = ("compare", tiny_file(tmp_path), "--methods", "none,own_method:SplitOnce", "--populations", "rotated-2")
    words = (*words, "--seeds", "1", "--out", tmp_path / "all")
    answer = fedclade(*words)
    assert (answer.code, answer.err) == (0, "")
    board = (tmp_path / "all" / "leaderboard.md").read_text("utf-8")
    assert all(f"| {name} |" in board for name in ("none", "own_method:SplitOnce"))
    assert "revealed" in board
    assert "revealed" not in answer.out  # one table of what matters most; --details prints the leaderboard, too
    runs = pd.read_csv(tmp_path / "all" / "all-runs.csv")
    assert runs[["population", "contender", "reveals"]].values.tolist() == [
        ["rotated-2", "none", "sums"],
        ["rotated-2", "own_method:SplitOnce", "updates"],
    ]
    assert runs["groups_found"].isin([0, 1]).all()
    assert (tmp_path / "all" / "rotated-2" / "report.html").is_file()
    again = fedclade("report", tmp_path / "all")
    assert again.out.split() == [str(tmp_path / "all" / "rotated-2" / "report.html")]
