"""Watching a run or a comparison that is going on: what is seen, on the page and in the terminal."""

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from browser import browser
from fedclade import Experiment, Interrupted
from fedclade import config as configuration
from fedclade.report.watch import Watch, follow
from fedclade.report.watch.page import Server
from fedclade.study import prepare
from tiny_runs import TINY, fedclade, refusal, tiny


@pytest.fixture(scope="module")
def halfway(tmp_path_factory) -> Path:
    """A run of three rounds that was stopped after the second."""
    folder, rounds = tmp_path_factory.mktemp("runs") / "halfway", []
    experiment = tiny(stop_requested=lambda: len(rounds) == 2)
    with pytest.raises(Interrupted):
        experiment.run(folder, on_round=rounds.append)
    return folder


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("comparisons") / "small"
    config = configuration.load(TINY, {"compare.policies": ["fair", "random"], "compare.seeds": 1})
    for job in prepare(config, folder):
        Experiment(job.config).resume(job.folder)
    return folder


@pytest.fixture(scope="module")
def window():
    with browser() as page:
        yield page


@pytest.fixture
def page(window):
    window.complaints.clear()
    return window


@contextmanager
def serving(folder: Path):
    with Server(Watch(folder), 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetched(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_run_is_seen_as_far_as_it_is(halfway):
    look = Watch(halfway).look()
    (run,) = look.runs
    assert (run.done, run.rounds, run.state, run.clusters, look.over) == (2, 3, "going on", 2, False)
    assert run.share == 2 / 3
    assert run.curves["round"] == [1, 2]
    assert run.last("mean") == run.curves["mean"][1]
    assert run.events == ("round 2: cluster 0 splits into 0-2 | 3-5",)
    assert look.left_seconds is None  # nothing was done between two looks


def test_the_time_left_is_told_by_what_was_done_while_watching(tmp_path):
    clock, looks = [0.0], []
    experiment = tiny("run.rounds=4")
    watch = None

    def watching(progress):
        nonlocal watch
        watch = watch or Watch(tmp_path / "run", clock=lambda: clock[0])
        looks.append(watch.look())
        clock[0] += 10.0

    experiment.run(tmp_path / "run", on_round=watching)
    assert [look.runs[0].done for look in looks] == [1, 2, 3, 4]
    assert [look.left_seconds for look in looks] == [None, *map(pytest.approx, (20.0, 10.0, 0.0))]
    last = watch.look()
    assert (last.over, last.left_seconds, last.runs[0].state) == (True, 0.0, "finished")


def test_a_run_that_did_not_begin_is_waited_for(halfway, tmp_path):
    (tmp_path / "config.toml").write_bytes((halfway / "config.toml").read_bytes())
    (run,) = Watch(tmp_path).look().runs
    assert (run.state, run.done, run.last("mean")) == ("waiting", 0, None)
    (tmp_path / "failure.txt").write_text("no memory")
    assert Watch(tmp_path).look().runs[0].state == "failed"


def test_seconds_count_where_they_are_limited(tmp_path):
    run = tiny("run.rounds=500", "run.time_budget_seconds=0.2", "run.evaluate_every=100").run(tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    (seen,) = Watch(tmp_path / "run").look().runs
    assert seen.share == pytest.approx(run.rounds["seconds"].sum() / 0.2)
    assert len(run.rounds) / 500 < seen.share < 1


def test_a_comparison_is_all_of_its_runs(compared):
    look = Watch(compared).look()
    assert [(run.name, run.state) for run in look.runs] == [("fair", "finished"), ("random", "finished")]
    assert look.comparison
    assert look.over


def test_what_is_no_run_is_refused_in_one_line(tmp_path):
    assert "no run here" in refusal("watch", tmp_path)


def test_the_server_answers_this_machine_alone_and_only_what_it_has(halfway):
    with serving(halfway) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert json.loads(fetched(f"{server.url}data")[1])["runs"][0]["done"] == 2
        assert fetched(f"{server.url}data", Host="elsewhere.example")[0] == 403
        assert fetched(f"{server.url}config.toml")[0] == 404
        assert "Plotly" in fetched(f"{server.url}plotly.js")[1]
        assert "2 of 3 rounds so far" in fetched(f"{server.url}report")[1]
        assert f"--port {server.server_port}" in refusal("watch", halfway, "--port", str(server.server_port))


def test_the_page_follows_a_run_to_its_end(page, tmp_path):
    folder, here, go_on = tmp_path / "run", threading.Event(), threading.Event()

    def wait(progress):
        if progress.record.round == 2:
            here.set()
            assert go_on.wait(60)

    runner = threading.Thread(target=lambda: tiny().run(folder, on_round=wait))
    runner.start()
    assert here.wait(60)
    with serving(folder) as server:
        page.allowed += (server.url,)
        page.see(390)
        page.open(server.url)
        assert page.value("document.querySelector('.tile .value').textContent") == "2 of 3"
        go_on.set()
        page.wait_for("document.getElementById('lead').textContent === 'All is done.'")
        assert page.value("document.querySelector('.tile .value').textContent") == "3 of 3"
        assert page.value("document.getElementById('accuracy-chart').data[0].x") == [1, 2, 3]
        assert page.value("document.getElementById('events').textContent").startswith("round 2: cluster 0 splits")
        assert page.value("document.documentElement.scrollWidth") <= 390
        page.see(1440)
        page.open(server.url)
        assert page.value("document.documentElement.scrollWidth") <= 1440
        page.open(f"{server.url}report")
        assert page.complaints == []
    runner.join()


def test_the_page_of_a_comparison_shows_every_run(page, compared):
    with serving(compared) as server:
        page.allowed += (server.url,)
        page.see(390)
        page.open(server.url)
        assert page.value("document.querySelectorAll('#runs-table tbody tr').length") == 2
        drawn = page.value("document.getElementById('accuracy-chart').data.map((line) => line.name)")
        assert drawn == ["fair", "random"]
        page.open(f"{server.url}report")
        assert page.complaints == []


def test_the_page_says_when_nobody_answers(page, halfway):
    with serving(halfway) as server:
        page.open(server.url)
    page.wait_for("document.getElementById('banner').textContent.startsWith('No answer from fedclade watch')")


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_every_run_of_a_comparison_in_a_line_of_its_own(width, compared):
    screen = StringIO()
    follow(Watch(compared), Console(file=screen, width=width, force_terminal=True, color_system=None), 0.01)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).split("\n")]
    assert "2 of 2 runs are finished." in lines
    for name in ("fair", "random"):
        (line,) = {line for line in lines if re.match(rf"{name} .* 3/3 .* finished$", line)}
        assert len(line) <= width


def test_without_a_terminal_each_change_is_a_line(halfway, tmp_path):
    told, looks = StringIO(), iter(range(100))
    folder = shutil.copytree(halfway, tmp_path / "run")

    class Done(Watch):
        def look(self):
            if next(looks):  # it goes on between the first look and the second
                tiny().resume(folder)
            return super().look()

    assert follow(Done(folder), Console(file=told, width=200), 0.01).over
    lines = told.getvalue().splitlines()
    assert lines[0] == "round 2: cluster 0 splits into 0-2 | 3-5"
    assert lines[1].startswith("round 2/3  accuracy ")
    assert lines[-1].startswith("round 3/3  accuracy ")


def test_a_directory_that_is_not_there_yet_is_waited_for(compared, tmp_path):
    shutil.copytree(compared, tmp_path / "copy")
    begins = threading.Timer(0.3, (tmp_path / "copy").rename, [tmp_path / "later"])
    begins.start()
    answer = fedclade("watch", tmp_path / "later", "--terminal", "--every", 0.1)
    begins.join()
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == f"Waiting     for {tmp_path / 'later'}, which is not there yet (Ctrl-C ends this)"
    assert lines[-1] == f"Over        2 finished: {tmp_path / 'later'}"


def test_the_command_ends_with_the_run(compared):
    answer = fedclade("watch", compared, "--terminal")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[-1] == f"Over        2 finished: {compared}"
