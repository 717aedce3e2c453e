"""Run the jobs of a study, each in a process of its own that tells its progress in JSON (docs/how-to/progress.md)."""

import contextlib
import json
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedclade.core.errors import Interrupted
from fedclade.study.children import Children
from fedclade.study.plan import Job

LAST_WORDS = 100  # lines kept of a run that failed: enough for a traceback

OnProgress = Callable[[Job, int, Mapping[str, Any]], None]  # rounds done of a job, all when it ends; what it told
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


def carry_out(
    jobs: Sequence[Job],
    processes: int,
    on_progress: OnProgress = lambda job, rounds, told: None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> dict[Job, Failure]:
    """Run what is not finished, each in a process of its own; gives what went wrong with those that failed.

    Of one seed the longest runs come first, so that in the end no process waits for long. Asked to stop, it lets every
    run write its checkpoint and raises Interrupted.
    """
    todo = sorted((job for job in jobs if not job.finished), key=lambda job: (job.seed, -job.work))
    children, failed = Children(warm=len(todo) > 1), dict[Job, Failure]()
    with contextlib.closing(children), ThreadPoolExecutor(processes) as pool:
        futures = {pool.submit(_carry_out, job, children, on_progress): job for job in todo}
        left = set(futures)
        while left:
            done, left = wait(left, timeout=0.2)
            for future in done:
                if failure := future.result():
                    failed[futures[future]] = failure
                if not children.stopping:
                    on_progress(futures[future], futures[future].config.run.rounds, {})
            if stop_requested() and not children.stopping:
                children.stop()
    if children.stopping:
        raise Interrupted
    return failed


def _words(job: Job) -> list[str]:
    return ["--traceback", "run", "--resume", str(job.folder), "--progress", "json"]


def _carry_out(job: Job, children: Children, on_progress: OnProgress) -> Failure | None:
    """Run one job; a failure is also written into its folder, with the last lines that were no events."""
    child = children.start(_words(job), job.folder)
    if child is None:
        return None
    said: deque[str] = deque(maxlen=LAST_WORDS)
    last: dict[str, Any] = {}
    for line in child.lines():
        event = _event(line)
        if event is None:
            said.append(line)
            continue
        last = event
        if event["event"] == "round":
            on_progress(job, _rounds_done(job, event), event)
    code = child.ended()
    children.forget(child)
    file = job.folder / "failure.txt"
    if code == 0 or children.stopping:
        file.unlink(missing_ok=True)
        return None
    failure = _failure(last, said, code)
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
