"""How far the runs of a directory are, read anew at every look."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from fedclade.config import Config
from fedclade.core.records import Event
from fedclade.core.task import ACCURACY
from fedclade.report.page import rounded
from fedclade.report.terminal.progress import event_line
from fedclade.runs import Run, read_config
from fedclade.runs.database import has_tables
from fedclade.runs.directory import CONFIG as RUN_CONFIG
from fedclade.runs.directory import DATABASE, SUMMARY
from fedclade.study import CONFIG, read_comparisons

State = Literal["waiting", "going on", "finished", "failed"]
Clock = Callable[[], float]


@dataclass(frozen=True)
class RunSeen:
    """One run as it stands: rounds done, accuracy or R² at every evaluation, and what happened.

    ``curves`` has lists of equal length: round, seconds (simulated), mean, worst, one_mean (one model for all).
    """

    name: str
    devices: int
    seed: int
    rounds: int
    done: int
    share: float  # of the whole: of its rounds, or of its simulated seconds where those are limited
    state: State
    clusters: int
    seconds: float
    curves: Mapping[str, Sequence[float | None]]
    events: tuple[str, ...]
    score: str = ACCURACY.name  # what its curves are of

    def last(self, curve: str) -> float | None:
        """The latest value of a curve; None before the first evaluation."""
        values = self.curves[curve]
        return values[-1] if values else None


@dataclass(frozen=True)
class Look:
    """All runs of a directory at one moment."""

    folder: Path
    comparison: bool
    runs: tuple[RunSeen, ...]
    left_seconds: float | None  # how long the rest may take; None while that cannot be told
    news_seconds: float  # since the last round was written

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return all(run.state in ("finished", "failed") for run in self.runs)

    def count(self, state: State) -> int:
        """How many runs are in a state."""
        return sum(run.state == state for run in self.runs)


@dataclass(frozen=True)
class _Place:
    """Where one run is, and what it is called; its config is read once."""

    name: str
    config: Config
    folder: Path


def wait_for(folder: Path, every_seconds: float) -> None:
    """Wait until a run or a comparison is begun in a directory that is not there yet."""
    while not any((folder / name).is_file() for name in (CONFIG, RUN_CONFIG)):
        time.sleep(every_seconds)


class Watch:
    """Looks at a directory again and again; the time left is told by what was done between the first look and the last.

    A run is read anew only if its files changed.
    """

    def __init__(self, folder: Path, clock: Clock = time.monotonic) -> None:
        self.folder, self._clock = folder, clock
        self.comparison = (folder / CONFIG).is_file()
        if self.comparison:
            found = read_comparisons(folder)
            self._places = [
                _Place(f"{name}: {job.contender}" if len(found) > 1 else job.contender, job.config, job.folder)
                for name, (_, jobs, _) in found.items()
                for job in jobs
            ]
        else:
            self._places = [_Place(folder.resolve().name, read_config(folder), folder)]
        self._known: dict[Path, tuple[object, RunSeen]] = {}
        self._first: tuple[float, float] | None = None

    def look(self) -> Look:
        """How far all runs are now."""
        runs = tuple(self._seen(place) for place in self._places)
        changes = [changed for place in self._places if (changed := _last_change(place.folder)) is not None]
        news = max(0.0, time.time() - max(changes)) if changes else 0.0
        return Look(self.folder, self.comparison, runs, self._left(runs), news)

    def _left(self, runs: Sequence[RunSeen]) -> float | None:
        done = sum(run.share * run.devices for run in runs)  # a round of more devices takes longer
        open_ = [run for run in runs if run.state in ("waiting", "going on")]
        left = sum((1 - run.share) * run.devices for run in open_)
        now = self._clock()
        if self._first is None:
            self._first = (now, done)
        begun, before = self._first
        return 0.0 if not open_ else left * (now - begun) / (done - before) if done > before else None

    def _seen(self, place: _Place) -> RunSeen:
        marks = [place.folder / name for name in (DATABASE, f"{DATABASE}-wal", SUMMARY, "failure.txt")]
        stamp = [(path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else None for path in marks]
        known = self._known.get(place.folder)
        if known is None or known[0] != stamp:
            known = self._known[place.folder] = (stamp, _read(place))
        return known[1]


def _last_change(folder: Path) -> float | None:
    """When a run's tables were last written, as a time of the wall clock."""
    paths = (folder / name for name in (DATABASE, f"{DATABASE}-wal"))
    return max((path.stat().st_mtime for path in paths if path.is_file()), default=None)


def _read(place: _Place) -> RunSeen:
    config, folder = place.config, place.folder
    seen = RunSeen(
        name=place.name,
        devices=config.population.devices,
        seed=config.run.seed,
        rounds=config.run.rounds,
        done=0,
        share=0.0,
        state="failed" if (folder / "failure.txt").is_file() else "waiting",
        clusters=1,
        seconds=0.0,
        curves={name: [] for name in ("round", "seconds", "mean", "worst", "one_mean")},
        events=(),
    )
    if not has_tables(folder / DATABASE):
        return seen
    run = Run(folder)
    rounds, budget = run.rounds, config.run.time_budget_seconds
    seconds = float(rounds["seconds"].sum())
    share = max(len(rounds) / seen.rounds, 0.0 if budget is None else seconds / budget)
    going_on: State = "going on" if len(rounds) and seen.state == "waiting" else seen.state
    return replace(
        seen,
        done=len(rounds),
        share=1.0 if run.finished else min(share, 1.0),
        state="finished" if run.finished else going_on,
        clusters=int(rounds["clusters"].iloc[-1]) if len(rounds) else 1,
        seconds=seconds,
        curves=_curves(rounds, run.score.name),
        events=tuple(_events(run)),
        score=run.score.name,
    )


def _curves(rounds: pd.DataFrame, score: str) -> dict[str, list[float | None]]:
    evaluated = rounds.dropna(subset=[f"{score}_mean"])
    return {
        "round": evaluated["round"].tolist(),
        "seconds": rounded(evaluated["start_seconds"] + evaluated["seconds"]),
        "mean": rounded(evaluated[f"{score}_mean"]),
        "worst": rounded(evaluated[f"{score}_min"]),
        "one_mean": rounded(evaluated[f"conventional_{score}_mean"]),
    }


def _events(run: Run) -> Iterator[str]:
    for row in run.events.to_dict("records"):
        device = None if pd.isna(row["device"]) else int(row["device"])
        if line := event_line(row["round"], Event(row["kind"], row["node"], device, row["detail"])):
            yield line
