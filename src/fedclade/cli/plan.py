"""``fedclade plan``."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedclade.cli.common import AsJson, Overrides, Source, console
from fedclade.core.errors import UserError


def plan(
    source: Source = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    round_: Annotated[int, typer.Option("--round", min=1, help="whose channel draws to use")] = 1,
    devices: Annotated[
        int | None, typer.Option(min=1, help="plan for so many, each with as much data as one of the preset's")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="and every device, order and allocation, and P1 line by line")
    ] = False,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="write who sends when, how and over which link")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="so many rounds, from --round on, for --csv")] = 1,
    as_json: AsJson = False,
) -> None:
    """Plan one round without training anything: how long it lasts, who uploads when, and what would be better."""
    from fedclade.report import terminal
    from fedclade.simulation import Experiment

    if rounds > 1 and csv_file is None:
        raise UserError(f"--rounds {rounds}: is for --csv FILE, which has all of them; --round N shows another round")
    experiment = Experiment(source, overrides)
    planned = experiment.plan(round_, devices=devices, compare=True)
    if csv_file is not None:
        later = [experiment.plan(r, devices=devices) for r in range(round_ + 1, round_ + rounds)]
        _write_csv(csv_file, [row for each in [planned, *later] for row in each.rows()])
    if as_json:
        print(json.dumps(terminal.plan_as_json(planned), indent=1))
        return
    screen = console()
    for part in terminal.show_plan(planned, round_, experiment.config.scheduling.policy):
        screen.print(part)
    for part in terminal.show_plan_details(planned) if details else ():
        screen.print(part)


def _write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """One line for each row; what does not exist is an empty cell."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise UserError(f"--csv {path}: cannot be written: {error.strerror}") from error
