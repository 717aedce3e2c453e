"""Which runs a study is made of, and the directory that holds them."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedclade import config as configuration
from fedclade.config import Config
from fedclade.core.errors import UserError, cannot
from fedclade.metrics.registry import find_metrics
from fedclade.runs import (
    Run,
    check_seal,
    differences,
    is_marked,
    remove_leftovers,
    sealed_text,
    take_lock,
    write_beside,
    write_mark,
)
from fedclade.scheduling import find_policy, find_rule
from fedclade.study.contenders import contenders, populations

CONFIG = "compare.toml"
MORE_ROUNDS = 100  # times run.rounds: what a run may make of a time budget, so that seconds alone end it


@dataclass(frozen=True)
class Job:
    """One run of a comparison."""

    contender: str
    devices: int
    seed: int
    config: Config
    folder: Path

    @property
    def finished(self) -> bool:
        """Whether its run came to its end."""
        return (self.folder / "config.toml").is_file() and Run(self.folder).finished

    @property
    def work(self) -> int:
        """How long it takes, compared with others: a round of more devices takes longer."""
        return self.config.run.rounds * self.devices

    def __str__(self) -> str:
        return f"{self.contender}, {self.devices} devices, seed {self.seed}"


def plan_jobs(config: Config, out: Path) -> list[Job]:
    """All runs, seed by seed, so that whatever is stopped early has compared like with like."""
    compare = config.compare
    base = {name: dict(section) for name, section in config if name != "compare"}
    jobs = []
    for seed in range(config.run.seed, config.run.seed + compare.seeds):
        for devices in compare.devices or (config.population.devices,):
            for name, fields in contenders(config).items():
                always = [f"population.devices={devices}", f"run.seed={seed}"]
                if compare.time_budget_seconds is not None:
                    always.append(f"run.time_budget_seconds={compare.time_budget_seconds}")
                    always.append(f"run.rounds={config.run.rounds * MORE_ROUNDS}")
                if config.training.workers is None:
                    always.append("training.workers=1")  # the cores are kept busy by runs beside each other
                made = configuration.load(base, [*always, *fields])
                find_policy(made.scheduling.policy)
                find_rule(made.scheduling.allocation)
                folder = out / "runs" / f"K{devices}" / re.sub(r"[^\w.+-]", "-", name) / f"seed-{seed}"
                jobs.append(Job(name, devices, seed, made, folder))
    return jobs


def prepare(config: Config, out: Path) -> list[Job]:
    """Plan, and make or recognise the directories; runs made with other settings are refused.

    Every population has a comparison of its own, in a folder of its name.
    """
    several = populations(config)
    if not several:
        return _prepared(config, out)
    if _full(out) and not is_marked(out, "comparison"):
        raise UserError(f"{out} exists and is no comparison: choose another --out")
    planned = [_prepared(made, out / name) for name, made in several.items()]
    write_mark(out, "comparison")
    write_beside(out / CONFIG, sealed_text(configuration.to_toml(config)))
    longest = max(len(jobs) for jobs in planned)  # taken in turn, so that whatever is stopped early has some of all
    return [jobs[i] for i in range(longest) for jobs in planned if i < len(jobs)]


def _full(out: Path) -> bool:
    return out.exists() and (not out.is_dir() or any(not entry.name.startswith(".") for entry in out.iterdir()))


def _prepared(config: Config, out: Path) -> list[Job]:
    jobs = plan_jobs(config, out)
    for job in jobs:
        find_metrics(job.config.run.metrics)
    if _full(out) and not is_comparison(out):
        raise UserError(f"{out} exists and is no comparison: choose another --out")
    for job in jobs:
        if (job.folder / "config.toml").is_file() and (different := differences(job.config, Run(job.folder).config)):
            field, (mine, theirs) = next(iter(different.items()))
            raise UserError(f"{job.folder}: was made with {field} = {theirs!r}, not {mine!r}: choose another --out")
    with cannot("be made", out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        write_mark(out, "comparison")
        write_beside(out / CONFIG, sealed_text(configuration.to_toml(config)))
        for job in jobs:
            _make(job)
    return jobs


def _make(job: Job) -> None:
    """The directory of a run that is still to be begun."""
    with cannot("be made", job.folder):
        job.folder.mkdir(parents=True, exist_ok=True)
    if not (job.folder / "config.toml").is_file():
        write_mark(job.folder, "run")
        write_beside(job.folder / "config.toml", sealed_text(configuration.to_toml(job.config)))


def is_comparison(out: Path) -> bool:
    """Whether fedclade made this directory for a comparison: it is marked, or of the time before there were marks."""
    before = (out / CONFIG).is_file() and any(out.glob("runs/K*/*/seed-*/config.toml"))
    return is_marked(out, "comparison") or before


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Nobody else writes into this comparison meanwhile."""
    with contextlib.closing(take_lock(out, "comparison")):
        remove_leftovers(out)
        yield


def read_comparisons(out: Path) -> dict[str, tuple[Config, list[Job], Path]]:
    """The config, the runs and the folder of each comparison in a directory: one, or one for each population."""
    check_seal(out / CONFIG)
    config = configuration.load(str(out / CONFIG))
    several = {name: (made, out / name) for name, made in populations(config).items()}
    return {
        name: (made, plan_jobs(made, folder), folder)
        for name, (made, folder) in (several or {out.resolve().name: (config, out)}).items()
    }
