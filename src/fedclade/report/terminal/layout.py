"""Lines and tables that stay readable on a narrow terminal: nothing is cut, and nothing runs together."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

BETWEEN, AROUND = 3, 4  # columns of the terminal that a table leaves blank between its columns, and at its two ends


@dataclass(frozen=True)
class Labelled:
    """A label and its text; where the text is too long for a line, the next lines begin below it."""

    label: str
    text: str | Text
    indent: int = 12

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self.text if isinstance(self.text, Text) else Text(self.text)
        start = f"{self.label:<{self.indent}}"
        for line in whole.wrap(console, max(20, options.max_width - self.indent)):
            line.rstrip()
            yield Text.assemble(start, line)
            start = " " * self.indent


@dataclass(frozen=True)
class WideTable:
    """A table that goes on below itself where the terminal is too narrow for all of its columns.

    The first ``names`` columns say what a row is about: every part of the table has them. A blank line is left above
    each row of ``sections``. With ``one_part`` the table ends with the last column that there is room for.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: int = 1
    sections: frozenset[int] = frozenset()
    one_part: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = self._parts(options.max_width)
        for number, part in enumerate(parts[:1] if self.one_part else parts):
            table = Table(title=self.title if number == 0 else None, title_justify="left", box=box.SIMPLE_HEAD)
            for i in part:
                heading = "\n".join(self._heading(i))
                table.add_column(heading, justify="left" if self._is_words(i) else "right", no_wrap=True)
            for row_number, row in enumerate(self.rows):
                table.add_row(*(row[i] for i in part), end_section=row_number + 1 in self.sections)
            yield table

    def _is_words(self, column: int) -> bool:
        """Names stand on the left, numbers on the right."""
        return column < self.names and not all(row[column].isdigit() for row in self.rows)

    def _longest_cell(self, column: int) -> int:
        return max((cell_len(row[column]) for row in self.rows), default=0)

    def _heading(self, column: int) -> list[str]:
        """A heading in as many lines as keep it no wider than the cells below it, if its words allow that."""
        words = self.columns[column].split()
        return textwrap.wrap(self.columns[column], max(self._longest_cell(column), *map(len, words)))

    def _parts(self, width: int) -> list[list[int]]:
        """The columns of each part: as many as fit, at least one beside the names."""
        wide = [max(self._longest_cell(i), *map(cell_len, self._heading(i))) for i in range(len(self.columns))]
        names = list(range(self.names))
        parts, taken = [list(names)], width
        for i in range(self.names, len(wide)):
            taken += wide[i] + BETWEEN
            if taken > width:
                parts.append([*names, i])
                taken = AROUND + sum(wide[name] + BETWEEN for name in names) + wide[i]
            else:
                parts[-1].append(i)
        return parts[1:] if len(parts) > 1 else parts
