"""Progress of a run: a live line on a terminal, elsewhere a plain line now and then."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from fedclade.core.records import Event, RoundRecord
from fedclade.core.units import duration
from fedclade.metrics.outcome import known
from fedclade.report.listener import Listener, Progress
from fedclade.report.terminal.words import spans

PLAIN_LINES = 25  # progress lines of a run whose output is not a terminal
SHORTEST_BAR, SHORT_BAR, LONGEST_BAR, GAP = 6, 10, 24, 2  # columns


def event_lines(record: RoundRecord) -> Iterator[str]:
    """What a round changed in the tree, and what went wrong, a line each."""
    for event in record.events:
        if line := event_line(record.round, event):
            yield line


def event_line(round_: int, event: Event) -> str:
    """One line about an event of a round; empty for those that are only written down."""
    told = _event_told(event)
    return f"round {round_}: {told}" if told else ""


def _event_told(event: Event) -> str:
    detail = event.detail
    match event.kind:
        case "split":
            sides = " | ".join(spans(part) or "nobody" for part in detail["parts"])
            return f"cluster {event.node} splits into {sides}"
        case "stop" | "reopen":
            return f"cluster {event.node} {'has stopped' if event.kind == 'stop' else 'is open again'}"
        case "moved" | "placed":
            return f"device {event.device} goes from cluster {detail['from']} to {event.node}"
        case "merge":
            return f"clusters {event.node} and {detail['merged']} become one"
        case "drifted":
            return f"the data of device {event.device} change, its group is now {detail['to']}"
        case "joined":
            return f"device {event.device} joined, in cluster {event.node}"
        case "incident":
            return str(detail["what"])
        case "rejected":
            return f"rejected the update of device {event.device}: {detail['reason']}"
    return ""


class ProgressLine:
    """One line of a terminal: a bar, how many of how many are done, and the time left, whatever the width.

    ``facts`` follow in the order of their importance, as many as there is room for. A terminal that is too narrow for
    the rest gets a shorter bar.
    """

    def __init__(self, label: str, total: float) -> None:
        self.label, self.total, self.done = label, total, 0.0
        self.count, self.left = "", ""
        self.facts: Sequence[str] = ()
        self._begun = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = f"{timedelta(seconds=int(time.monotonic() - self._begun))} so far"
        always = [word for word in (self.count, self.left) if word]
        room = options.max_width - sum(cell_len(word) + GAP for word in (self.label, *always))
        first = cell_len(self.facts[0]) + GAP if self.facts else 0  # worth more than a long bar
        bar = max(SHORTEST_BAR, min(LONGEST_BAR, room, max(SHORT_BAR, room - first)))
        room -= bar
        shown = []
        for fact in (*self.facts[:1], elapsed, *self.facts[1:]):
            room -= cell_len(fact) + GAP
            if room < 0:
                break
            shown.append(fact)
        grid = Table.grid(padding=(0, GAP, 0, 0))
        grid.add_row(self.label, ProgressBar(self.total, self.done, width=bar), *always, *shown)
        yield grid


class LiveLine:
    """Shows a progress line on a terminal as long as it is entered; nothing where there is no terminal.

    ``above`` gives what is shown above the line, anew each time.
    """

    def __init__(self, console: Console, line: ProgressLine, above: Callable[[], RenderableType] | None = None) -> None:
        self.line, self._above = line, above
        shown = Live(get_renderable=self._shown, console=console, transient=True)
        self._live = shown if console.is_terminal else None

    def _shown(self) -> RenderableType:
        return self.line if self._above is None else Group(self._above(), self.line)

    def __bool__(self) -> bool:
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def update(self, done: float, count: str, left: str, facts: Sequence[str]) -> None:
        """Show how far it is."""
        self.line.done, self.line.count, self.line.left, self.line.facts = done, count, left, facts
        if self._live:
            self._live.refresh()


class ProgressDisplay(Listener):
    """A live line on a terminal; elsewhere a plain line now and then and at every event."""

    def __init__(self, console: Console, rounds: int) -> None:
        self._console, self._rounds = console, rounds
        self._live = LiveLine(console, ProgressLine("round", rounds))
        self._live.line.count, self._live.line.left = f"0/{rounds}", "time left: known after a round"

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__()

    def round_ended(self, progress: Progress) -> None:
        """Tell what happened, and how long it may still take."""
        done = progress.record.round
        for line in event_lines(progress.record):
            self._say(line)
        facts, left = facts_of(progress), time_left(progress)
        self._live.update(done, f"{done}/{self._rounds}", left, facts)
        if not self._live and (done % max(1, self._rounds // PLAIN_LINES) == 0 or done == self._rounds):
            self._say("  ".join((f"round {done}/{self._rounds}", *facts, left)))

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)


def time_left(progress: Progress) -> str:
    """How long the rounds that are still to come may take, as fast as those before."""
    done = progress.record.round
    per_round = progress.wall_seconds / (done - progress.done_before)
    return f"about {duration(per_round * (progress.rounds - done))} left"


def facts_of(progress: Progress) -> list[str]:
    """What a round came to, the most important first."""
    record, leaves = progress.record, len(progress.state.tree.leaves())
    facts = []
    if record.evaluation is not None:
        score, found = progress.score, known(record.evaluation.score)
        facts.append(f"{score.title} {score.text(found.mean())}, worst {score.text(found.min())}")
    facts.append("1 cluster" if leaves == 1 else f"{leaves} clusters")
    facts.append(f"simulated {duration(progress.state.seconds)}")
    facts.append(f"{progress.samples_per_second:,.0f} samples/s")
    norms = [c for c in record.clusters if c.mean_norm is not None and c.max_norm is not None]
    if norms:
        largest = max(norms, key=lambda c: c.max_norm or 0.0)
        facts.append(f"norms mean {largest.mean_norm:.3f} max {largest.max_norm:.3f}")
    return facts
