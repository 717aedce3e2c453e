"""``fedclade figures``."""

from pathlib import Path
from typing import Annotated

import typer

from fedclade.cli.common import undisturbed
from fedclade.core.errors import UserError


def figures(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="a finished run")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="where to put them [default: RUN/figures]")] = None,
    round_: Annotated[int, typer.Option("--round", min=1, help="whose timeline to draw")] = 1,
) -> None:
    """Write a run's main charts as PDF and PNG, sized for a paper's column and for a slide."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UserError("figures: needs matplotlib: pip install 'fedclade[figures]'")
    from fedclade.report.run_figures import write_run_figures
    from fedclade.runs import Run

    with undisturbed(folder):
        written = write_run_figures(Run(folder), out or folder / "figures", round_)
    print(*written, sep="\n")
