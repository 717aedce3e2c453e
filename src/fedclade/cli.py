"""The commands. Thin: they parse, call, and print; a user's mistake is one line on stderr and exit code 2."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedclade import __version__
from fedclade import config as configuration
from fedclade.core.errors import Interrupted, UserError

if TYPE_CHECKING:
    from fedclade.simulation import OnRound, Progress

app = typer.Typer(
    help="Fair clustered federated learning at the wireless edge: plan, simulate, compare.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

Source = Annotated[str, typer.Argument(metavar="[PRESET|FILE.toml]", help="a preset's name or a TOML file")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="change one field; may be repeated")
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


def main() -> None:
    """The entry point: user errors become one line and exit code 2."""
    words = sys.argv[1:] or ["--help"]
    try:
        sys.exit(typer.main.get_command(app).main(words, "fedclade", standalone_mode=False) or 0)
    except UserError as error:
        print(f"fedclade: {error}", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what typer says of a word it does not know
            raise
        print(f"fedclade: {error.format_message()} (see: fedclade --help)", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedclade {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command()
def presets() -> None:
    """List the packaged presets."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, about in configuration.presets().items():
        table.add_row(name, about)
    _console().print(table)


@app.command()
def show(source: Source = "quickstart", overrides: Overrides = []) -> None:  # noqa: B006 - typer's way
    """Print a preset or file whole, every field with its meaning."""
    print(configuration.to_toml(configuration.load(source, overrides)), end="")


@app.command()
def plan(
    source: Source = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    round_: Annotated[int, typer.Option("--round", min=1, help="whose channel draws to use")] = 1,
    devices: Annotated[
        int | None, typer.Option(min=1, help="plan for so many, each with as much data as one of the preset's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan one round without training anything: who uploads when, under every order and allocation."""
    from fedclade.report import terminal
    from fedclade.simulation import Experiment

    experiment = Experiment(source, overrides)
    planned = experiment.plan(round_, devices=devices, compare=True)
    if as_json:
        print(json.dumps(terminal.plan_as_json(planned), indent=1))
        return
    console = _console()
    for part in terminal.show_plan(planned, round_, experiment.config.scheduling.policy):
        console.print(part)


@app.command()
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

    signals = _Signals()
    if resume is not None:
        read_config(resume)  # says so if there is no run
        if (resume / REAL_DEVICES).is_file():
            raise UserError(f"{resume}: a run of real devices: go on with flwr run … -c 'resume=\"{resume}\"'")
        source = source or str(resume / "config.toml")
    experiment = Experiment(source or "quickstart", overrides, stop_requested=signals.received)
    folder = resume or out or free_folder(Path("runs"), experiment.name)
    console = _console(quiet or as_json)
    if not (quiet or as_json):
        for warning in experiment.plan().warnings:
            console.print(f"Warning: {warning}.", style="yellow", soft_wrap=True)
    try:
        with (
            signals,
            terminal.ProgressDisplay(console, experiment.config.run.rounds) as display,
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
        _print_run(console, folder)


@contextlib.contextmanager
def _tensorboard(folder: Path | None) -> "Iterator[OnRound]":
    """What is to be told of each round for TensorBoard; nothing, where it was not asked for."""
    if folder is None:
        yield lambda progress: None
        return
    from fedclade.report.tensorboard import TensorBoard

    with TensorBoard(folder) as board:
        yield board


@app.command("show-run")
def show_run(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    with_problem: Annotated[
        bool, typer.Option("--problem", help="and whether the paper's constraints P1 hold")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the closing tables of a finished run again."""
    from fedclade.runs import Run

    if as_json:
        print(json.dumps(Run(folder).summary, indent=1))
    else:
        _print_run(_console(), folder, with_problem)


@app.command()
def place(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE.npz", help="images and labels of a device the run never had")
    ] = None,
    device: Annotated[int | None, typer.Option("--device", metavar="N", help="or a device of the run's own")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="copy the model there")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the cluster that fits a device's data, with the reasons, and its model."""
    import shutil
    from dataclasses import asdict

    from fedclade.report import terminal
    from fedclade.runs.assign import place as find_place

    if (data is None) == (device is None):
        raise UserError("place: needs either --data FILE.npz or --device N")
    found = find_place(folder, data=data, device=device)
    if out is not None:
        try:
            shutil.copyfile(found.model, out)
        except OSError as error:
            raise UserError(f"--out {out}: cannot be written: {error.strerror}") from error
    if as_json:
        print(json.dumps(asdict(found) | {"model": str(found.model)}, indent=1))
        return
    console = _console()
    for line in terminal.show_placement(found):
        console.print(line, soft_wrap=True)


@app.command()
def compare(
    source: Source = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    policies: Annotated[str | None, typer.Option(help="policies, by comma [default: compare.policies]")] = None,
    devices: Annotated[str | None, typer.Option(help="numbers of devices, by comma [default: compare.devices]")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="repetitions [default: compare.trials]")] = None,
    against: Annotated[str | None, typer.Option(help="whom the others are compared with")] = None,
    out: Annotated[Path | None, typer.Option(help="the directory [default: comparisons/<name>]")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="runs beside each other [default: the cores]")] = None,
) -> None:
    """Run every policy × number of devices × trial, and set them against each other; start it again to go on."""
    from fedclade import study as comparisons

    told = [*overrides]
    for field, value in (("policies", policies), ("devices", devices)):
        if value is not None:
            words = [word.strip() for word in value.split(",") if word.strip()]
            told.append(f"compare.{field}=[{', '.join(map(json.dumps, words) if field == 'policies' else words)}]")
    told += [f"compare.trials={trials}"] if trials else []
    told += [f'compare.against="{against}"'] if against else []
    config = configuration.load(source, told)
    folder = out or Path("comparisons") / Path(source).stem
    jobs = comparisons.prepare(config, folder)

    from fedclade.report import terminal

    signals, console = _Signals(), _console()
    try:
        with signals, terminal.ComparisonDisplay(console, jobs) as display:
            for job in jobs:
                if job.finished:
                    display.kept(job)
            failed = comparisons.carry_out(jobs, processes or comparisons.cores(), display, signals.received)
    except Interrupted:
        print("Stopped; all finished rounds are kept. Go on with the same command.", file=sys.stderr)
        raise typer.Exit(128 + signals.number) from None
    for job, message in failed.items():
        print(f"fedclade: failed: {job}: {message}; more in {job.folder / 'failure.txt'}", file=sys.stderr)
    _print_comparison(console, folder)
    if failed:
        raise typer.Exit(1)


def _print_comparison(console: Console, folder: Path) -> None:
    from fedclade import study as comparisons
    from fedclade.report import comparison, terminal

    config, jobs = comparisons.read_comparison(folder)
    found = comparisons.collect(config, jobs)
    page = comparison.write_comparison(found, jobs, folder)
    for part in terminal.show_comparison(found):
        console.print(part)
    console.print(f"Tables      {folder / 'tables'}\nFigures     {folder / 'figures'}", soft_wrap=True)
    console.print(f"Report      {page} (open it in a browser)", soft_wrap=True)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a run or a comparison, finished or going on")],
) -> None:
    """Write DIR/report.html: one page, to be opened in any browser, that shows what happened and why."""
    from fedclade import study as comparisons
    from fedclade.report import comparison, page
    from fedclade.runs import Run

    if (folder / comparisons.CONFIG).is_file():
        config, jobs = comparisons.read_comparison(folder)
        print(comparison.write_comparison(comparisons.collect(config, jobs), jobs, folder))
    else:
        print(page.write_run_page(Run(folder)))


@app.command()
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
    console = _console()
    for part in convergence.show_bounds(report):
        console.print(part)
    figure = "bound.png" if drawn else "no figure: pip install 'fedclade[figures]' for matplotlib"
    console.print(f"Written     {folder}: bound.json, {figure}", soft_wrap=True, markup=False)


@app.command("deploy-demo")
def deploy_demo(
    nodes: Annotated[int, typer.Option(help="SuperNodes, each with a device's share of the digits")] = 6,
    rounds: Annotated[int, typer.Option(min=1, help="rounds at most")] = 3,
    host: Annotated[
        str, typer.Option(help="where the SuperLink listens; other machines only with --tls")
    ] = "127.0.0.1",
    tls: Annotated[bool, typer.Option("--tls", help="encrypt, and admit only nodes with a registered key")] = False,
    out: Annotated[Path | None, typer.Option(help="the run's directory [default: runs/demo]")] = None,
) -> None:
    """Try a deployment: start Flower's SuperLink and SuperNodes on this machine, run, show, and clean up."""
    if find_spec("flwr") is None:
        raise UserError("deploy-demo needs Flower: pip install 'fedclade[flower]'")
    from fedclade.deployment.flower.demo import run_demo

    console = _console()
    folder = run_demo(nodes, rounds, host, tls, out, lambda line: console.print(line, markup=False, soft_wrap=True))
    _print_run(console, folder)


def _print_run(console: Console, folder: Path, with_problem: bool = False) -> None:
    from fedclade.report import terminal
    from fedclade.runs import Run

    for part in terminal.show_run(Run(folder), with_problem):
        console.print(part)
    console.print(f"Run         {folder}", soft_wrap=True)
    if (folder / "report.html").is_file():
        console.print(f"Report      {folder / 'report.html'} (open it in a browser)", soft_wrap=True)


def _console(quiet: bool = False) -> Console:
    """Tables are never folded for want of width where nobody's screen sets one."""
    width = None if sys.stdout.isatty() else 200
    return Console(highlight=False, quiet=quiet, width=width)


class _Signals:
    """Ctrl-C and SIGTERM ask the run to stop at the next device; a second one ends it at once."""

    def __init__(self) -> None:
        self.number = 0

    def received(self) -> bool:
        return self.number != 0

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _: FrameType | None) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
