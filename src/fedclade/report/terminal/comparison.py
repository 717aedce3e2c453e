"""A comparison: its verdict and its tables."""

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedclade.report.leaderboard import Sheet
from fedclade.report.tables import tables
from fedclade.study import Comparison, verdicts


def show_comparison(comparison: Comparison) -> Iterator[RenderableType]:
    """The verdict of a comparison, then its tables."""
    for verdict in verdicts(comparison):
        size = f" ({verdict.devices} devices)" if len(comparison.sizes) > 1 else ""
        yield Text.assemble(f"{verdict.question}{size}: ", (verdict.headline, "bold"), f"\n    {verdict.why}")
    for ready in tables(comparison):
        table = Table(title=ready.title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("K", justify="right")
        table.add_column("policy")
        for column in ready.columns:
            table.add_column(column, justify="right")
        for i, (devices, name, cells) in enumerate(ready.rows):
            last = i + 1 == len(ready.rows) or ready.rows[i + 1][0] != devices
            table.add_row(str(devices), name, *(cell.text for cell in cells), end_section=last)
        yield table


def show_leaderboard(sheets: Iterable[Sheet]) -> Iterator[RenderableType]:
    """Its tables."""
    for sheet in sheets:
        table = Table(title=sheet.title, title_justify="left", box=box.SIMPLE_HEAD)
        for i, column in enumerate(sheet.columns):
            table.add_column(column, justify="right" if i else "left")
        for row in sheet.rows:
            table.add_row(*row)
        yield table
