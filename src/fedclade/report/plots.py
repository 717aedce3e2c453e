"""Charts of one run as plotly figures, for notebooks: accuracy, a round's timeline, the tree of models."""

from typing import Any

import plotly.graph_objects as go

from fedclade.core.errors import UserError
from fedclade.report.terminal.words import spans
from fedclade.runs import Run

# Okabe and Ito's palette, told apart by colour-blind eyes too.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c00", "#7f7f7f")
INK, SOFT, COMPUTE, WAIT, UPLOAD = "#1b1f24", "#59636e", "#9aa5b1", "#d5dae0", "#592d76"


def accuracy_figure(run: Run) -> Any:
    """The score round by round: mean, worst and best device under their own models, and under one model for all."""
    score = run.score
    seen = run.rounds.dropna(subset=[f"{score.name}_mean"])
    figure, mode = go.Figure(), "lines+markers" if len(seen) <= 12 else "lines"
    for column, name, line in (
        (f"{score.name}_min", "worst device", {"color": INK, "width": 1}),
        (f"{score.name}_max", "best device", {"color": INK, "width": 1}),
        (f"{score.name}_mean", "mean device", {"color": INK, "width": 2.5}),
        (f"conventional_{score.name}_mean", "one model for all, mean", {"color": SOFT, "dash": "dash"}),
        (f"conventional_{score.name}_min", "one model for all, worst", {"color": SOFT, "dash": "dot"}),
    ):
        fill = {"fill": "tonexty", "fillcolor": "rgba(27, 31, 36, 0.15)"} if column == f"{score.name}_max" else {}
        figure.add_scatter(x=seen["round"], y=seen[column], name=name, mode=mode, line=line, **fill)
    for node in run.read_tree().nodes.values():
        if node.split:
            figure.add_vline(node.split.round, line={"color": SOFT, "dash": "dot", "width": 1})
    ticks = {"dtick": 1} if run.rounds["round"].max() <= 12 else {}
    figure.update_xaxes(title="round", rangemode="tozero", **ticks)
    if score.factor == 100:
        figure.update_yaxes(title=score.title, tickformat=".0%", rangemode="tozero")
    else:
        figure.update_yaxes(title=score.title, range=[score.bottom(float(seen[f"{score.name}_min"].min())), 1.02])
    return figure


def timeline_figure(run: Run, round_: int = 1) -> Any:
    """One round on the radio: each device computes, waits for its sub-channel, uploads."""
    last = int(run.rounds["round"].max()) if len(run.rounds) else 0
    if not 1 <= round_ <= last:
        raise UserError(f"round {round_}: must be from 1 to {last}")
    uploads = run.uploads
    mine = uploads[(uploads["round"] == round_) & (uploads["missed"] == 0)].sort_values(["subchannel", "start_seconds"])
    names = [f"device {d} on {c}" for d, c in zip(mine["device"], mine["subchannel"], strict=True)]
    figure = go.Figure()
    for name, begin, end, colour in (
        ("computing", mine["ready_seconds"] * 0.0, mine["ready_seconds"], COMPUTE),
        ("waiting", mine["ready_seconds"], mine["start_seconds"], WAIT),
        ("uploading", mine["start_seconds"], mine["end_seconds"], UPLOAD),
    ):
        figure.add_bar(y=names, x=end - begin, base=begin, orientation="h", name=name, marker_color=colour)
    figure.update_layout(barmode="overlay", height=160 + 20 * len(mine), title=f"Round {round_}")
    figure.update_xaxes(title="seconds since the devices began to compute", rangemode="tozero")
    figure.update_yaxes(title="device, and its sub-channel", autorange="reversed")
    return figure


def tree_figure(run: Run) -> Any:
    """The tree of models over the rounds; a thicker line serves more devices."""
    tree = run.read_tree()
    rows = tree.to_json()
    leaves = [row["name"] for row in rows if not row["children"]]
    height = {name: float(-i) for i, name in enumerate(leaves)}
    for row in reversed(rows):  # children come after their parents
        if row["children"]:
            height[row["name"]] = sum(height[child] for child in row["children"]) / len(row["children"])
    last = int(run.rounds["round"].max()) if len(run.rounds) else 0
    figure = go.Figure()
    for row in rows:
        name, y, end = row["name"], height[row["name"]], row["split"]["round"] if row["split"] else last
        colour = COLOURS[leaves.index(name) % len(COLOURS)] if name in leaves else SOFT
        width = 2 + 10 * len(row["members"]) / tree.device_count
        text = f"model {name}: devices {spans(row['members'])}"
        figure.add_scatter(
            x=[row["born_round"], end],
            y=[y, y],
            mode="lines",
            line={"width": width, "color": colour},
            text=text,
            name=name,
        )
        if row["split"]:
            ends = [height[child] for child in row["children"]]
            figure.add_scatter(x=[end] * len(ends), y=ends, mode="lines", line={"color": SOFT}, hoverinfo="skip")
        else:
            figure.add_annotation(
                x=end, y=y, text=f"<b>{name}</b> {spans(row['members'])}", xanchor="left", showarrow=False
            )
    figure.update_layout(showlegend=False, height=140 + 50 * len(leaves), hovermode="closest", margin={"r": 160})
    figure.update_xaxes(title="round", rangemode="tozero", **({"dtick": 1} if last <= 12 else {}))
    figure.update_yaxes(visible=False)
    return figure
