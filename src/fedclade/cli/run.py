"""``fedclade run``."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedclade import config as configuration
from fedclade.cli.common import AsJson, Overrides, Signals, console, print_run
from fedclade.core.errors import Interrupted, UserError

if TYPE_CHECKING:
    from fedclade.simulation import OnRound, Progress


def run(
    source: Annotated[
        str | None, typer.Argument(metavar="[PRESET|FILE.toml]", help="a preset's name or a TOML file")
    ] = None,
    overrides: Overrides = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="the run's directory [default: runs/<name>]")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="go on with an interrupted run")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace the run in --out")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print the run's path only")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="write DIR/tensorboard too")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a run, with progress; Ctrl-C checkpoints it, --resume goes on."""
    if resume is not None and (out is not None or overwrite):
        raise UserError("--resume goes on in its own directory: leave out --out and --overwrite")
    if resume is None:
        configuration.load(source or "quickstart", overrides)  # a typo should not wait for torch

    from fedclade.report import terminal
    from fedclade.runs import REAL_DEVICES, free_folder, read_config
    from fedclade.simulation import Experiment

    signals = Signals()
    if resume is not None:
        read_config(resume)  # says so if there is no run
        if (resume / REAL_DEVICES).is_file():
            raise UserError(f"{resume}: a run of real devices: go on with flwr run … -c 'resume=\"{resume}\"'")
        source = source or str(resume / "config.toml")
    experiment = Experiment(source or "quickstart", overrides, stop_requested=signals.received)
    folder = resume or out or free_folder(Path("runs"), experiment.name)
    screen = console(quiet or as_json)
    if not (quiet or as_json):
        for warning in experiment.plan().warnings:
            screen.print(f"Warning: {warning}.", style="yellow", soft_wrap=True)
    try:
        with (
            signals,
            terminal.ProgressDisplay(screen, experiment.config.run.rounds) as display,
            _tensorboard(folder if tensorboard else None) as board,
        ):

            def on_round(progress: "Progress") -> None:
                display(progress)
                board(progress)

            if resume is not None:
                finished = experiment.resume(folder, on_round=on_round)
            else:
                finished = experiment.run(folder, overwrite=overwrite, on_round=on_round)
    except Interrupted:
        print(
            f"Stopped; all finished rounds are kept. Go on with: fedclade run --resume {folder}",
            file=sys.stderr,
        )
        raise typer.Exit(128 + signals.number) from None
    if as_json:
        print(json.dumps({"run": str(folder), **finished.summary}, indent=1))
    elif quiet:
        print(folder)
    else:
        print_run(screen, folder)


@contextlib.contextmanager
def _tensorboard(folder: Path | None) -> "Iterator[OnRound]":
    """What is to be told of each round for TensorBoard; nothing, where it was not asked for."""
    if folder is None:
        yield lambda progress: None
        return
    from fedclade.report.tensorboard import TensorBoard

    with TensorBoard(folder) as board:
        yield board
