"""Progress as a person sees it: on terminals of several widths, where there is none, and in a notebook."""

import builtins
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import fedclade
from fedclade import config as configuration
from fedclade.report import terminal
from fedclade.report.terminal.progress import ProgressLine
from fedclade.study import plan_jobs
from tiny_runs import TINY, tiny, tiny_file


def progress(folder, *overrides: str, **console: object) -> str:
    """What a run shows while it goes."""
    experiment = tiny(*overrides)
    out = Console(file=io.StringIO(), width=160, **console)
    with terminal.ProgressDisplay(out, experiment.config.run.rounds) as display:
        experiment.run(folder, listeners=[display])
    return out.file.getvalue()


def test_without_a_terminal_progress_is_plain_lines_and_events(tmp_path):
    lines = progress(tmp_path / "run").splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "round 1/3",
        "round 2: cluster 0 splits into 0-2 | 3-5",
        "round 2/3",
        "round 3/3",
    ]
    assert ["1 cluster " in line for line in lines if "/" in line] == [True, False, False]
    for word in ("accuracy", "worst", "norms mean", "simulated", "left"):
        assert word in lines[0]


def test_a_long_run_prints_a_line_only_now_and_then(tmp_path):
    lines = progress(tmp_path / "run", "run.rounds=50", "run.conventional=frozen", "training.epochs=1").splitlines()
    rounds = [int(line.split()[1].split("/")[0]) for line in lines if "/50" in line]
    assert rounds == list(range(2, 51, 2))


def test_stops_are_told(tmp_path):
    limits = (
        "norm_thresholds.epsilon1=9",
        "norm_thresholds.epsilon2=9",
    )  # everything is calm, after one round of warm-up
    assert "round 2: cluster 0 has stopped" in progress(tmp_path / "run", *limits)


def test_rejected_updates_are_told(tmp_path):
    shown = progress(tmp_path / "run", "training.learning_rate=1e24", "model.name=mlp", "run.rounds=1")
    for device in range(6):
        assert f"round 1: rejected the update of device {device}: not finite" in shown


def test_on_a_terminal_progress_is_a_bar_that_is_gone_at_the_end(tmp_path):
    shown = progress(tmp_path / "run", force_terminal=True)
    assert "round 2: cluster 0 splits into 0-2 | 3-5" in shown
    assert "\x1b[" in shown
    assert "round 1/3" not in shown


# -------------------------------------------------------------------------------- one line, whatever the width

BAR = r"━[━╸╺ ]*"
FACTS = [
    "accuracy 87.8 %, worst 80.0 %",
    "3 clusters",
    "simulated 89.7 s",
    "12,345 samples/s",
    "norms mean 0.1 max 0.9",
]


@given(st.integers(45, 200), st.integers(1, 1000))
def test_bar_count_and_time_left_are_kept_at_every_width_and_facts_go_from_the_last(columns, rounds):
    line = ProgressLine("round", rounds)
    line.done, line.count, line.left, line.facts = rounds / 2, f"{rounds // 2}/{rounds}", "about 3.2 min left", FACTS
    console = Console(file=io.StringIO(), width=columns)
    console.print(line)
    (text,) = console.file.getvalue().splitlines()
    assert cell_len(text) <= columns
    assert re.search(rf"^round +{BAR} +{line.count} +{line.left}", text)
    told = [fact for fact in FACTS if fact in text]
    assert told == FACTS[: len(told)]


# -------------------------------------------------------------------------------- on real terminals


def frames(columns: int, *words: object) -> list[str]:
    """Each state of the screen's last line while a command runs on a terminal of so many columns."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
    child = subprocess.Popen(
        [sys.executable, *map(str, words)], stdin=its, stdout=its, stderr=its, env={**plain, "TERM": "xterm-256color"}
    )
    os.close(its)
    said = b""
    while True:
        try:
            chunk = os.read(mine, 1 << 16)
        except OSError:  # how Linux says that nobody has the other end open any more
            break
        if not chunk:
            break
        said += chunk
    os.close(mine)
    assert child.wait(60) == 0, said.decode()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    return [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def check_bar(lines: list[str], columns: int) -> list[str]:
    """The lines with a bar: none is cut, each has n/N, and after the first round the time left."""
    bars = [line for line in lines if line.startswith("round  ━")]
    assert bars
    assert max(map(cell_len, lines)) <= columns
    for line in bars:
        assert re.search(rf"^round  {BAR} +0/3|^round  {BAR} +[1-3]/3  about [^ ]+ [^ ]+ left", line), line
        assert "…" not in line
    for done in (1, 2, 3):
        assert any(f" {done}/3 " in line for line in bars)
    return bars


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "norms"), [(80, False), (120, False), (180, True)])
def test_the_command_keeps_bar_count_and_time_left(columns, norms, tmp_path):
    shown = frames(columns, "-m", "fedclade", "run", tiny_file(tmp_path), "--out", tmp_path / "run")
    end = next(i for i, line in enumerate(shown) if "Clusters found" in line)
    bars = check_bar(shown[:end], columns)
    assert ("norms mean" in bars[-1]) is norms
    assert "accuracy" in bars[-1]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 120])
def test_python_shows_the_same_bar_on_a_terminal(columns, tmp_path):
    script = f"import fedclade; fedclade.run({TINY!r}, {str(tmp_path / 'run')!r})"
    check_bar(frames(columns, "-c", script), columns)


# -------------------------------------------------------------------------------- of a comparison


@pytest.mark.parametrize("columns", [80, 120])
def test_a_comparison_shows_the_runs_that_go_on_and_the_time_left(columns, tmp_path):
    jobs = plan_jobs(configuration.load(TINY, ["compare.seeds=1", 'compare.policies=["fair", "random"]']), tmp_path)
    out = Console(file=io.StringIO(), width=columns, force_terminal=True)
    told = {"accuracy_mean": 0.5, "accuracy_min": 0.25}
    with terminal.ComparisonDisplay(out, jobs) as display:
        display(jobs[0], 1, {"wall_seconds": 4.0, **told})
        display(jobs[1], 1, {"wall_seconds": 5.0, "accuracy_mean": None, "accuracy_min": None})
        display(jobs[0], 2, {"wall_seconds": 6.0, "accuracy_mean": None, "accuracy_min": None})
        both = out.file.getvalue()
        display(jobs[0], 3, {})
        display(jobs[1], 2, {"wall_seconds": 35.0, **told})
        one = out.file.getvalue()[len(both) :]
    both, one = (re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text) for text in (both, one))
    assert re.search(r"run +devices +seed +round +mean +worst +left", both)
    assert re.search(r"fair +6 +1 +2/3 +50\.0 % +25\.0 % +2 s", both)
    assert re.search(r"random +6 +1 +1/3 *$", both, re.MULTILINE)
    assert re.search(rf"runs +{BAR} +0/2 +about .* left +2 going on", both)
    assert "fair" not in one.splitlines()[-2]
    assert re.search(r"random +6 +1 +2/3 +50\.0 % +25\.0 % +30 s", one)
    assert re.search(rf"runs +{BAR} +1/2 +about .* left +1 going on", one)


# -------------------------------------------------------------------------------- in a notebook


class Shown(list[str]):
    """What a notebook's cell has shown, one entry for each time that it was renewed."""

    def update(self, html: "types.SimpleNamespace") -> None:
        self.append(html.data)


@pytest.fixture
def notebook(monkeypatch) -> Shown:
    """As if this were a notebook's kernel."""
    shown = Shown()
    ipython = types.ModuleType("IPython")
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML = lambda data: types.SimpleNamespace(data=data)
    ipython.display.display = lambda html, display_id: shown.update(html) or shown
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    return shown


def test_a_notebook_shows_a_bar_that_is_renewed_after_every_round(notebook, tmp_path):
    fedclade.run(TINY, tmp_path / "run")
    assert [re.findall(r'value="(\d)".*round (\d)/3', html) for html in notebook] == [
        [(f"{done}", f"{done}")] for done in range(4)
    ]
    assert "left · accuracy" in notebook[-1]


def test_nothing_is_shown_where_it_is_not_wanted_or_nobody_looks_on(notebook, tmp_path, monkeypatch, capsys):
    fedclade.run(TINY, tmp_path / "unwanted", progress=False)
    assert notebook == []
    monkeypatch.delattr(builtins, "get_ipython")
    fedclade.run(TINY, tmp_path / "unseen")
    assert capsys.readouterr() == ("", "")
