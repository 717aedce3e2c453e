"""``fedclade run``."""

import contextlib
import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedclade import config as configuration
from fedclade.cli.common import AsJson, Overrides, Signals, console, print_run
from fedclade.cli.progress import failures_told, say, say_round
from fedclade.core.errors import Interrupted, UserError

if TYPE_CHECKING:
    from fedclade.report.listener import Listener
    from fedclade.runs import Run
    from fedclade.simulation import Experiment


class Form(StrEnum):
    """How a run's progress is told."""

    text = "text"
    json = "json"


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
    mlflow: Annotated[bool, typer.Option("--mlflow", help="log to MLflow, too")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="log to Weights & Biases, too")] = False,
    progress: Annotated[Form, typer.Option(help="for a person, or one JSON object a line for a program")] = Form.text,
    as_json: AsJson = False,
) -> None:
    """Simulate a run, with progress; Ctrl-C checkpoints it, --resume goes on."""
    by_line, silent = progress is Form.json, quiet or as_json
    signals = Signals()
    try:
        with failures_told() if by_line else contextlib.nullcontext():
            if resume is not None and (out is not None or overwrite):
                raise UserError("--resume goes on in its own directory: leave out --out and --overwrite")
            if by_line and silent:
                raise UserError("--progress json ends with the summary: leave out --quiet and --json")
            experiment, folder = _experiment(source, overrides, out, resume, signals)
            loggers = {"TensorBoard": tensorboard, "Mlflow": mlflow, "Wandb": wandb}
            wanted = [name for name, is_wanted in loggers.items() if is_wanted]
            telling = _telling(experiment, folder, progress, silent, wanted)
            finished = _simulate(experiment, folder, resume is not None, overwrite, signals, telling)
    except Interrupted:
        raise typer.Exit(128 + signals.number) from None
    if by_line:
        say("ended", run=str(folder), **finished.summary)
    elif as_json:
        print(json.dumps({"run": str(folder), **finished.summary}, indent=1))
    elif quiet:
        print(folder)
    else:
        print_run(console(), folder)


def _experiment(
    source: str | None, overrides: list[str], out: Path | None, resume: Path | None, signals: Signals
) -> "tuple[Experiment, Path]":
    """What is to be run, and the directory."""
    if resume is None:
        configuration.load(source or "quickstart", overrides)  # a typo should not wait for torch

    from fedclade.runs import REAL_DEVICES, free_folder, read_config
    from fedclade.simulation import Experiment

    if resume is not None:
        read_config(resume)  # says so if there is no run
        if (resume / REAL_DEVICES).is_file():
            raise UserError(f"{resume}: a run of real devices: go on with flwr run … -c 'resume=\"{resume}\"'")
        source = source or str(resume / "config.toml")
    experiment = Experiment(source or "quickstart", overrides, stop_requested=signals.received)
    return experiment, resume or out or free_folder(Path("runs"), experiment.name)


@contextlib.contextmanager
def _telling(
    experiment: "Experiment", folder: Path, form: Form, silent: bool, wanted: list[str]
) -> "Iterator[list[Listener]]":
    """Who listens to the run: a person or a program, and the loggers that are wanted."""
    from fedclade.report import terminal
    from fedclade.report.listener import Calls

    config, listeners = experiment.config, list["Listener"]()
    with contextlib.ExitStack() as stack:
        if form is Form.json:
            say("began", run=str(folder), rounds=config.run.rounds, seed=config.run.seed)
            listeners.append(Calls(say_round))
        else:
            screen = console(silent)
            for warning in () if silent else experiment.plan().warnings:
                screen.print(f"Warning: {warning}.", style="yellow", soft_wrap=True)
            listeners.append(stack.enter_context(terminal.ProgressDisplay(screen, config.run.rounds)))
        if wanted:
            from fedclade.report import loggers

            listeners += [stack.enter_context(getattr(loggers, name)(folder)) for name in wanted]
        yield listeners


def _simulate(
    experiment: "Experiment",
    folder: Path,
    resuming: bool,
    overwrite: bool,
    signals: Signals,
    telling: "AbstractContextManager[list[Listener]]",
) -> "Run":
    """Run to the end, or until a signal comes; then say how to go on."""
    try:
        with signals, telling as listeners:
            if resuming:
                return experiment.resume(folder, listeners=listeners)
            return experiment.run(folder, overwrite=overwrite, listeners=listeners)
    except Interrupted:
        print(f"Stopped; all finished rounds are kept. Go on with: fedclade run --resume {folder}", file=sys.stderr)
        raise
