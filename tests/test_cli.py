"""The commands through their entry point: what they print, where, and how they end."""

import json
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from fedclade import __version__, open_run
from fedclade import config as configuration
from tiny_runs import Answer, executable, fedclade, files, outcome, refusal, tiny, tiny_file


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to stand in, with the tiny config as tiny.toml."""
    monkeypatch.chdir(tmp_path)
    tiny_file(tmp_path)
    return tmp_path


def installed(*words: str) -> Answer:
    """The same as a process of its own."""
    done = subprocess.run([executable(), *words], capture_output=True, text=True, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


# -------------------------------------------------------------------------------- small commands


def test_the_installed_command_tells_its_version():
    assert installed("--version") == Answer(0, f"fedclade {__version__}\n", "")
    assert metadata.version("fedclade") == __version__


def test_the_installed_command_prints_a_config_that_loads_back_to_an_equal_one():
    answer = installed("show", "quickstart", "--set", "run.seed=7")
    assert (answer.code, answer.err) == (0, "")
    assert configuration.load(tomllib.loads(answer.out)) == configuration.load("quickstart", ["run.seed=7"])


def test_the_installed_command_ends_a_mistake_with_one_line_and_code_2():
    line = "fedclade: --set run.seed = -1: must be at least 0\n"
    assert installed("show", "--set", "run.seed=-1") == Answer(2, "", line)


def test_presets_lists_every_preset_with_its_purpose():
    answer = fedclade("presets")
    for name, purpose in configuration.presets().items():
        (line,) = (line for line in answer.out.splitlines() if line.split()[0] == name)
        assert purpose[:60] in line


@pytest.mark.parametrize("preset", configuration.presets())
def test_show_prints_every_preset_whole(preset):
    data = tomllib.loads(fedclade("show", preset).out)
    assert configuration.load(data) == configuration.load(preset)
    assert set(data) == set(configuration.Config.model_fields)


def test_show_of_a_shown_file_is_the_same_text(here):
    text = fedclade("show", "tiny.toml").out
    assert text == Path("tiny.toml").read_text("utf-8")


def test_without_a_command_the_help_lists_them():
    for answer in (fedclade("--help"), fedclade()):
        assert all(name in answer.out for name in ("presets", "show", "plan", "run", "show-run"))


# -------------------------------------------------------------------------------- plan


def test_plan_prints_one_line_a_device_and_the_rounds_length(here):
    answer = fedclade("plan", "tiny.toml")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("Round 1, policy fair: 6 devices selected")
    devices = [line.split()[1] for line in lines if line.startswith("│")]
    assert sorted(devices) == ["0", "1", "2", "3", "4", "5"]
    assert "The round lasts" in answer.out
    assert set(files(here)) == {"tiny.toml"}


def test_plan_compares_every_order_and_allocation_and_draws_them(here):
    out = fedclade("plan", "tiny.toml", "--set", "edge.bandwidth_hz=2e6").out
    for order in ("latency", "compute", "longest-upload", "optimal"):
        rows = [line.split() for line in out.splitlines() if line.split()[:1] == [order]]
        assert [row[1] for row in rows] == ["fixed", "slack", "boost"]
        chart = out.split(f"order {order}: ")[1].splitlines()[1:3]  # one line a sub-channel
        assert [line.split()[0] for line in chart] == ["0", "1"]
        assert all(len(line.split()[1]) == 100 for line in chart)
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  P1.")] == [
        f"P1.{i}" for i in range(1, 6)
    ]


def test_plan_for_ten_thousand_devices_needs_no_data_for_them():
    answer = fedclade("plan", "quickstart", "--devices", 10_000, "--json")
    planned = json.loads(answer.out)
    assert sorted(row["device"] for row in planned["uploads"]) == list(range(10_000))
    assert {(row["order"], row["allocation"]) for row in planned["compared"]} == {
        (order, kind) for order in ("latency", "compute", "longest-upload") for kind in ("fixed", "slack", "boost")
    }
    ratio = {row["order"]: row["makespan_ratio"] for row in planned["compared"] if row["allocation"] == "fixed"}
    assert ratio["longest-upload"] < 1.05 < ratio["latency"]
    assert all(constraint["holds"] for constraint in planned["constraints"])


def test_a_plan_of_many_devices_shows_the_first_ones(here):
    assert "… and 40 more; --json has all." in fedclade("plan", "tiny.toml", "--devices", 100).out


def test_plan_as_json_is_the_planned_timeline(here):
    answer = fedclade("plan", "tiny.toml", "--round", 2, "--json")
    planned = json.loads(answer.out)
    timeline = tiny().plan(2).timeline
    assert [row["device"] for row in planned["uploads"]] == timeline.device.tolist()
    assert [row["end_seconds"] for row in planned["uploads"]] == timeline.end.tolist()
    assert planned["makespan_seconds"] == timeline.makespan == max(row["end_seconds"] for row in planned["uploads"])
    assert planned["model_bits"] == 32 * 650
    assert planned["warnings"] == []


def test_plan_as_json_has_nulls_for_those_who_miss_the_round(here):
    answer = fedclade("plan", "tiny.toml", "--set", "scheduling.deadline_seconds=1e-9", "--json")
    for row in json.loads(answer.out)["uploads"]:
        assert (row["missed"], row["start_seconds"], row["end_seconds"]) == (True, None, None)


def test_plan_tells_who_misses_the_round(here):
    answer = fedclade("plan", "tiny.toml", "--set", "scheduling.deadline_seconds=1e-9")
    assert "Miss the round: 0-5." in answer.out


def test_implausible_physics_is_warned_of_but_not_refused(here):
    literal = ("tiny.toml", "--set", "edge.noise=paper-text", "--set", "edge.cycles_per=sample")
    for answer in (fedclade("plan", *literal), fedclade("run", *literal, "--set", "run.rounds=1")):
        assert answer.code == 0
        assert "Warning: median SNR" in answer.out
        assert "Warning: median computing time" in answer.out
    assert len(json.loads(fedclade("plan", *literal, "--json").out)["warnings"]) == 2


# -------------------------------------------------------------------------------- run


def test_run_prints_progress_and_tables_as_plain_text_where_there_is_no_terminal(here):
    answer = fedclade("run", "tiny.toml")
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    rounds = [line.split()[1] for line in answer.out.splitlines() if line.startswith("round ") and "/" in line]
    assert rounds == ["1/3", "2/3", "3/3"]
    assert "round 2: cluster 0 splits into 0-2 | 3-5" in answer.out
    assert answer.out.splitlines()[-1].split() == ["Run", "runs/tiny"]


def test_quiet_prints_the_path_only_and_every_run_gets_a_folder_of_its_own(here):
    paths = [fedclade("run", "tiny.toml", "--quiet", "--set", "run.rounds=1").out for _ in range(2)]
    assert paths == ["runs/tiny\n", "runs/tiny-2\n"]
    assert outcome(here / "runs/tiny") == outcome(here / "runs/tiny-2")


def test_json_is_the_summary_and_the_only_thing_on_stdout(here):
    answer = fedclade("run", "tiny.toml", "--json", "--out", "mine", "--set", "edge.noise=paper-text")
    assert (answer.code, answer.err) == (0, "")
    printed = json.loads(answer.out)
    assert printed.pop("run") == "mine"
    assert printed == open_run("mine").summary == json.loads(fedclade("show-run", "mine", "--json").out)


def test_show_run_prints_what_the_run_printed_at_its_end(here):
    answer = fedclade("run", "tiny.toml", "--out", "mine")
    shown = fedclade("show-run", "mine")
    assert shown.out.startswith("Clusters found")
    assert answer.out.endswith(shown.out)
    checked = fedclade("show-run", "mine", "--problem").out
    assert "P1.0" not in shown.out
    assert all(f"P1.{number}" in checked for number in range(6))


STOPPER = """
import signal
from pathlib import Path
import numpy as np

def stop(situation):
    if situation.round == 2 and Path("signals").exists():
        for name in Path("signals").read_text().split():
            signal.raise_signal(signal.Signals[name])
    return np.arange(situation.devices)
"""


@pytest.mark.parametrize(("signals", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGTERM SIGTERM", 130)])
def test_a_signal_stops_the_run_says_how_to_go_on_and_loses_no_round(signals, code, here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    Path("stopper.py").write_text(STOPPER)
    words = ("run", "tiny.toml", "--set", "scheduling.policy=stopper:stop", "-q")
    fedclade(*words, "--out", "whole")
    Path("signals").write_text(signals)
    answer = fedclade(*words, "--out", "mine")
    assert (answer.code, answer.out) == (code, "")
    if " " not in signals:  # a second signal ends it at once, without a word
        assert answer.err == "Stopped; all finished rounds are kept. Go on with: fedclade run --resume mine\n"
    assert open_run("mine").rounds["round"].tolist() == [1]
    Path("signals").unlink()
    assert fedclade("run", "--resume", "mine", "-q") == Answer(0, "mine\n", "")
    assert outcome(here / "mine") == outcome(here / "whole")


# -------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("show nosuch", "'nosuch' is neither a preset nor a .toml file"),
        ("show quikstart", "did you mean 'quickstart'?"),
        ("show missing.toml", "missing.toml: cannot be read: No such file or directory"),
        ("show broken.toml", "broken.toml: not valid TOML"),
        ("show tiny.toml --set run.sed=1", "--set run.sed = 1: no such field; did you mean 'seed'?"),
        ("show tiny.toml --set seed=1", "must be section.field=value"),
        ("plan tiny.toml --set population.devices=0", "--set population.devices = 0: must be at least 1"),
        ("plan tiny.toml --set scheduling.policy=fairr", 'scheduling.policy = "fairr": no such policy; did you mean'),
        ("plan tiny.toml --set scheduling.policy=nowhere:f", "cannot import 'nowhere'"),
        ("plan tiny.toml --set scheduling.policy=json:f", "module 'json' has no 'f'"),
        ("plan tiny.toml --set model.name=mlq", 'model.name = "mlq": no such model; did you mean'),
        ("plan tiny.toml --set model.name=cnn", "needs images of at least 16×16, not 8×8"),
        ("run tiny.toml --set population.samples=3", "3 images serve at most 0 devices"),
        ("run tiny.toml --set population.source=femnist --set population.root=none", "found no femnist"),
        ("show-run nothing", "nothing: no run here (config.toml is missing)"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_wrong_and_leaves_nothing_behind(words, complaint, here):
    Path("broken.toml").write_text("[run\n")
    before = files(here)
    line = refusal(*words.split())
    assert line.startswith("fedclade: ")
    assert complaint in line
    assert files(here) == before


def test_show_run_of_an_unfinished_run_says_how_to_go_on(here):
    with pytest.raises(KeyboardInterrupt):
        tiny().run("mine", on_round=_break_off)
    assert "mine: not finished; continue it with: fedclade run --resume mine" in refusal("show-run", "mine")


def _break_off(_: object) -> None:
    raise KeyboardInterrupt
