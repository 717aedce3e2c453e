"""``fedclade compare``."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedclade import config as configuration
from fedclade.cli.common import Overrides, Signals, Source, console
from fedclade.core.errors import Interrupted, UserError


def compare(
    source: Source = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    policies: Annotated[str | None, typer.Option(help="policies, by comma [default: compare.policies]")] = None,
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
) -> None:
    """Run every policy × number of devices × seed, and set them against each other; start it again to go on."""
    from fedclade import study as comparisons

    if trials is not None:
        raise UserError("--trials is called --seeds now")
    told = [*overrides]
    for field, value in (("policies", policies), ("devices", devices)):
        if value is not None:
            words = [word.strip() for word in value.split(",") if word.strip()]
            told.append(f"compare.{field}=[{', '.join(map(json.dumps, words) if field == 'policies' else words)}]")
    told += [f"compare.seeds={seeds}"] if seeds else []
    told += [f"compare.time_budget_seconds={time_budget}"] if time_budget is not None else []
    told += [f'compare.against="{against}"'] if against else []
    config = configuration.load(source, told)
    budget = config.compare.time_budget_seconds
    name = Path(source).stem if budget is None else f"{Path(source).stem}-{budget:g}s"
    folder = out or Path("comparisons") / name
    jobs = comparisons.prepare(config, folder)

    from fedclade.report import terminal

    signals, screen = Signals(), console()
    try:
        with comparisons.locked(folder), signals, terminal.ComparisonDisplay(screen, jobs) as display:
            for job in jobs:
                if job.finished:
                    display.kept(job)
            failed = comparisons.carry_out(jobs, processes or comparisons.cores(), display, signals.received)
    except Interrupted:
        print("Stopped; all finished rounds are kept. Go on with the same command.", file=sys.stderr)
        raise typer.Exit(128 + signals.number) from None
    for job, failure in failed.items():
        print(f"fedclade: failed: {job}: {failure}; more in {job.folder / 'failure.txt'}", file=sys.stderr)
    _print_comparison(screen, folder)
    if failed:
        raise typer.Exit(1)


def _print_comparison(screen: Console, folder: Path) -> None:
    from fedclade import study as comparisons
    from fedclade.report import comparison, terminal

    config, jobs = comparisons.read_comparison(folder)
    found = comparisons.collect(config, jobs)
    page = comparison.write_comparison(found, jobs, folder)
    for part in terminal.show_comparison(found):
        screen.print(part)
    screen.print(f"Tables      {folder / 'tables'}\nFigures     {folder / 'figures'}", soft_wrap=True)
    screen.print(f"Report      {page} (open it in a browser)", soft_wrap=True)
