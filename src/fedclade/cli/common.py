"""What several commands share: options, the console, the tables of a run, signals."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from fedclade.core.errors import UserError

Source = Annotated[str, typer.Argument(metavar="[PRESET|FILE.toml]", help="a preset's name or a TOML file")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="change one field; may be repeated")
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


def print_run(console: Console, folder: Path, with_problem: bool = False, details: bool = False) -> None:
    """Print the closing tables of a run, with the paper's problem P1 if wanted, and where the run is."""
    from fedclade.report import terminal
    from fedclade.runs import Run

    with undisturbed(folder):
        parts = list(terminal.show_run(Run(folder), with_problem, details))  # of a damaged run, not half is printed
    for part in parts:
        console.print(part)
    console.print(f"Run         {folder}", soft_wrap=True)
    if (folder / "report.html").is_file():
        console.print(f"Report      {folder / 'report.html'} (open it in a browser)", soft_wrap=True)


@contextlib.contextmanager
def undisturbed(folder: Path) -> Iterator[None]:
    """What fails as another process begins a run anew, while this one reads it, is told as that."""
    before = _made(folder)
    try:
        yield
    except Exception as error:
        if not isinstance(error, UserError) and _made(folder) != before:
            raise UserError(f"{folder}: another process began it anew while it was read: try again") from error
        raise


def _made(folder: Path) -> tuple[int, int] | None:
    """Which file the run's config is, and of when."""
    try:
        found = (folder / "config.toml").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def console(quiet: bool = False) -> Console:
    """Tables are never folded for want of width where nobody's screen sets one."""
    width = None if sys.stdout.isatty() else 200
    return Console(highlight=False, quiet=quiet, width=width)


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP ask the run to stop at the next device; a second one ends it at once.

    A closed terminal sends SIGHUP; where that is ignored already, as under nohup, it stays so.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.number = 0

    def received(self) -> bool:
        return self.number != 0

    def __enter__(self) -> None:
        heard = [n for n in self.NUMBERS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._take) for number in heard}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _: FrameType | None) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
