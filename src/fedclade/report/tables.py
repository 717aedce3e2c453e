"""The tables of a comparison: for the terminal, as CSV, as LaTeX for a paper, and as Markdown."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedclade.metrics import Metric
from fedclade.metrics.registry import TABLES, table_title
from fedclade.runs import write_beside
from fedclade.runs.directory import TABLES_FOLDER
from fedclade.study import Comparison, against, paired, spread
from fedclade.study.verdict import FEW_SEEDS

NOTHING = "–"
OVERVIEW = ("{score}_min", "{score}_mean", "adjusted_rand_index", "simulated_seconds", "energy_joules", "clusters")
Row = Mapping[Any, Any]


@dataclass(frozen=True)
class Cell:
    """What is read, and what it is sorted by (None: there is nothing)."""

    text: str
    value: float | None


@dataclass(frozen=True)
class ReadyTable:
    """A table for people: one row a K and contender."""

    name: str
    title: str
    columns: list[str]
    rows: list[tuple[int, str, list[Cell]]]


def tables(comparison: Comparison) -> list[ReadyTable]:
    """Means over seeds ± standard deviation, (3/5) where only so many seeds came to it; then the differences."""
    means = _by_table(comparison, _Cells(spread(comparison), "mean", _mean), "{name}", "{title}")
    note = f"{{title}}: difference to {against(comparison.config)}, seed by seed, with its 95 % interval"
    if comparison.config.compare.seeds < FEW_SEEDS:
        note += ", which is too narrow with so few seeds"
    return means + _by_table(
        comparison, _Cells(paired(comparison), "difference", _difference), "{name}-difference", note
    )


def overview(comparison: Comparison) -> ReadyTable:
    """What matters most of every contender, the most important first."""
    cells, score = _Cells(spread(comparison), "mean", _mean), comparison.score.name
    names = [name.format(score=score) for name in OVERVIEW]
    return cells.table("overview", "At the end", [comparison.metrics[name] for name in names])


class _Cells:
    """A long frame, one row a K, contender and metric, of which tables are made."""

    def __init__(self, frame: pd.DataFrame, value: str, show: Callable[[Row, Metric], str]) -> None:
        self._rows: dict[Any, Row] = {
            (row["devices"], row["contender"], row["metric"]): row for row in frame.to_dict("records")
        }
        self._value, self._show = value, show

    def _cell(self, key: tuple[int, str], metric: Metric) -> Cell:
        found = self._rows[(*key, metric.name)]
        value: float = found[self._value]
        return Cell(NOTHING, None) if pd.isna(value) else Cell(self._show(found, metric), metric.factor * value)

    def table(self, name: str, title: str, metrics: Iterable[Metric]) -> ReadyTable:
        """One row a K and contender, one column a metric that somebody has a value of."""
        who = list(dict.fromkeys((devices, name) for devices, name, _ in self._rows))
        columns = [(metric.title, [self._cell(key, metric) for key in who]) for metric in metrics]
        known = [(title, cells) for title, cells in columns if any(cell.value is not None for cell in cells)]
        rows = [(*key, [cells[i] for _, cells in known]) for i, key in enumerate(who)]
        return ReadyTable(name, title, [title for title, _ in known], rows)


def _by_table(comparison: Comparison, cells: _Cells, name: str, title: str) -> list[ReadyTable]:
    """One table for each of ``TABLES`` that somebody has a value of."""
    found = (
        cells.table(
            name.format(name=table),
            title.format(title=table_title(table, comparison.score)),
            [metric for metric in comparison.metrics.values() if metric.table == table],
        )
        for table in TABLES
    )
    return [table for table in found if table.columns]


def _mean(found: Row, metric: Metric) -> str:
    text = metric.text(found["mean"])
    if found["count"] > 1:
        text += f" ± {metric.text(found['std'])}"
    return text if found["count"] == found["seeds"] else f"{text} ({found['count']}/{found['seeds']})"


def _difference(found: Row, metric: Metric) -> str:
    middle = metric.text(found["difference"], "+")
    if found["pairs"] < 2:
        return middle
    return f"{middle} [{metric.text(found['low'], '+')}, {metric.text(found['high'], '+')}]"


def write_tables(comparison: Comparison, out: Path) -> None:
    """``runs.csv``, ``tables/spread.csv``, ``tables/paired.csv`` in full precision; ``*.tex`` and ``*.md`` to set."""
    folder = out / TABLES_FOLDER
    folder.mkdir(exist_ok=True)
    for path, frame in (
        (out / "runs.csv", comparison.frame),
        (folder / "spread.csv", spread(comparison)),
        (folder / "paired.csv", paired(comparison)),
    ):
        write_beside(path, frame.to_csv(index=False, lineterminator="\n").encode())
    for table in tables(comparison):
        write_beside(folder / f"{table.name}.tex", latex(table).encode())
        write_beside(folder / f"{table.name}.md", markdown(table).encode())


def markdown(table: ReadyTable) -> str:
    """A pipe table under its title."""
    rows = [[str(devices), name, *(cell.text for cell in cells)] for devices, name, cells in table.rows]
    lines = [["K", "policy", *table.columns], ["---:", "---", *["---:"] * len(table.columns)], *rows]
    return f"**{table.title}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(table: ReadyTable) -> str:
    """A booktabs table; \\usepackage{booktabs} is all it needs."""
    lines = [
        "\\begin{table}",
        f"\\caption{{{tex(table.title)}}}",
        f"\\begin{{tabular}}{{rl{'r' * len(table.columns)}}}",
        "\\toprule",
        " & ".join(["$K$", "policy", *map(tex, table.columns)]) + r" \\",
        "\\midrule",
    ]
    before = None
    for devices, name, cells in table.rows:
        if before not in (None, devices):
            lines.append("\\midrule")
        before = devices
        lines.append(" & ".join([str(devices), tex(name), *(tex(cell.text) for cell in cells)]) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


_TEX = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "±": r"$\pm$",
    NOTHING: "--",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


def tex(text: str) -> str:
    """A text as LaTeX reads it."""
    return "".join(_TEX.get(character, character) for character in text)
