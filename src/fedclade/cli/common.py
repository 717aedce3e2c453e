"""What several commands share: options, the console, the tables of a run, signals."""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

Source = Annotated[str, typer.Argument(metavar="[PRESET|FILE.toml]", help="a preset's name or a TOML file")]
Overrides = Annotated[
    list[str], typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="change one field; may be repeated")
]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]


def print_run(console: Console, folder: Path, with_problem: bool = False, details: bool = False) -> None:
    """Print the closing tables of a run, with the paper's problem P1 if wanted, and where the run is."""
    from fedclade.report import terminal
    from fedclade.runs import Run

    parts = list(terminal.show_run(Run(folder), with_problem, details))  # of a damaged run, not half is printed
    for part in parts:
        console.print(part)
    console.print(f"Run         {folder}", soft_wrap=True)
    if (folder / "report.html").is_file():
        console.print(f"Report      {folder / 'report.html'} (open it in a browser)", soft_wrap=True)


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
