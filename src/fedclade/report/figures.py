"""The figures of a comparison, as PDF and PNG, sized for a two-column paper."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedclade.core.arrays import Floats
from fedclade.core.state import CONVENTIONAL
from fedclade.core.task import Score
from fedclade.metrics import Metric
from fedclade.study import Comparison, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLUMN_INCHES, PAGE_INCHES = 3.5, 7.16  # IEEE's
DOTS_PER_INCH = 200
# Okabe and Ito's palette, told apart by colour-blind eyes too; markers, filled or not, and dashes
# for print without colour.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c00", "#7f7f7f")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":", "-.")
PANELS = 4  # side by side
CROWD = 6  # contenders in one race; more have a panel each
STYLE: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "legend.fontsize": 6,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,  # text stays text
}


def write_figures(comparison: Comparison, out: Path) -> list[Path]:
    """All figures into ``out/figures``; the same comparison gives the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    written: list[Path] = []
    with matplotlib.rc_context(STYLE):
        for name, (width, height), paint in _figures(comparison):
            figure = Figure(figsize=(width, height), layout="constrained")
            paint(figure)
            written += save(figure, folder / name)
    return written


def save(figure: "Figure", place: Path) -> list[Path]:
    """Write a figure as PDF and PNG, the same bytes every time; ``place`` has no suffix yet."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # it is laid out, once for both files; savefig would draw it twice for each
    figure.set_dpi(DOTS_PER_INCH)
    pdf, png = (place.with_name(f"{place.name}.{suffix}") for suffix in ("pdf", "png"))
    FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call]
    FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})  # type: ignore[no-untyped-call]
    return [pdf, png]


Painter = Callable[["Figure"], None]


def _figures(comparison: Comparison) -> Iterator[tuple[str, tuple[float, float], Painter]]:
    """Name, size in inches and painter of each."""
    for devices in comparison.sizes:
        here = [name for name in comparison.contenders if (devices, name) in comparison.curves]
        columns = min(PANELS, len(here))
        rows = math.ceil(len(here) / columns)
        size = (max(COLUMN_INCHES, PAGE_INCHES * columns / PANELS), 2.6 * rows)
        yield f"progress-K{devices}", size, partial(_progress, comparison, devices, here)
        if len(here) > CROWD:
            yield f"race-K{devices}", (PAGE_INCHES, 0.3 + 1.3 * rows), partial(_races, comparison, devices, here)
        else:
            yield f"race-K{devices}", (COLUMN_INCHES, 2.8), partial(_race, comparison, devices, here)
    smallest = comparison.sizes[0]
    for (devices, name), run in comparison.first.items():
        if devices == smallest:
            file = f"models-K{devices}-{name.replace(':', '-')}"
            yield (
                file,
                (PAGE_INCHES, 2.2),
                partial(paint_models, run.models, comparison.score, f"{name}, K = {devices}"),
            )
    shown = comparison.metrics.values()
    for name in dict.fromkeys(metric.figure for metric in shown if metric.figure):
        metrics = [metric for metric in shown if metric.figure == name]
        rows = math.ceil(len(metrics) / PANELS)
        yield name, (PAGE_INCHES, 0.4 + 1.7 * rows), partial(_dots, comparison, metrics, rows)


def _look(comparison: Comparison, name: str) -> tuple[str, str, str]:
    i = comparison.contenders.index(name)
    return COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], DASHES[i // len(COLOURS) % len(DASHES)]


def _progress(comparison: Comparison, devices: int, names: list[str], figure: "Figure") -> None:
    """Figure 1: the band of accuracy, or R² (mean over seeds) and norms of the first seed, splits marked."""
    columns = min(PANELS, len(names))
    rows = math.ceil(len(names) / columns)
    grid = figure.subplots(2 * rows, columns, squeeze=False, sharex=True)
    best = max(float(np.nanmax(comparison.curves[devices, name].score["max"], initial=0.0)) for name in names)
    bottom = comparison.score.bottom(min(_lowest(comparison.curves[devices, name].score["min"]) for name in names))
    for axes in grid.flat:
        axes.set_visible(False)
    for i, name in enumerate(names):
        curves, (colour, _, _) = comparison.curves[devices, name], _look(comparison, name)
        upper, lower = (grid[2 * (i // columns) + part][i % columns] for part in (0, 1))
        for axes in (upper, lower):
            axes.set_visible(True)
            axes.tick_params(labelbottom=True)
            count_in_wholes(axes.xaxis)
            for round_ in curves.split_rounds:
                axes.axvline(round_, color="0.4", linewidth=0.6, linestyle=":")
        upper.set_title(f"{name}, K = {devices}")
        upper.fill_between(curves.round, curves.score["min"], curves.score["max"], color=colour, alpha=0.2)
        upper.plot(curves.round, curves.score["mean"], color=colour, marker=_dot(curves.round))
        upper.set_ylim(bottom, 1.05 * best or 1.0)
        tell_scores(upper.yaxis, comparison.score)
        dot = _dot(curves.norm_round)
        lower.plot(curves.norm_round, curves.norms["mean"], color=colour, marker=dot, label="mean")
        lower.plot(curves.norm_round, curves.norms["max"], color=colour, marker=dot, linestyle=":", label="max")
        for value in comparison.first[devices, name].config.epsilons:  # none where norms decide nothing
            lower.axhline(value, color="0.2", linewidth=0.6, linestyle="--")
        lower.set_ylim(bottom=0)
        lower.set_xlabel("round")
        if i % columns == 0:
            upper.set_ylabel(comparison.score.title)
            lower.set_ylabel("update norm")
            lower.legend(loc="upper right")


def count_in_wholes(axis: "Axis") -> None:
    """No half rounds, and no half devices."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def tell_scores(axis: "Axis", score: Score) -> None:
    """Accuracies are told in percent, as in the tables."""
    from matplotlib.ticker import PercentFormatter

    if score.factor == 100:
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _dot(rounds: Floats) -> str | None:
    """The mark of each point where a line would not show it."""
    return "." if len(rounds) < 2 else None


def paint_models(models: pd.DataFrame, score: Score, title: str, figure: "Figure") -> None:
    """Figure 2: models × devices, accuracy or R² of the first seed, membership marked."""
    import matplotlib

    scores = models.pivot(index="model", columns="device", values=score.name)
    member = models.pivot(index="model", columns="device", values="member")
    order = [CONVENTIONAL, *sorted(set(scores.index) - {CONVENTIONAL})]
    values = scores.loc[order].to_numpy()
    axes = figure.subplots()
    axes.grid(False)
    shown = axes.imshow(np.vstack([values, values.max(axis=0)]), cmap="cividis", vmin=0, vmax=1, aspect="auto")
    rows, columns = np.nonzero(member.loc[order].to_numpy()[1:])
    dot = 0.7 * matplotlib.rcParams["lines.markersize"]
    axes.plot(columns, rows + 1, "o", color="white", markeredgecolor="black", markersize=dot, markeredgewidth=0.4)
    axes.set_yticks(range(len(order) + 1), ["one model for all", *order[1:], "best per device"])
    axes.set_ylabel("model")
    axes.set_xlabel("device")
    count_in_wholes(axes.xaxis)
    if title:
        axes.set_title(f"{title}: {score.title} of every model on every device (dot: made for this device)")
    tell_scores(figure.colorbar(shown, pad=0.01, label=score.title).ax.yaxis, score)


def _dots(comparison: Comparison, metrics: list[Metric], rows: int, figure: "Figure") -> None:
    """Figures 3 to 5: one panel a metric, K along the axis, mean over seeds with the spread as whiskers."""
    table = spread(comparison)
    grid = figure.subplots(rows, math.ceil(len(metrics) / rows), squeeze=False)
    names = comparison.contenders
    for axes, metric in zip(grid.flat, metrics, strict=False):
        _panel(axes, comparison, table[table["metric"] == metric.name].set_index(["contender", "devices"]), metric)
    for axes in grid.flat[len(metrics) :]:
        axes.set_visible(False)
    handles, _ = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 5))


def _panel(axes: "Axes", comparison: Comparison, table: pd.DataFrame, metric: Metric) -> None:
    names, sizes, scale = comparison.contenders, comparison.sizes, metric.factor
    for i, name in enumerate(names):
        colour, marker, dash = _look(comparison, name)
        filled = colour if dash == DASHES[0] else "white"
        at = [j + 0.7 * ((i + 0.5) / len(names) - 0.5) for j in range(len(sizes))]
        rows = table.reindex([(name, devices) for devices in sizes])
        whiskers = (scale * rows["std"]).fillna(0.0)
        axes.errorbar(
            at,
            scale * rows["mean"],
            whiskers,
            fmt=marker,
            color=colour,
            mfc=filled,
            elinewidth=0.8,
            capsize=1.5,
            label=name,
        )
    axes.set_title(metric.title)
    if metric.title.endswith("(round)"):
        count_in_wholes(axes.yaxis)
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    elif metric.title.endswith("(%)"):  # a whisker may go below 0, a share may not
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    axes.set_xticks(range(len(sizes)), [f"K = {devices}" for devices in sizes])
    axes.set_xlim(-0.5, len(sizes) - 0.5)


def _race(comparison: Comparison, devices: int, names: list[str], figure: "Figure") -> None:
    """Figure 6: the score against simulated seconds; mean solid, worst device thin, a mark where the runs ended."""
    axes = figure.subplots()
    for name in names:
        _run(axes, comparison, devices, name)
    axes.set_xlabel("simulated seconds")
    axes.set_ylabel(f"{comparison.score.title}: mean (bold), worst (thin)")
    _race_axes(axes, comparison, devices, names)
    axes.axvline(comparison.common[devices], color="0.4", linewidth=0.6, linestyle=":")
    axes.set_title(f"K = {devices}")
    figure.legend(loc="outside lower center", ncols=3)


def _races(comparison: Comparison, devices: int, names: list[str], figure: "Figure") -> None:
    """The same for many contenders: a panel each, with the others' means in grey behind."""
    grid = figure.subplots(math.ceil(len(names) / PANELS), PANELS, squeeze=False, sharex=True, sharey=True)
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names, strict=False):
        for other in names:
            race = comparison.curves[devices, other].race
            axes.plot(race.seconds, race.score["mean"], color="0.85", linewidth=0.5)
        _run(axes, comparison, devices, name)
        axes.set_title(name)
        _race_axes(axes, comparison, devices, names)
    figure.supxlabel(f"simulated seconds, K = {devices}", fontsize=7)
    figure.supylabel(f"{comparison.score.title}: mean (bold), worst (thin)", fontsize=7)


def _lowest(values: Floats) -> float:
    return float(np.nanmin(values, initial=0.0))


def _race_axes(axes: "Axes", comparison: Comparison, devices: int, names: list[str]) -> None:
    """The race begins at second 0."""
    lowest = min(_lowest(comparison.curves[devices, name].race.score["min"]) for name in names)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=comparison.score.bottom(lowest))
    tell_scores(axes.yaxis, comparison.score)


def _run(axes: "Axes", comparison: Comparison, devices: int, name: str) -> None:
    """One contender's race; dotted from the first seed's end to the mark at the mean of their ends."""
    colour, marker, dash = _look(comparison, name)
    race = comparison.curves[devices, name].race
    for part, width in (("mean", 1.0), ("min", 0.4)):
        values = race.score[part]
        called = name if part == "mean" else "_worst"  # matplotlib leaves out of the legend what begins so
        axes.plot(race.seconds[:-1], values[:-1], color=colour, linestyle=dash, linewidth=width, label=called)
        axes.plot(race.seconds[-2:], values[-2:], color=colour, linestyle=":", linewidth=0.6)
        axes.plot(race.seconds[-1:], values[-1:], color=colour, marker=marker, markersize=3.5 if width == 1.0 else 2.0)
