"""``fedclade assign``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedclade.cli.common import AsJson, console
from fedclade.core.errors import UserError


def assign(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="FILE", help="data of a device the run never had: an .npz with x and y, or a .csv"
        ),
    ] = None,
    device: Annotated[int | None, typer.Option("--device", metavar="N", help="or a device of the run's own")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="copy the model there")] = None,
    as_json: AsJson = False,
) -> None:
    """Say which cluster fits a device's data, why, and where its model is."""
    import shutil
    from dataclasses import asdict

    from fedclade.report import terminal
    from fedclade.runs.assign import place as find_place

    if (data is None) == (device is None):
        raise UserError("assign: needs either --data FILE or --device N")
    found = find_place(folder, data=data, device=device)
    if out is not None:
        try:
            shutil.copyfile(found.model, out)
        except OSError as error:
            raise UserError(f"--out {out}: cannot be written: {error.strerror}") from error
    if as_json:
        print(json.dumps(asdict(found) | {"fits": found.fits, "model": str(found.model)}, indent=1))
        return
    screen = console()
    for line in terminal.show_placement(found):
        screen.print(line, soft_wrap=True)
