"""``fedclade export``."""

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedclade.core.errors import UserError


class Format(StrEnum):
    """What a model is written as."""

    safetensors = "safetensors"
    torch = "torch"
    onnx = "onnx"


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN")],
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="whose model; or 'best/NAME', 'conventional' [default: the only cluster]"),
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="weights with all that is needed to use them; a program for torch.export.load; or for ONNX runtimes",
        ),
    ] = Format.safetensors,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="[default: NAME.safetensors, NAME.pt2 or NAME.onnx]")
    ] = None,
) -> None:
    """Write a cluster's model to a file of its own, to be used without fedclade."""
    from fedclade.report.opened import open_run

    run = open_run(folder)
    name = cluster or _only(folder, [leaf.name for leaf in run.leaves()])
    source = run.model_file(name)
    suffix = {Format.torch: "pt2"}.get(format_, format_.value)
    path = out or Path(f"{name.replace('/', '-')}.{suffix}")
    try:
        if format_ is Format.safetensors:
            shutil.copyfile(source, path)
        else:
            from fedclade.models._trained import save_onnx, save_program

            (save_program if format_ is Format.torch else save_onnx)(run.module(name), path)
    except OSError as error:
        raise UserError(f"--out {path}: cannot be written: {error.strerror}") from error
    print(path)


def _only(folder: Path, leaves: list[str]) -> str:
    if len(leaves) != 1:
        raise UserError(f"--cluster: {folder} has several; choose one of: {', '.join(leaves)}")
    return leaves[0]
