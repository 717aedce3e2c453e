"""Processes of a study: what they tell, and what is made of those that fail."""

import json
import socket
import subprocess
import sys

import pytest

from data_builders import stand_in_folder_with
from fedclade import config as configuration
from fedclade.study import Failure, Job, carry_out, children, execute, prepare
from tiny_runs import TINY, outcome

TOLD = {"event": "failed", "kind": "crashed", "message": "RuntimeError: out of luck"}


@pytest.fixture
def job(tmp_path) -> Job:
    return prepare(configuration.load(TINY, ["compare.seeds=1", 'compare.policies=["fair"]']), tmp_path / "mine")[0]


@pytest.fixture
def failing(job, monkeypatch):
    """Run a script instead of the job: gives its failure, the rounds it told, and what failure.txt holds."""

    def carried_out(script: str) -> tuple[Failure | None, list[int], str | None]:
        monkeypatch.setattr(children, "COMMAND", (sys.executable,))
        monkeypatch.setattr(execute, "_words", lambda _: ["-c", script])
        rounds: list[int] = []
        failed = carry_out([job], 1, lambda _, done, __: rounds.append(done))
        file = job.folder / "failure.txt"
        return failed.get(job), rounds, file.read_text("utf-8") if file.is_file() else None

    return carried_out


def said(*events: object, then: str = "") -> str:
    lines = "\n".join(event if isinstance(event, str) else json.dumps(event) for event in events)
    return f"import os, sys; print({lines!r}, flush=True); {then}"


def test_rounds_are_told_and_a_success_leaves_no_trace(failing, job):
    (job.folder / "failure.txt").write_text("of an earlier attempt")
    rounds = [{"event": "round", "round": 1}, {"event": "round", "round": 2, "rounds": 3, "news": None}]
    assert failing(said({"event": "began"}, *rounds, {"event": "ended"})) == (None, [1, 2, 3], None)


def test_a_failure_has_the_kind_and_the_message_that_were_told(failing):
    failure, _, text = failing(said(TOLD, "Traceback …", then="sys.exit(1)"))
    assert failure == Failure("crashed", "RuntimeError: out of luck", 1)
    assert str(failure) == "RuntimeError: out of luck (exit code 1)"
    assert text == "crashed: RuntimeError: out of luck (exit code 1)\nTraceback …\n"


@pytest.mark.parametrize("kind", ["user-error", "interrupted"])
def test_every_kind_is_taken_over(kind, failing):
    assert failing(said(TOLD | {"kind": kind}, then="sys.exit(2)"))[0] == Failure(kind, TOLD["message"], 2)


def test_a_process_killed_without_a_word_died(failing):
    failure, rounds, text = failing(said({"event": "round", "round": 1}, then="os.kill(os.getpid(), 9)"))
    assert failure == Failure("died", "killed by SIGKILL; its last word: no word", -9)
    assert rounds[0] == 1
    assert text == "died: killed by SIGKILL; its last word: no word (exit code -9)\n"


def test_a_process_that_ends_without_an_event_died_with_its_last_word(failing):
    assert failing(said("no such module", "", then="sys.exit(3)"))[0] == Failure("died", "no such module", 3)


broken = [
    "round 1/3",
    "{",
    "3",
    "null",
    '["event"]',
    '{"event": "lunch"}',
    '{"event": ["round"]}',
    '{"event": "round"}',
    '{"event": "round", "round": "two"}',
    '{"event": "failed", "kind": "sulking", "message": "no"}',
    '{"event": "failed", "kind": "crashed"}',
]


def test_lines_that_are_no_events_are_ignored_but_kept_as_last_words(failing):
    failure, rounds, text = failing(said(*broken, then="sys.exit(1)"))
    assert rounds == [3]  # only that it is over
    assert failure == Failure("died", broken[-1], 1)
    assert text.splitlines()[1:] == broken


def test_bytes_that_are_no_text_do_no_harm(failing):
    script = "import sys; sys.stdout.buffer.write(bytes([255, 10])); sys.stdout.flush(); sys.exit(1)"
    assert failing(script)[0] == Failure("died", "\N{REPLACEMENT CHARACTER}", 1)


def test_only_the_last_words_are_kept(failing):
    text = failing(said(*(f"line {number}" for number in range(300)), then="sys.exit(1)"))[2]
    assert text.splitlines()[1:] == [f"line {number}" for number in range(200, 300)]


FAILING = """
import os
import numpy as np
from fedclade import UserError
from fedclade.server import Server

def out_of_luck(*_, **__):
    raise RuntimeError("out of luck")

def crashes(situation):
    Server._evaluated = out_of_luck  # not in the policy itself, which is the user's own
    return np.arange(situation.devices)

def fails(situation):
    out_of_luck()

def refuses(situation):
    raise UserError("custom.step = 3: must be less")

def dies(situation):
    if situation.round == 2:
        os.kill(os.getpid(), 9)
    return np.arange(situation.devices)

def stops(situation):
    os.kill(os.getpid(), 15)
    return np.arange(situation.devices)
"""


@pytest.mark.slow
def test_real_runs_that_fail_each_tell_their_kind(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "failing", FAILING)
    policies = ["fair", *(f"failing:{name}" for name in ("crashes", "fails", "refuses", "dies", "stops"))]
    config = configuration.load(TINY, {"compare.seeds": 1, "compare.policies": policies})
    jobs = prepare(config, tmp_path / "mine")
    failed = {job.contender: failure for job, failure in carry_out(jobs, 2).items()}
    assert failed.pop("failing:dies").kind == "died"
    assert failed == {
        "failing:crashes": Failure("crashed", "RuntimeError: out of luck", 1),
        "failing:fails": Failure("user-error", "policy 'failing:fails': round 1: fails: RuntimeError: out of luck", 2),
        "failing:refuses": Failure("user-error", "custom.step = 3: must be less", 2),
        "failing:stops": Failure("interrupted", "stopped by a signal; all finished rounds are kept", 143),
    }
    assert [job.contender for job in jobs if job.finished] == ["fair"]
    first, second, *_ = (jobs[1].folder / "failure.txt").read_text("utf-8").splitlines()
    assert first == "crashed: RuntimeError: out of luck (exit code 1)"
    assert second == "Traceback (most recent call last):"
    assert "in out_of_luck" in (jobs[2].folder / "failure.txt").read_text("utf-8")  # for whoever wrote the policy


def gone() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A nursery that is gone before its first run."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    return ours, subprocess.Popen(["true"])


@pytest.mark.slow
def test_runs_forked_from_a_warm_process_end_as_those_that_start_from_nothing(tmp_path, monkeypatch):
    config = configuration.load(TINY, {"compare.seeds": 1, "compare.policies": ["fair", "random"]})
    warm, cold = (prepare(config, tmp_path / name) for name in ("warm", "cold"))
    assert carry_out(warm, 2) == {}
    monkeypatch.setattr(children, "_started", gone)
    assert carry_out(cold, 2) == {}
    assert [outcome(job.folder) for job in warm] == [outcome(job.folder) for job in cold]
