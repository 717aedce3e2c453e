"""The figures of one run, as PDF and PNG, each sized for a paper's column and for a slide."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedclade.core.errors import UserError
from fedclade.report.figures import COLOURS, COLUMN_INCHES, STYLE, count_in_wholes, paint_models, save, tell_scores
from fedclade.report.terminal.words import spans
from fedclade.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SLIDE: Mapping[Any, Any] = {
    **STYLE,
    "font.size": 15,
    "axes.titlesize": 15,
    "axes.linewidth": 1.0,
    "legend.fontsize": 13,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
}
# Name, size in inches, style.
FORMS = (("column", (COLUMN_INCHES, 2.4), STYLE), ("slide", (10.0, 5.6), SLIDE))
COMPUTE, WAIT, UPLOAD = "#9aa5b1", "#d5dae0", "#592d76"


def write_run_figures(run: Run, folder: Path, round_: int = 1) -> list[Path]:
    """Accuracy, the timeline of a round, the tree and every model on every device, each for column and slide."""
    import matplotlib
    from matplotlib.figure import Figure

    if not run.finished:
        raise UserError(f"{run.folder}: not finished; there is nothing to draw yet")
    if not 1 <= round_ <= len(run.rounds):
        raise UserError(f"--round {round_}: must be from 1 to {len(run.rounds)}")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for form, size, style in FORMS:
        with matplotlib.rc_context(dict(style)):
            for name, paint in _painters(run, round_):
                figure = Figure(figsize=size, layout="constrained")
                paint(figure)
                written += save(figure, folder / f"{name}-{form}")
    return written


def _painters(run: Run, round_: int) -> "Iterator[tuple[str, Callable[[Figure], None]]]":
    yield run.score.name, partial(_score, run)
    yield f"timeline-round-{round_}", partial(_timeline, run, round_)
    yield "tree", partial(_tree, run)
    yield "models", partial(paint_models, run.models, run.score, "")


def _score(run: Run, figure: "Figure") -> None:
    """Mean, worst and best device round by round, and the one model for all; dotted lines are splits."""
    name, axes = run.score.name, figure.subplots()
    seen = run.rounds.dropna(subset=[f"{name}_mean"])
    dot = "." if len(seen) < 2 else None
    axes.fill_between(seen["round"], seen[f"{name}_min"], seen[f"{name}_max"], color=COLOURS[0], alpha=0.2)
    for column, colour, dash, label in (
        (f"{name}_mean", COLOURS[0], "-", "own model: mean (band: worst to best)"),
        (f"conventional_{name}_mean", COLOURS[3], "--", "one model for all: mean"),
        (f"conventional_{name}_min", COLOURS[3], ":", "one model for all: worst"),
    ):
        axes.plot(seen["round"], seen[column], color=colour, linestyle=dash, marker=dot, label=label)
    for node in run.read_tree().nodes.values():
        if node.split:
            axes.axvline(node.split.round, color="0.4", linewidth=0.6, linestyle=":")
    count_in_wholes(axes.xaxis)
    tell_scores(axes.yaxis, run.score)
    axes.set_ylim(bottom=run.score.bottom(float(seen[f"{name}_min"].min())))
    axes.set_xlabel("round")
    axes.set_ylabel(run.score.title)
    figure.legend(loc="outside upper center", ncols=1 if figure.get_figwidth() < 5 else 2)


def _timeline(run: Run, round_: int, figure: "Figure") -> None:
    """Who computes, waits and uploads when in one round; a row for each device, sub-channel by sub-channel."""
    uploads, axes = run.uploads, figure.subplots()
    mine = uploads[(uploads["round"] == round_) & (uploads["missed"] == 0)].sort_values(["subchannel", "start_seconds"])
    first = ~mine.duplicated("subchannel").to_numpy(dtype=bool)
    lanes = np.arange(len(mine)) + 0.5 * np.cumsum(first)  # a gap before every sub-channel
    ready, start, end = (mine[f"{name}_seconds"].to_numpy(np.float64) for name in ("ready", "start", "end"))
    for left, right, colour, label in (
        (np.zeros(len(mine)), ready, COMPUTE, "computing"),
        (ready, start, WAIT, "waiting"),
        (start, end, UPLOAD, "uploading"),
    ):
        axes.barh(lanes, right - left, left=left, color=colour, height=0.9, label=label)
    axes.set_yticks(lanes[first], [str(channel) for channel in mine["subchannel"][first]])
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlabel("seconds since the devices began to compute")
    axes.set_ylabel("sub-channel")
    figure.legend(loc="outside upper center", ncols=3)


def _tree(run: Run, figure: "Figure") -> None:
    """The tree of models over the rounds; a thicker line serves more devices."""
    import matplotlib

    rows, axes, last = run.tree, figure.subplots(), len(run.rounds)
    ends = [row["name"] for row in rows if not row["children"]]
    height = {name: float(-i) for i, name in enumerate(ends)}
    for row in reversed(rows):  # children come after their parents
        if row["children"]:
            height[row["name"]] = float(np.mean([height[child] for child in row["children"]]))
    for row in rows:
        name, y, end = row["name"], height[row["name"]], row["split"]["round"] if row["split"] else last
        colour = COLOURS[ends.index(name) % len(COLOURS)] if name in ends else "0.4"
        thickest = 5 * matplotlib.rcParams["lines.linewidth"]
        width = 1 + thickest * len(row["members"]) / len(rows[0]["members"])
        axes.plot([row["born_round"], end], [y, y], color=colour, linewidth=width, solid_capstyle="butt")
        if row["split"]:
            axes.plot([end] * len(row["children"]), [height[child] for child in row["children"]], color="0.4")
        else:
            room, ids = 20 if figure.get_figwidth() < 5 else 60, spans(row["members"])
            whose = ids if len(ids) <= room else f"{ids[:room]}…"
            axes.annotate(f"{name}: devices {whose}", (row["born_round"], y), (2, 5), textcoords="offset points")
    axes.set_ylim(-len(ends) + 0.4, 0.6)
    axes.set_yticks([])
    axes.set_xlabel("round")
    count_in_wholes(axes.xaxis)
