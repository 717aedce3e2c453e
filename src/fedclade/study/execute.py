"""Run the jobs of a study, each in a process of its own that tells its progress in JSON (docs/how-to/progress.md)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedclade.core.errors import Interrupted
from fedclade.study.plan import Job

LAST_WORDS = 100  # lines kept of a run that failed: enough for a traceback

OnProgress = Callable[[Job, int], None]  # rounds done of a job; all of them when it ends
FailureKind = Literal["user-error", "interrupted", "crashed", "died"]


@dataclass(frozen=True)
class Failure:
    """Why a run did not come to its end.

    ``kind`` is "user-error" for settings that cannot work, "interrupted" if somebody else stopped it, "crashed" for an
    exception, and "died" if its process ended without telling why.
    """

    kind: FailureKind
    message: str
    exit_code: int  # below 0: the signal that killed the process

    def __str__(self) -> str:
        return f"{self.message} (exit code {self.exit_code})"


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def carry_out(
    jobs: Sequence[Job],
    processes: int,
    on_progress: OnProgress = lambda job, rounds: None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> dict[Job, Failure]:
    """Run what is not finished, each in a process of its own; gives what went wrong with those that failed.

    Asked to stop, it lets every run write its checkpoint and raises Interrupted.
    """
    children, failed = _Children(), dict[Job, Failure]()
    with ThreadPoolExecutor(processes) as pool:
        futures = {pool.submit(_carry_out, job, children, on_progress): job for job in jobs if not job.finished}
        left = set(futures)
        while left:
            done, left = wait(left, timeout=0.2)
            for future in done:
                if failure := future.result():
                    failed[futures[future]] = failure
                if not children.stopping:
                    on_progress(futures[future], futures[future].config.run.rounds)
            if stop_requested() and not children.stopping:
                children.stop()
    if children.stopping:
        raise Interrupted
    return failed


class _Children:
    """The processes that are running. Once they are asked to stop, no other one starts."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def start(self, words: Sequence[str]) -> subprocess.Popen[str] | None:
        """Start one; None when it is too late for that."""
        with self._lock:
            if self.stopping:
                return None
            child = subprocess.Popen(
                words,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",  # users' own code may print anything
                start_new_session=True,  # Ctrl-C comes to this process alone, which hands it on
            )
            self._running.add(child)
        return child

    def forget(self, child: subprocess.Popen[str]) -> None:
        """One has ended."""
        with self._lock:
            self._running.discard(child)

    def stop(self) -> None:
        """Ask all of them to write their checkpoints and end."""
        with self._lock:
            self.stopping = True
            for child in self._running:
                with contextlib.suppress(ProcessLookupError):
                    child.terminate()


def _words(job: Job) -> list[str]:
    return [sys.executable, "-m", "fedclade", "--traceback", "run", "--resume", str(job.folder), "--progress", "json"]


def _carry_out(job: Job, children: _Children, on_progress: OnProgress) -> Failure | None:
    """Run one job; a failure is also written into its folder, with the last lines that were no events."""
    child = children.start(_words(job))
    if child is None:
        return None
    said: deque[str] = deque(maxlen=LAST_WORDS)
    last: dict[str, Any] = {}
    with child:
        assert child.stdout is not None
        for line in child.stdout:
            event = _event(line)
            if event is None:
                said.append(line)
                continue
            last = event
            if event["event"] == "round":
                on_progress(job, _rounds_done(job, event))
    children.forget(child)
    file = job.folder / "failure.txt"
    if child.returncode == 0 or children.stopping:
        file.unlink(missing_ok=True)
        return None
    failure = _failure(last, said, child.returncode)
    file.write_text(f"{failure.kind}: {failure}\n{''.join(said)}", "utf-8")
    return failure


def _event(line: str) -> dict[str, Any] | None:
    """The event that a line tells; None for a line that tells none that is known."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    match told:
        case {"event": "began" | "ended"} | {"event": "round", "round": int()}:
            return dict(told)
        case {"event": "failed", "kind": str(kind), "message": str()} if kind in get_args(FailureKind):
            return dict(told)
    return None


def _rounds_done(job: Job, event: Mapping[str, Any]) -> int:
    """How far a job is, in rounds of those at most; where its time budget is nearer, by the share of that."""
    run = job.config.run
    if run.time_budget_seconds is None:
        return int(event["round"])
    by_clock = int(run.rounds * event.get("seconds", 0.0) / run.time_budget_seconds)
    return min(run.rounds - 1, max(int(event["round"]), by_clock))


def _failure(last: dict[str, Any], said: Sequence[str], exit_code: int) -> Failure:
    """What the last event says of a process that failed, or else how it ended and its last word."""
    if last.get("event") == "failed":
        return Failure(last["kind"], last["message"], exit_code)
    word = next((line.strip() for line in reversed(said) if line.strip()), "no word")
    if exit_code < 0:
        word = f"killed by {signal.Signals(-exit_code).name}; its last word: {word}"
    return Failure("died", word, exit_code)
