"""Comparisons: every contender × number of devices × trial, as runs of their own inside one directory.

::

    compare.toml                        the preset or file with its [compare] section, whole
    runs/K20/fair/trial-1/              a run directory
    runs.csv, tables/, figures/, report.html

A trial is a seed. Populations, devices and channels are drawn by seed, purpose and round, never by policy, so within a
trial the contenders meet the same world, and their differences are their own.
"""

import contextlib
import math
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedclade import config as configuration
from fedclade.config import CompareConfig, Config
from fedclade.core.arrays import Floats
from fedclade.core.errors import Interrupted, UserError
from fedclade.runs import Run, differences, write_beside
from fedclade.scheduling import find_policy, find_rule
from fedclade.study.statistics import bootstrap_interval, mean_over_time

CONFIG = "compare.toml"
GRID = 300  # moments of the race
LAST_WORDS = 30  # lines kept of a run that failed


# -------------------------------------------------------------------------------- planning


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    contender: str
    devices: int
    trial: int
    config: Config
    folder: Path

    @property
    def finished(self) -> bool:
        """Whether its run came to its end."""
        return (self.folder / "config.toml").is_file() and Run(self.folder).finished

    def __str__(self) -> str:
        return f"{self.contender}, {self.devices} devices, trial {self.trial}"


def contenders(config: CompareConfig) -> dict[str, list[str]]:
    """What is compared: name -> the fields that make it, as overrides."""
    found = {name: [f'scheduling.policy="{name}"'] for name in config.policies}
    for variant in config.variants:
        name, colon, fields = variant.partition(":")
        if not colon or not re.fullmatch(r"[\w.+-]+", name := name.strip()):
            raise UserError(f"compare.variants = {variant!r}: must be 'name: section.field=value; section.field=value'")
        if name in found:
            raise UserError(f"compare.variants = {variant!r}: {name!r} is compared already: choose another name")
        found[name] = [field.strip() for field in fields.split(";") if field.strip()]
    if config.against not in found:
        raise UserError(f"compare.against = {config.against!r}: must be one of those compared: {', '.join(found)}")
    return found


def plan(config: Config, out: Path) -> list[Job]:
    """All runs, trial by trial, so that whatever is stopped early has compared like with like."""
    compare = config.compare
    base = {name: dict(section) for name, section in config if name != "compare"}
    jobs = []
    for trial in range(1, compare.trials + 1):
        for devices in compare.devices or (config.population.devices,):
            for name, fields in contenders(compare).items():
                always = [f"population.devices={devices}", f"run.seed={config.run.seed + trial - 1}"]
                if config.training.workers is None:
                    always.append("training.workers=1")  # the cores are kept busy by runs beside each other
                made = configuration.load(base, [*always, *fields])
                find_policy(made.scheduling.policy)
                find_rule(made.scheduling.allocation)
                folder = out / "runs" / f"K{devices}" / re.sub(r"[^\w.+-]", "-", name) / f"trial-{trial}"
                jobs.append(Job(name, devices, trial, made, folder))
    return _on_equal_data(jobs)


def _on_equal_data(jobs: list[Job]) -> list[Job]:
    """Where one holds images out for trials, all do; or else they would train on less than the others."""
    share = max(job.config.validation_share for job in jobs)
    equal = []
    for job in jobs:
        population = job.config.population
        if population.validation_share is None:
            population = population.model_copy(update={"validation_share": share})
        equal.append(replace(job, config=job.config.model_copy(update={"population": population})))
    return equal


def prepare(config: Config, out: Path) -> list[Job]:
    """Plan, and make or recognise the directories; runs made with other settings are refused."""
    jobs = plan(config, out)
    if out.exists() and not (out / CONFIG).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is no comparison: choose another --out")
    for job in jobs:
        if (job.folder / "config.toml").is_file() and (different := differences(job.config, Run(job.folder).config)):
            field, (mine, theirs) = next(iter(different.items()))
            raise UserError(f"{job.folder}: was made with {field} = {theirs!r}, not {mine!r}: choose another --out")
    for job in jobs:
        job.folder.mkdir(parents=True, exist_ok=True)
        if not (job.folder / "config.toml").is_file():
            write_beside(job.folder / "config.toml", configuration.to_toml(job.config).encode())
    write_beside(out / CONFIG, configuration.to_toml(config).encode())
    return jobs


def read_comparison(out: Path) -> tuple[Config, list[Job]]:
    """The config and the runs of a comparison's directory."""
    config = configuration.load(str(out / CONFIG))
    return config, plan(config, out)


# -------------------------------------------------------------------------------- carrying out

OnProgress = Callable[[Job, int], None]  # rounds done of a job; all of them when it ends


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def carry_out(
    jobs: Sequence[Job],
    processes: int,
    on_progress: OnProgress = lambda job, rounds: None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> dict[Job, str]:
    """Run what is not finished, each in a process of its own; gives what went wrong with those that failed.

    Asked to stop, it lets every run write its checkpoint and raises Interrupted.
    """
    stopping, children, lock = threading.Event(), set[subprocess.Popen[str]](), threading.Lock()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

    def one(job: Job) -> str | None:
        words = [sys.executable, "-m", "fedclade", "run", "--resume", str(job.folder)]
        with lock:
            if stopping.is_set():
                return None
            child = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # Ctrl-C comes to this process alone, which hands it on
            )
            children.add(child)
        said: deque[str] = deque(maxlen=LAST_WORDS)
        with child:
            assert child.stdout is not None
            for line in child.stdout:
                said.append(line)
                if told := re.match(r"round (\d+)/", line):
                    on_progress(job, int(told[1]))
        with lock:
            children.discard(child)
        failure = job.folder / "failure.txt"
        if child.returncode == 0 or stopping.is_set():
            failure.unlink(missing_ok=True)
            return None
        failure.write_text("".join(said), "utf-8")
        last = next((line.strip() for line in reversed(said) if line.strip()), "no word")
        return f"{last.removeprefix('fedclade: ')} (exit code {child.returncode})"

    failed: dict[Job, str] = {}
    with ThreadPoolExecutor(processes) as pool:
        futures = {pool.submit(one, job): job for job in jobs if not job.finished}
        left = set(futures)
        while left:
            done, left = wait(left, timeout=0.2)
            for future in done:
                if message := future.result():
                    failed[futures[future]] = message
                if not stopping.is_set():
                    on_progress(futures[future], futures[future].config.run.rounds)
            if stop_requested() and not stopping.is_set():
                with lock:
                    stopping.set()
                    for child in children:
                        with contextlib.suppress(ProcessLookupError):
                            child.terminate()
    if stopping.is_set():
        raise Interrupted
    return failed


# -------------------------------------------------------------------------------- what came out


@dataclass(frozen=True)
class Metric:
    """One number of a run, as tables and figures name and scale it."""

    title: str
    factor: float = 1.0
    decimals: int | None = 1  # None: three digits that matter

    def text(self, value: float, sign: Literal["", "+"] = "") -> str:
        """A value as it is read in a table."""
        scaled = self.factor * value
        decimals = self.decimals
        if decimals is None:
            decimals = 2 if scaled == 0 else max(0, 2 - math.floor(math.log10(abs(scaled))))
        return f"{scaled:{sign}.{decimals}f}"


METRICS = {
    "accuracy_min": Metric("worst device (%)", 100),
    "accuracy_mean": Metric("mean device (%)", 100),
    "accuracy_max": Metric("best device (%)", 100),
    "first_split_round": Metric("first split (round)"),
    "last_split_round": Metric("last split (round)"),
    "rounds_to_target": Metric("target accuracy (round)"),
    "first_split_seconds": Metric("first split (s)", 1, None),
    "last_split_seconds": Metric("last split (s)", 1, None),
    "seconds_to_target": Metric("target accuracy (s)", 1, None),
    "accuracy_gap": Metric("gap (points)", 100),
    "accuracy_std": Metric("std (points)", 100),
    "accuracy_worst_tenth": Metric("worst 10 % (%)", 100),
    "jain_accuracy": Metric("Jain, accuracy", 1, 3),
    "jain_participation": Metric("Jain, participation", 1, 3),
    "energy_joules": Metric("energy (J)", 1, None),
    "upload_bits": Metric("uploaded (Mbit)", 1e-6, None),
    "simulated_seconds": Metric("simulated time (s)", 1, None),
    "clusters": Metric("clusters"),
    "adjusted_rand_index": Metric("adjusted Rand index", 1, 2),
}
TABLES = {
    "accuracy": ("Accuracy over the devices", ("accuracy_min", "accuracy_mean", "accuracy_max")),
    "speed": (
        "Rounds and simulated seconds to the first split, the last split and the target accuracy",
        (
            "first_split_round",
            "last_split_round",
            "rounds_to_target",
            "first_split_seconds",
            "last_split_seconds",
            "seconds_to_target",
        ),
    ),
    "fairness": (
        "Fairness, and whether the groups were found",
        (
            "accuracy_gap",
            "accuracy_std",
            "accuracy_worst_tenth",
            "jain_accuracy",
            "jain_participation",
            "clusters",
            "adjusted_rand_index",
        ),
    ),
    "cost": ("Cost of the whole run", ("simulated_seconds", "energy_joules", "upload_bits")),
}
KEYS = ["devices", "contender"]


@dataclass(frozen=True)
class Curves:
    """How one contender went at one K: means over trials, and the first trial's norms and splits."""

    round: Floats
    accuracy: dict[str, Floats]  # min, mean, max: means over trials
    norm_round: Floats
    norms: dict[str, Floats]  # mean, max: the largest over the clusters, first trial
    split_rounds: list[int]  # first trial
    race: dict[str, Floats]  # min, mean at the comparison's moments


@dataclass(frozen=True)
class Comparison:
    """All that tables, figures and page show."""

    config: Config
    contenders: list[str]
    frame: pd.DataFrame  # one row a finished run
    curves: dict[tuple[int, str], Curves]
    moments: dict[int, Floats]  # per K, in simulated seconds
    first: dict[tuple[int, str], Run]  # the first finished trial of each

    @property
    def sizes(self) -> list[int]:
        """The numbers of devices for which there is something to show."""
        return sorted(self.moments)


def collect(config: Config, jobs: Sequence[Job]) -> Comparison:
    """Read what is finished."""
    finished = {job: Run(job.folder) for job in jobs if job.finished}
    if not finished:
        raise UserError("no run of this comparison is finished yet")
    target = config.compare.target_accuracy
    rounds = {job: run.rounds for job, run in finished.items()}
    rows = [
        {
            "devices": job.devices,
            "contender": job.contender,
            "trial": job.trial,
            "seed": job.config.run.seed,
            **{name: run.summary[name] for name in METRICS if not name.endswith("_to_target")},
            **_reached(rounds[job], target),
        }
        for job, run in finished.items()
    ]
    names = list(contenders(config.compare))
    frame = pd.DataFrame(rows).astype(dict.fromkeys(METRICS, np.float64))
    curves, moments, first = {}, {}, {}
    for devices in sorted({job.devices for job in finished}):
        here = [job for job in finished if job.devices == devices]
        end = max(float(_end(rounds[job]).max()) for job in here)
        moments[devices] = np.linspace(0.0, end, GRID)
        for name in names:
            trials = [job for job in here if job.contender == name]
            if trials:
                first[devices, name] = finished[trials[0]]
                curves[devices, name] = _curves([rounds[job] for job in trials], finished[trials[0]], moments[devices])
    return Comparison(config, names, frame, curves, moments, first)


def _end(rounds: pd.DataFrame) -> "pd.Series[float]":
    return rounds["start_seconds"] + rounds["seconds"]


def _evaluated(rounds: pd.DataFrame) -> pd.DataFrame:
    return rounds.assign(end=_end(rounds)).dropna(subset=["accuracy_mean"])


def _reached(rounds: pd.DataFrame, target: float) -> dict[str, float | None]:
    """When the devices' mean accuracy first was the target's."""
    seen = _evaluated(rounds)
    there = seen[seen["accuracy_mean"] >= target]
    if there.empty:
        return {"rounds_to_target": None, "seconds_to_target": None}
    return {"rounds_to_target": float(there["round"].iloc[0]), "seconds_to_target": float(there["end"].iloc[0])}


def _curves(trials: list[pd.DataFrame], first: Run, moments: Floats) -> Curves:
    seen = [_evaluated(rounds) for rounds in trials]
    parts = ("min", "mean", "max")
    by_round = pd.concat(seen).groupby("round")[[f"accuracy_{part}" for part in parts]].mean()
    largest = first.clusters.groupby("round")[["mean_norm", "max_norm"]].max()

    def race(part: str) -> Floats:
        values = [rounds[f"accuracy_{part}"].to_numpy() for rounds in seen]
        return mean_over_time([rounds["end"].to_numpy() for rounds in seen], values, moments)

    return Curves(
        by_round.index.to_numpy(np.float64),
        {part: by_round[f"accuracy_{part}"].to_numpy() for part in parts},
        largest.index.to_numpy(np.float64),
        {part: largest[f"{part}_norm"].to_numpy(np.float64) for part in ("mean", "max")},
        first.events.query("kind == 'split'")["round"].tolist(),
        {part: race(part) for part in ("min", "mean")},
    )


def spread(comparison: Comparison) -> pd.DataFrame:
    """Mean and standard deviation over trials, a row for each K, contender and metric; ``count`` trials have one."""
    rows: list[dict[str, Any]] = []
    for (devices, name), part in _groups(comparison):
        for metric in METRICS:
            values = part[metric].dropna()
            rows.append(
                {
                    "devices": devices,
                    "contender": name,
                    "metric": metric,
                    "mean": values.mean(),
                    "std": values.std(ddof=1),
                    "count": len(values),
                    "trials": len(part),
                }
            )
    return pd.DataFrame(rows)


def paired(comparison: Comparison) -> pd.DataFrame:
    """Differences to the contender chosen to compare against, trial by trial: their mean and its interval."""
    against = comparison.config.compare.against
    rows: list[dict[str, Any]] = []
    groups = dict(_groups(comparison))
    for (devices, name), part in groups.items():
        if name == against or (devices, against) not in groups:
            continue
        theirs = groups[devices, against].set_index("trial")
        for metric in METRICS:
            difference = (part.set_index("trial")[metric] - theirs[metric]).dropna().to_numpy(np.float64)
            low, high = bootstrap_interval(difference) or (None, None)
            rows.append(
                {
                    "devices": devices,
                    "contender": name,
                    "against": against,
                    "metric": metric,
                    "difference": difference.mean() if len(difference) else None,
                    "low": low,
                    "high": high,
                    "pairs": len(difference),
                }
            )
    columns = ["devices", "contender", "against", "metric", "difference", "low", "high", "pairs"]
    return pd.DataFrame(rows, columns=columns)


def _groups(comparison: Comparison) -> list[tuple[tuple[int, str], pd.DataFrame]]:
    """The finished runs of each K and contender, in the order in which they were named."""
    frame = comparison.frame
    keys = [(devices, name) for devices in comparison.sizes for name in comparison.contenders]
    parts = [(key, frame[(frame["devices"] == key[0]) & (frame["contender"] == key[1])]) for key in keys]
    return [(key, part) for key, part in parts if len(part)]
