"""``fedclade bound``."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedclade.cli.common import AsJson, Overrides, Source, console
from fedclade.core.errors import UserError


def bound(
    source: Source = "bound-digits",
    overrides: Overrides = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="the folder to write to [default: bounds/<name>]")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold the convergence bounds against a run of the strongly convex case."""
    from fedclade.report import convergence
    from fedclade.runs import free_folder
    from fedclade.theory.experiment import check_bounds

    if out is not None and (out.is_file() or (out / "bound.json").exists()):
        raise UserError(f"--out {out}: is a file or already holds bound.json; choose another folder")
    with Console(stderr=True, quiet=as_json).status("Training, and solving for every optimum …"):
        report = check_bounds(source, overrides)
    folder = out or free_folder(Path("bounds"), report.name)
    folder.mkdir(parents=True, exist_ok=True)
    written = json.dumps(convergence.bounds_as_json(report), indent=1)
    (folder / "bound.json").write_text(written + "\n", "utf-8")
    drawn = convergence.draw_bounds(report, folder / "bound.png")
    if as_json:
        print(written)
        return
    screen = console()
    for part in convergence.show_bounds(report):
        screen.print(part)
    figure = "bound.png" if drawn else "no figure: pip install 'fedclade[figures]' for matplotlib"
    screen.print(f"Written     {folder}: bound.json, {figure}", soft_wrap=True, markup=False)
