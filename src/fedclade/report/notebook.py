"""Progress for those who call fedclade from Python: a line on their terminal, a bar in their notebook."""

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console

from fedclade.core.state import State
from fedclade.report.listener import Listener, Progress
from fedclade.report.terminal.progress import ProgressDisplay, facts_of, time_left


class NotebookBar(Listener):
    """A bar below the notebook's cell, renewed after every round; it stays when the run has ended."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._handle: Any = None

    def began(self, state: State) -> None:
        """Show how far the run is when it begins or goes on."""
        from IPython.display import HTML, display

        self._handle = display(HTML(self._html(state.round, [])), display_id=True)

    def round_ended(self, progress: Progress) -> None:
        """Renew the bar."""
        from IPython.display import HTML

        if self._handle is not None:
            done = progress.record.round
            self._handle.update(HTML(self._html(done, [time_left(progress), *facts_of(progress)])))

    def _html(self, done: int, facts: list[str]) -> str:
        told = " · ".join((f"round {done}/{self._rounds}", *facts))
        return f'<progress max="{self._rounds}" value="{done}"></progress> {escape(told)}'


@contextmanager
def shown_progress(rounds: int, wanted: bool = True) -> Iterator[list[Listener]]:
    """Who shows a run's progress to whoever called it: a notebook, a terminal (on stderr), or else nobody."""
    console = Console(stderr=True)
    if wanted and console.is_jupyter:
        yield [NotebookBar(rounds)]
    elif wanted and console.is_terminal:
        with ProgressDisplay(console, rounds) as display:
            yield [display]
    else:
        yield []
