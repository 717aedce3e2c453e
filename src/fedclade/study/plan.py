"""Which runs a study is made of, and the directory that holds them."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fedclade import config as configuration
from fedclade.config import CompareConfig, Config
from fedclade.core.errors import UserError, cannot
from fedclade.metrics.registry import find_metrics
from fedclade.runs import Run, check_seal, differences, is_marked, sealed_text, take_lock, write_beside, write_mark
from fedclade.scheduling import find_policy, find_rule

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

    def __str__(self) -> str:
        return f"{self.contender}, {self.devices} devices, seed {self.seed}"


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


def plan_jobs(config: Config, out: Path) -> list[Job]:
    """All runs, seed by seed, so that whatever is stopped early has compared like with like."""
    compare = config.compare
    base = {name: dict(section) for name, section in config if name != "compare"}
    jobs = []
    for seed in range(config.run.seed, config.run.seed + compare.seeds):
        for devices in compare.devices or (config.population.devices,):
            for name, fields in contenders(compare).items():
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
    return _on_equal_data(jobs)


def _on_equal_data(jobs: list[Job]) -> list[Job]:
    """Where one contender holds images out to try splits on, all do; or else it would train on less than the others."""
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
    jobs = plan_jobs(config, out)
    for job in jobs:
        find_metrics(job.config.run.metrics)
    full = out.exists() and (not out.is_dir() or any(not entry.name.startswith(".") for entry in out.iterdir()))
    if full and not is_comparison(out):
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
        yield


def read_comparison(out: Path) -> tuple[Config, list[Job]]:
    """The config and the runs of a comparison's directory."""
    check_seal(out / CONFIG)
    config = configuration.load(str(out / CONFIG))
    return config, plan_jobs(config, out)
