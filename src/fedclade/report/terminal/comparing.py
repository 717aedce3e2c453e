"""Progress of a comparison: on a terminal a table of the runs that go on, elsewhere a line whenever one is over."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.table import Table

from fedclade.core.task import SCORES
from fedclade.core.units import duration
from fedclade.report.terminal.progress import LiveLine, ProgressLine
from fedclade.study import Job


@dataclass
class Going:
    """A run that goes on: what it told of its first round here, and of its last one."""

    job: Job
    first: tuple[int, float]  # rounds done and seconds passed
    last: tuple[int, float]
    scores: tuple[str, str] = ("", "")  # of the mean and of the worst device, as evaluated last

    def heard(self, rounds: int, told: Mapping[str, Any]) -> None:
        """One more round is done."""
        self.last = (rounds, told.get("wall_seconds", 0.0))
        for score in SCORES.values():
            if told.get(f"{score.name}_mean") is not None:
                self.scores = (score.text(told[f"{score.name}_mean"]), score.text(told[f"{score.name}_min"]))

    @property
    def left(self) -> str:
        """How long the rounds that are still to come may take, as fast as those since the first."""
        rounds, seconds = (last - first for first, last in zip(self.first, self.last, strict=True))
        return duration(seconds / rounds * (self.job.config.run.rounds - self.last[0])) if rounds > 0 else ""


class ComparisonDisplay:
    """What is done of a comparison, and how long the rest may take."""

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        self._console = console
        self._done = dict.fromkeys(jobs, 0)
        self._going: dict[Job, Going] = {}
        self._over: set[Job] = set()
        self._begun, self._before = time.monotonic(), 0.0
        total = self._work(lambda job: job.config.run.rounds)
        self._live = LiveLine(console, ProgressLine("runs", total), above=self._table)

    def _work(self, rounds: Callable[[Job], int]) -> float:
        """A round of more devices takes longer."""
        return float(sum(rounds(job) * job.devices for job in self._done))

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__()

    def kept(self, job: Job) -> None:
        """A run that was finished before this process began."""
        self._done[job] = job.config.run.rounds
        self._over.add(job)
        self._before = self._work(self._done.__getitem__)

    def __call__(self, job: Job, rounds: int, told: Mapping[str, Any]) -> None:
        """So many rounds of a job are done; the last one told this."""
        self._done[job] = rounds
        over = rounds >= job.config.run.rounds and job not in self._over
        if over:
            self._over.add(job)
            self._going.pop(job, None)
        elif job not in self._over:
            here = (rounds, told.get("wall_seconds", 0.0))
            self._going.setdefault(job, Going(job, here, here)).heard(rounds, told)
        done = self._work(self._done.__getitem__)
        speed = (done - self._before) / max(time.monotonic() - self._begun, 1e-9)
        left = self._live.line.total - done
        eta = f"about {duration(left / speed)} left" if speed and left else ""
        count = f"{len(self._over)}/{len(self._done)}"
        self._live.update(done, count, eta, [f"{len(self._going)} going on"])
        if over and not self._live:
            self._console.print(f"run {count}  {job}  {eta}", soft_wrap=True, highlight=False)

    def _table(self) -> RenderableType:
        """The runs that go on, a row each."""
        table = Table("run", box=None, pad_edge=False, header_style="dim")
        for title in ("devices", "seed", "round", "mean", "worst", "left"):
            table.add_column(title, justify="right", no_wrap=True)
        for going in list(self._going.values()):  # others may come and go meanwhile
            job = going.job
            rounds = f"{going.last[0]}/{job.config.run.rounds}"
            table.add_row(job.contender, f"{job.devices}", f"{job.seed}", rounds, *going.scores, going.left)
        return table
