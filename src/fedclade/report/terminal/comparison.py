"""A comparison: its verdict and its tables."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from fedclade.report.leaderboard import Sheet
from fedclade.report.tables import ReadyTable, overview, tables
from fedclade.report.terminal.layout import Labelled, WideTable
from fedclade.study import Comparison, verdicts


def show_comparison(comparison: Comparison, details: bool = False) -> Iterator[RenderableType]:
    """The verdict of a comparison, then what matters most of every contender; with ``details``, all tables."""
    several = len(comparison.sizes) > 1
    for verdict in verdicts(comparison):
        size = f" ({verdict.devices} devices)" if several else ""
        yield Text.assemble(f"{verdict.question}{size}: ", (verdict.headline, "bold"))
        yield Labelled("", verdict.why, indent=4)
    yield Text()
    if not details:
        yield _wide(overview(comparison), one_part=True)
        return
    for ready in tables(comparison):
        yield _wide(ready)


def _wide(ready: ReadyTable, one_part: bool = False) -> WideTable:
    sizes = [devices for devices, _, _ in ready.rows]
    return WideTable(
        ready.title,
        ["K", "policy", *ready.columns],
        [[str(devices), name, *(cell.text for cell in cells)] for devices, name, cells in ready.rows],
        names=2,
        sections=frozenset(i for i in range(1, len(sizes)) if sizes[i] != sizes[i - 1]),
        one_part=one_part,
    )


def show_leaderboard(sheets: Iterable[Sheet]) -> Iterator[RenderableType]:
    """Its tables."""
    for sheet in sheets:
        yield WideTable(sheet.title, sheet.columns, sheet.rows)
