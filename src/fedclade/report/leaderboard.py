"""The leaderboard of a study: every contender in every population, with intervals over pairs of runs.

Two runs are a pair if they have the same population, number of devices and seed: they meet the same world.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedclade.core.task import ACCURACY, Score
from fedclade.metrics import Metric
from fedclade.metrics.registry import METRICS
from fedclade.report.tables import NOTHING, tex
from fedclade.runs import write_beside
from fedclade.study import Comparison, against
from fedclade.study.statistics import bootstrap_interval

WORLD = ["population", "devices", "seed"]
RANKED = "{score}_mean"
DIFFERENCES = ("{score}_mean", "{score}_min")  # told with the interval of their difference to one contender
OVERALL = (
    "groups_found",
    "adjusted_rand_index",
    "{score}_mean",
    "{score}_min",
    "{score}_gap",
    "rounds_to_groups",
    "seconds_to_groups",
    "simulated_seconds",
    "energy_joules",
    "upload_bits",
    "downlink_bits",
)
BY_POPULATION = ("groups_found", "adjusted_rand_index", "{score}_mean", "{score}_min")


@dataclass(frozen=True)
class Sheet:
    """A table of texts: the first column names the row."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    overall: bool = False  # over all populations

    def markdown(self) -> str:
        """A pipe table under its title."""
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        return f"**{self.title}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self) -> str:
        """A booktabs table."""
        body = [" & ".join(map(tex, row)) + r" \\" for row in self.rows]
        head = " & ".join(map(tex, self.columns)) + r" \\"
        shape = f"\\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}"
        begin = ["\\begin{table}", f"\\caption{{{tex(self.title)}}}", shape, "\\toprule", head, "\\midrule"]
        return "\n".join([*begin, *body, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])


def all_runs(comparisons: Mapping[str, Comparison]) -> pd.DataFrame:
    """One row a finished run of each population."""
    frames = [found.frame.assign(population=name) for name, found in comparisons.items()]
    whole = pd.concat(frames, ignore_index=True)
    return whole[["population", *(column for column in whole if column != "population")]]


def leaderboard(runs: pd.DataFrame, other: str, score: Score = ACCURACY) -> list[Sheet]:
    """Who came out how, over all populations and, if there are several, in each; best mean score first."""
    order = (
        runs.groupby("contender")[RANKED.format(score=score.name)]
        .mean()
        .sort_values(ascending=False, kind="stable")
        .index.tolist()
    )
    worlds = len(runs.drop_duplicates(WORLD))
    title = (
        f"All populations: means over {worlds} world{'s' if worlds > 1 else ''}; in brackets the difference to {other}"
        " and its 95 % interval"
    )
    columns = ["contender", *(metric.title for metric in _metrics(OVERALL, score)), "revealed"]
    overall = Sheet(title, columns, [_standing(runs, name, other, score) for name in order], overall=True)
    places = list(dict.fromkeys(zip(runs["population"], runs["devices"], strict=True)))
    if len(places) == 1:
        return [overall]
    return [overall, *(_by_population(runs, metric, order, places) for metric in _metrics(BY_POPULATION, score))]


def _metrics(names: Iterable[str], score: Score) -> list[Metric]:
    return [METRICS[name.format(score=score.name)] for name in names]


def _standing(runs: pd.DataFrame, contender: str, other: str, score: Score) -> list[str]:
    mine, told_apart = runs[runs["contender"] == contender], _metrics(DIFFERENCES, score)
    cells = []
    for metric in _metrics(OVERALL, score):
        text = _mean(mine[metric.name], metric)
        if metric in told_apart and contender != other:
            text += _difference(runs, contender, other, metric)
        cells.append(text)
    return [contender, *cells, ", ".join(sorted(set(mine["reveals"].dropna()))) or NOTHING]


def _by_population(runs: pd.DataFrame, metric: Metric, order: list[str], places: list[tuple[str, int]]) -> Sheet:
    sizes = {devices for _, devices in places}
    columns = [name if len(sizes) == 1 else f"{name}, K = {devices}" for name, devices in places]
    rows = []
    for contender in order:
        mine = runs[runs["contender"] == contender]
        chosen = [mine[(mine["population"] == name) & (mine["devices"] == devices)] for name, devices in places]
        rows.append([contender, *(_mean(part[metric.name], metric) for part in chosen)])
    return Sheet(metric.title, ["contender", *columns], rows)


def _mean(values: "pd.Series[float]", metric: Metric) -> str:
    """The mean, with (3/5) where only so many runs came to it."""
    known = values.dropna()
    if not len(known):
        return NOTHING
    text = metric.text(float(known.mean()))
    return text if len(known) == len(values) else f"{text} ({len(known)}/{len(values)})"


def _difference(runs: pd.DataFrame, contender: str, other: str, metric: Metric) -> str:
    """The mean difference over pairs, and its interval."""
    mine, theirs = (runs[runs["contender"] == name].set_index(WORLD)[metric.name] for name in (contender, other))
    apart = (mine - theirs).dropna().to_numpy(np.float64)
    if not len(apart):
        return ""
    interval = bootstrap_interval(apart)
    middle = metric.text(float(apart.mean()), "+")
    return f" [{middle}]" if interval is None else f" [{middle}: {' to '.join(metric.text(v, '+') for v in interval)}]"


def write_leaderboard(comparisons: Mapping[str, Comparison], out: Path) -> list[Sheet]:
    """``leaderboard.md`` and ``.tex``, and ``all-runs.csv`` to make them from again."""
    runs, sheets = all_runs(comparisons), list[Sheet]()
    for score in dict.fromkeys(found.score for found in comparisons.values()):
        alike = {name: found for name, found in comparisons.items() if found.score == score}
        sheets += leaderboard(all_runs(alike), against(next(iter(alike.values())).config), score)
    for name, text in (
        ("all-runs.csv", runs.to_csv(index=False, lineterminator="\n")),
        ("leaderboard.md", _joined(sheet.markdown() for sheet in sheets)),
        ("leaderboard.tex", _joined(sheet.latex() for sheet in sheets)),
    ):
        write_beside(out / name, text.encode())
    return sheets


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(texts)
