"""The same in a terminal: a line for a run, a table for a comparison; without a terminal, a line at every change."""

import time
from collections.abc import Iterator
from contextlib import nullcontext

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from fedclade.core.task import SCORES
from fedclade.core.units import duration
from fedclade.report.terminal.progress import ProgressLine
from fedclade.report.watch.look import Look, RunSeen, Watch


def follow(watch: Watch, console: Console, every_seconds: float) -> Look:
    """Show every look until all runs are over; gives the last one."""
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    before: Look | None = None
    with live or nullcontext():
        while True:
            look = watch.look()
            for line in _news(before, look, plain=live is None):
                console.print(line, soft_wrap=True, highlight=False)
            if live:
                live.update(_shown(look), refresh=True)
            if look.over:
                return look
            before = look
            time.sleep(every_seconds)


def _news(before: Look | None, now: Look, plain: bool) -> Iterator[str]:
    """What is new since the last look: events of a run; where ``plain``, also how far each run is."""
    for i, new in enumerate(now.runs):
        old = before.runs[i] if before else None
        if now.comparison:
            if plain and (old is None or new.state != old.state):
                yield f"{new.name}, {new.devices} devices, seed {new.seed}: {new.state}, {_facts(new)}"
        elif new != old:
            yield from new.events[len(old.events) if old else 0 :]
            if plain:
                yield "  ".join((f"round {new.done}/{new.rounds}", _facts(new), _left(now))).rstrip()


def _shown(look: Look) -> RenderableType:
    if not look.comparison:
        run = look.runs[0]
        line = ProgressLine("round", 1.0)
        line.done, line.count, line.left = run.share, f"{run.done}/{run.rounds}", _left(look)
        line.facts = [_facts(run), f"simulated {duration(run.seconds)}"]
        return line
    over = look.count("finished")
    title = f"{over} of {len(look.runs)} runs are finished. {_left(look)}".strip()
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("policy", no_wrap=True)
    for name in ("devices", "seed", "", "round", "mean", "worst"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for run in look.runs:
        scores = (SCORES[run.score].text(run.last(name)) for name in ("mean", "worst"))
        bar, count = ProgressBar(1.0, run.share, width=10), f"{run.done}/{run.rounds}"
        table.add_row(run.name, str(run.devices), str(run.seed), bar, count, *scores, run.state)
    return table


def _left(look: Look) -> str:
    return "" if not look.left_seconds else f"about {duration(look.left_seconds)} left"


def _facts(run: RunSeen) -> str:
    clusters = "1 cluster" if run.clusters == 1 else f"{run.clusters} clusters"
    score = SCORES[run.score]
    return f"{score.title} {score.text(run.last('mean'))}, worst {score.text(run.last('worst'))}, {clusters}"
