"""The tables of a comparison: for the terminal, as CSV, as LaTeX for a paper, and as Markdown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedclade.core.task import Score
from fedclade.metrics import Metric
from fedclade.metrics.registry import TABLES, table_title
from fedclade.runs import write_beside
from fedclade.study import Comparison, against, paired, spread

NOTHING = "–"
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
    metrics = comparison.metrics
    means = _ready(metrics, comparison.score, spread(comparison), "{name}", "{title}", "mean", _mean)
    note = f"{{title}}: difference to {against(comparison.config)}, seed by seed, with its 95 % interval"
    return means + _ready(
        metrics, comparison.score, paired(comparison), "{name}-difference", note, "difference", _difference
    )


def _ready(
    metrics: Mapping[str, Metric],
    score: Score,
    frame: pd.DataFrame,
    name: str,
    title: str,
    value: str,
    show: Callable[[Row, Metric], str],
) -> list[ReadyTable]:
    """A long frame as one table for each of ``TABLES`` that has metrics."""
    if frame.empty:
        return []
    rows = {(row["devices"], row["contender"], row["metric"]): row for row in frame.to_dict("records")}
    who = list(dict.fromkeys((devices, name) for devices, name, _ in rows))

    def cell(key: tuple[int, str], metric: Metric) -> Cell:
        found = rows[(*key, metric.name)]
        if pd.isna(found[value]):
            return Cell(NOTHING, None)
        return Cell(show(found, metric), metric.factor * found[value])

    by_table = {table: [metric for metric in metrics.values() if metric.table == table] for table in TABLES}
    return [
        ReadyTable(
            name.format(name=table),
            title.format(title=table_title(table, score)),
            [metric.title for metric in columns],
            [(*key, [cell(key, metric) for metric in columns]) for key in who],
        )
        for table, columns in by_table.items()
        if columns
    ]


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
    folder = out / "tables"
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
