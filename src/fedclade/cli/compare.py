"""``fedclade compare``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedclade import config as configuration
from fedclade.cli.common import Overrides, Signals, Source, console
from fedclade.core.errors import Interrupted, UserError
from fedclade.core.threads import cores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedclade.study import Job


def compare(
    source: Source = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    policies: Annotated[str | None, typer.Option(help="policies, by comma [default: compare.policies]")] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="clustering methods, by comma, each with each policy: ifca@3, ifca@k (as many as planted)"),
    ] = None,
    populations: Annotated[
        str | None, typer.Option(help="populations, by comma: rotated-2, rotated-4, permuted-4, disjoint-3, iid, ...")
    ] = None,
    devices: Annotated[str | None, typer.Option(help="numbers of devices, by comma [default: compare.devices]")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="repetitions [default: compare.seeds]")] = None,
    trials: Annotated[str | None, typer.Option(hidden=True)] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="give every run so many simulated seconds, and as many rounds as fit"),
    ] = None,
    against: Annotated[str | None, typer.Option(help="whom the others are compared with")] = None,
    out: Annotated[Path | None, typer.Option(help="the directory [default: comparisons/<name>]")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="runs beside each other [default: the cores]")] = None,
    details: Annotated[bool, typer.Option("--details", help="print all tables")] = False,
) -> None:
    """Run every policy × method × population × number of devices × seed, and set them against each other.

    Start it again to go on.
    """
    from fedclade import study as comparisons

    if trials is not None:
        raise UserError("--trials is called --seeds now")
    told = [*overrides]
    if methods is not None and policies is None:  # the config's own policy, with every method
        policies = configuration.load(source, told).scheduling.policy
    lists = {"policies": policies, "methods": methods, "populations": populations, "devices": devices}
    told += [_listed(field, value) for field, value in lists.items() if value is not None]
    told += [f"compare.seeds={seeds}"] if seeds else []
    told += [f"compare.time_budget_seconds={time_budget}"] if time_budget is not None else []
    told += [f'compare.against="{against}"'] if against else []
    config = configuration.load(source, told)
    budget = config.compare.time_budget_seconds
    name = Path(source).stem if budget is None else f"{Path(source).stem}-{budget:g}s"
    folder = out or Path("comparisons") / name
    jobs = comparisons.prepare(config, folder)
    screen = console()
    failed = _carried_out(folder, jobs, processes or cores(), screen)
    _print_study(screen, folder, details)
    if failed:
        raise typer.Exit(1)


def _listed(field: str, value: str) -> str:
    words = [word.strip() for word in value.split(",") if word.strip()]
    return f"compare.{field}=[{', '.join(words if field == 'devices' else map(json.dumps, words))}]"


def _carried_out(folder: Path, jobs: "Sequence[Job]", processes: int, screen: Console) -> bool:
    """Run what is not finished; whether something failed, which is told."""
    from fedclade import study as comparisons
    from fedclade.report import terminal

    signals = Signals()
    try:
        with comparisons.locked(folder), signals, terminal.ComparisonDisplay(screen, jobs) as display:
            for job in jobs:
                if job.finished:
                    display.kept(job)
            failed = comparisons.carry_out(jobs, processes, display, signals.received)
    except Interrupted:
        print("Stopped; all finished rounds are kept. Go on with the same command.", file=sys.stderr)
        raise typer.Exit(128 + signals.number) from None
    for job, failure in failed.items():
        print(f"fedclade: failed: {job}: {failure}; more in {job.folder / 'failure.txt'}", file=sys.stderr)
    return bool(failed)


def _print_study(screen: Console, folder: Path, details: bool) -> None:
    from fedclade.report import comparison, terminal

    with screen.status("writing tables, figures and the page"):
        found = comparison.write_study(folder)
    if len(found.comparisons) == 1:  # the leaderboard says the same in more columns
        (only,) = found.comparisons.values()
        for part in terminal.show_comparison(only, details):
            screen.print(part)
    several = len(found.comparisons) > 1
    shown = [sheet for sheet in found.leaderboard if details or (several and sheet.overall)]
    for part in terminal.show_leaderboard(shown):
        screen.print(part)
    for page in found.pages:
        screen.print(f"Report      {page} (open it in a browser; tables and figures are beside it)", soft_wrap=True)
    if not details:
        screen.print("Details     all tables: the same command with --details")
    if found.leaderboard:
        screen.print(f"Leaderboard {folder / 'leaderboard.md'}", soft_wrap=True)
