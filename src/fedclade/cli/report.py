"""``fedclade report``."""

from pathlib import Path
from typing import Annotated

import typer

from fedclade.cli.common import undisturbed


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a run or a comparison, finished or going on")],
    single_file: Annotated[
        bool, typer.Option("--single-file", help="with plotly inside (5 MB): a page that can be sent to somebody")
    ] = False,
) -> None:
    """Write DIR/report.html: one page, to be opened in any browser, that shows what happened and why."""
    from fedclade import study as comparisons
    from fedclade.report import comparison, page
    from fedclade.runs import Run

    if (folder / comparisons.CONFIG).is_file():
        for written in comparison.write_study(folder, single_file).pages:
            print(written)
    else:
        with undisturbed(folder):
            print(page.write_run_page(Run(folder), single_file))
