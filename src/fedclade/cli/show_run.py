"""``fedclade show-run``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedclade.cli.common import AsJson, console, print_run


def show_run(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    with_problem: Annotated[
        bool, typer.Option("--problem", help="and whether the paper's constraints P1 hold")
    ] = False,
    details: Annotated[bool, typer.Option("--details", help="every cluster, and every device by its number")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what came of a finished run: the answer first, then its tables."""
    from fedclade.runs import Run

    if as_json:
        print(json.dumps(Run(folder).summary, indent=1))
    else:
        print_run(console(), folder, with_problem, details)
