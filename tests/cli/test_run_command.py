"""``fedclade run`` and ``show-run`` through their entry point."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedclade import open_run
from tiny_runs import Answer, fedclade, outcome, refusal


def test_run_prints_progress_and_tables_as_plain_text_where_there_is_no_terminal(here):
    answer = fedclade("run", "tiny.toml")
    assert (answer.code, answer.err) == (0, "")
    assert "\x1b" not in answer.out
    rounds = [line.split()[1] for line in answer.out.splitlines() if line.startswith("round ") and "/" in line]
    assert rounds == ["1/3", "2/3", "3/3"]
    assert "round 2: cluster 0 splits into 0-2 | 3-5" in answer.out
    assert answer.out.splitlines()[-1].split() == ["Run", "runs/tiny"]


def test_a_custom_setting_is_kept_with_the_run_and_shown_on_its_page(here):
    words = ("--set", "custom.step=[3, 4]", "--set", "run.rounds=1", "--set", "run.report=true")
    assert fedclade("run", "tiny.toml", "-q", "--out", "mine", *words).code == 0
    assert open_run("mine").config.custom == {"step": (3, 4)}
    assert '["custom.step","(3, 4)","a setting of your own"]' in Path("mine/report.html").read_text("utf-8")
    assert "was started with custom.step = (3, 4), not 5" in refusal(
        "run", "mine/config.toml", "--resume", "mine", "--set", "custom.step=5"
    )


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
    assert shown.out.startswith("Groups      2 clusters")
    assert answer.out.endswith(shown.out)
    summary, best = open_run("mine").summary, open_run("mine").objectives.iloc[-2:]["best_round"].tolist()
    (told,) = [line for line in shown.out.splitlines() if line.startswith("Loss ")]
    assert f"F = {summary['loss']:.3f};" in told
    if summary["objective_best"] < summary["objective"]:
        assert f"{summary['objective_best']:.3f} with the best model that each has had (P1's objective)" in told
        assert told.endswith(f"cluster 0.0 in round {best[0]}, cluster 0.1 in round {best[1]}")
    else:
        assert told.endswith("which is the least it has been (P1's objective)")
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


# -------------------------------------------------------------------------------- progress for a program


def events(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_progress_as_json_is_one_object_a_line_and_nothing_else(here):
    answer = fedclade("run", "tiny.toml", "--progress", "json", "--out", "mine", "--set", "run.evaluate_every=3")
    assert (answer.code, answer.err) == (0, "")
    began, *rounds, ended = events(answer.out)
    run = open_run("mine")
    assert began == {"event": "began", "run": "mine", "rounds": 3, "seed": 1}
    assert [(told["event"], told["round"], told["rounds"]) for told in rounds] == [("round", n, 3) for n in (1, 2, 3)]
    assert [told["seconds"] for told in rounds] == (run.rounds["start_seconds"] + run.rounds["seconds"]).tolist()
    assert [told["accuracy_mean"] for told in rounds] == [None, None, run.summary["accuracy_mean"]]
    assert rounds[2]["accuracy_min"] == run.summary["accuracy_min"]
    assert ended == {"event": "ended", "run": "mine", **run.summary}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tiny.toml --set run.rounds=0", "--set run.rounds = 0: must be at least 1"),
        ("--resume nowhere", "nowhere: no run here (config.toml is missing)"),
        ("tiny.toml --quiet", "--progress json ends with the summary: leave out --quiet and --json"),
    ],
)
def test_a_mistake_is_told_to_the_program_too(words, message, here):
    answer = fedclade("run", *words.split(), "--progress", "json")
    assert (answer.code, answer.err) == (2, f"fedclade: {message}\n")
    assert events(answer.out) == [{"event": "failed", "kind": "user-error", "message": message}]


def test_an_unknown_form_of_progress_is_refused(here):
    assert "'xml' is not one of 'text', 'json'" in refusal("run", "tiny.toml", "--progress", "xml")


def test_a_crash_is_told_to_the_program_and_its_traceback_to_the_person(here):
    Path("bad.py").write_text(
        "from fedclade.clustering import BaseMethod\n"
        "class Spoilt(BaseMethod):\n"
        "    name, reveals = 'bad', 'sums'\n"
        "    def after_training(self, state, arrival, fleet):\n"
        "        raise RuntimeError('out of\\nluck')\n"
    )
    words = [sys.executable, "-m", "fedclade", "run", "tiny.toml", "--set", "clustering.method=bad:Spoilt"]
    done = subprocess.run([*words, "--progress", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    began, failed = events(done.stdout)
    assert began["event"] == "began"
    assert failed == {"event": "failed", "kind": "crashed", "message": "RuntimeError: out of luck"}


@pytest.mark.parametrize(("signals", "code"), [("SIGTERM", 143), ("SIGTERM SIGTERM", 130)])
def test_an_interruption_is_told_to_the_program(signals, code, here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    Path("stopper.py").write_text(STOPPER)
    Path("signals").write_text(signals)
    answer = fedclade("run", "tiny.toml", "--set", "scheduling.policy=stopper:stop", "--progress", "json")
    assert answer.code == code
    told = events(answer.out)
    assert [event["event"] for event in told] == ["began", "round", "failed"]
    assert told[-1]["kind"] == "interrupted"
