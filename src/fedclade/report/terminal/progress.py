"""Progress of a run or of a comparison: a live line on a terminal, elsewhere a plain line now and then."""

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedclade.core.records import RoundRecord
from fedclade.edge import duration
from fedclade.report.listener import Listener
from fedclade.report.listener import Progress as RunProgress
from fedclade.report.terminal.words import percent, spans
from fedclade.study import Job

PLAIN_LINES = 25  # progress lines of a run whose output is not a terminal


def event_lines(record: RoundRecord) -> Iterator[str]:
    """What a round changed in the tree, and what went wrong, a line each."""
    for event in record.events:
        if event.kind == "split":
            sides = " | ".join(spans(part) or "nobody" for part in event.detail["parts"])
            yield f"round {record.round}: cluster {event.node} splits into {sides}"
        elif event.kind in ("stop", "reopen"):
            word = "has stopped" if event.kind == "stop" else "is open again"
            yield f"round {record.round}: cluster {event.node} {word}"
        elif event.kind in ("moved", "placed"):
            left = event.detail["from"]
            yield f"round {record.round}: device {event.device} goes from cluster {left} to {event.node}"
        elif event.kind == "merge":
            yield f"round {record.round}: clusters {event.node} and {event.detail['merged']} become one"
        elif event.kind == "drifted":
            to = event.detail["to"]
            yield f"round {record.round}: the data of device {event.device} change, its group is now {to}"
        elif event.kind == "joined":
            yield f"round {record.round}: device {event.device} joined, in cluster {event.node}"
        elif event.kind == "incident":
            yield f"round {record.round}: {event.detail['what']}"
        elif event.kind == "rejected":
            yield f"round {record.round}: rejected the update of device {event.device}: {event.detail['reason']}"


class ProgressDisplay(Listener):
    """A live line on a terminal; elsewhere a plain line now and then and at every event."""

    def __init__(self, console: Console, rounds: int) -> None:
        self._console, self._rounds = console, rounds
        self._bar = Progress(
            TextColumn("round"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[eta]}"),
            console=console,
        )
        self._task = self._bar.add_task("run", total=rounds, facts="", eta="")
        self._live = Live(self._bar, console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def round_ended(self, progress: RunProgress) -> None:
        """Tell what happened, and how long it may still take."""
        record, state = progress.record, progress.state
        for line in event_lines(record):
            self._say(line)
        per_round = progress.wall_seconds / (record.round - progress.done_before)
        eta = f"about {duration(per_round * (progress.rounds - record.round))} left"
        facts = _facts(progress)
        if self._live:
            self._bar.update(self._task, completed=record.round, facts=facts, eta=eta)
        elif record.round % max(1, self._rounds // PLAIN_LINES) == 0 or state.round == self._rounds:
            self._console.print(f"round {record.round}/{self._rounds}  {facts}  {eta}", soft_wrap=True, highlight=False)

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)


def _facts(progress: RunProgress) -> str:
    record = progress.record
    parts = [f"{len(progress.state.tree.leaves())} cluster(s)"]
    if record.evaluation is not None:
        accuracy = record.evaluation.accuracy
        parts.append(f"accuracy {percent(float(accuracy.mean()))}, worst {percent(float(accuracy.min()))}")
    norms = [c for c in record.clusters if c.mean_norm is not None and c.max_norm is not None]
    if norms:
        largest = max(norms, key=lambda c: c.max_norm or 0.0)
        parts.append(f"norms mean {largest.mean_norm:.3f} max {largest.max_norm:.3f}")
    parts.append(f"simulated {duration(progress.state.seconds)}")
    parts.append(f"{progress.samples_per_second:,.0f} samples/s")
    return "  ".join(parts)


class ComparisonDisplay:
    """One bar for all runs of a comparison; without a terminal, a line whenever a run is over."""

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        self._console = console
        self._done = dict.fromkeys(jobs, 0)
        self._over: set[Job] = set()
        self._begun, self._before = time.monotonic(), 0.0
        self._bar = Progress(
            TextColumn("runs"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[eta]}"),
            console=console,
        )
        self._task = self._bar.add_task("runs", total=self._work(lambda job: job.config.run.rounds), facts="", eta="")
        self._live = Live(self._bar, console=console, transient=True) if console.is_terminal else None

    def _work(self, rounds: Callable[[Job], int]) -> float:
        """A round of more devices takes longer."""
        return float(sum(rounds(job) * job.devices for job in self._done))

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def kept(self, job: Job) -> None:
        """A run that was finished before this process began."""
        self._done[job] = job.config.run.rounds
        self._over.add(job)
        self._before = self._work(self._done.__getitem__)

    def __call__(self, job: Job, rounds: int) -> None:
        """So many rounds of a job are done."""
        self._done[job] = rounds
        done, total = (self._work(f) for f in (self._done.__getitem__, lambda job: job.config.run.rounds))
        speed = (done - self._before) / max(time.monotonic() - self._begun, 1e-9)
        eta = f"about {duration((total - done) / speed)} left" if speed and done < total else ""
        over = rounds >= job.config.run.rounds and job not in self._over
        if over:
            self._over.add(job)
        facts = f"{len(self._over)}/{len(self._done)}"
        if self._live:
            running = sum(0 < r < job.config.run.rounds for job, r in self._done.items())
            self._bar.update(self._task, completed=done, facts=f"{facts}, {running} going on", eta=eta)
        elif over:
            self._console.print(f"run {facts}  {job}  {eta}", soft_wrap=True, highlight=False)
