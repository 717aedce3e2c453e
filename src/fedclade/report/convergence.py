"""Convergence bounds beside what was measured: tables, JSON and a figure."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedclade.core.arrays import Floats
from fedclade.core.errors import UserError
from fedclade.report.terminal import percent, spans
from fedclade.theory import floor, rounds_to
from fedclade.theory.experiment import BoundReport, ClusterBound, Curve, LeafStory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EPOCHS = (1, 2, 5, 10, 20)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < 2 else "right")
    return table


def _number(value: float | None) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.3g}"


def show_bounds(report: BoundReport) -> Iterator[RenderableType]:
    """Every cluster under its bounds, what the split gains, what local epochs do."""
    yield _clusters(report)
    yield _leaves(report)
    yield _epochs(report)
    violations = sum(curve.violations for curve in report.curves)
    values = sum(4 * len(curve.rounds) for curve in report.curves)
    found = "exactly the planted groups" if report.adjusted_rand_index == 1 else "not exactly the planted groups"
    yield Text(
        f"Groups      {len(report.leaves)} clusters, adjusted Rand index {report.adjusted_rand_index:.2f}: {found}\n"
        f"Bounds      {violations} of {values} measured values lie above their bound"
    )


def _clusters(report: BoundReport) -> Table:
    config = report.config.training
    table = _table(
        f"‖W − W*‖² of each model, measured and bounded: η = {config.learning_rate:g}, "
        f"α = {config.weight_decay:g}, β = {report.one_model.constants.beta:.3g}",
        *("model", "devices", "rounds", "𝒯", "ϱ", "𝔉", "at first", "measured", "Theorem 1", "closing"),
        *("floor: Thm 1", "closing", "η → 0: Thm 1", "closing"),
    )
    for cluster in (report.one_model, *report.clusters):
        known, curve = cluster.constants, cluster.curve
        table.add_row(
            cluster.name,
            spans(cluster.members.tolist()),
            f"{curve.rounds[0]}-{curve.rounds[-1]}",
            spans(np.unique(known.steps).tolist()),
            *map(_number, (known.rho, known.optimality_gap, curve.distance[0], curve.distance[-1])),
            *map(_number, (curve.theorem[-1], curve.closing[-1])),
            *map(_number, (cluster.floor("theorem"), cluster.floor("closing"))),
            *map(_number, (cluster.limit_floor("theorem"), cluster.limit_floor("closing"))),
        )
    return table


def _leaves(report: BoundReport) -> Table:
    table = _table(
        "Why split: each cluster's devices at the end, under one model for all and under their own",
        *("cluster", "devices", "since round", "one model: ‖W − W*‖²", "F − F*", "accuracy"),
        *("own model: ‖W − W*‖²", "F − F*", "accuracy", "decreasing η: ‖W − W*‖²", "closing bound"),
    )
    for leaf in report.leaves:
        table.add_row(
            leaf.name,
            spans(leaf.members.tolist()),
            str(leaf.born_round),
            *map(_number, (leaf.one_model.distance[-1], leaf.one_model.loss_gap[-1])),
            percent(leaf.one_model_accuracy),
            *map(_number, (leaf.served.distance[-1], leaf.served.loss_gap[-1])),
            percent(leaf.accuracy),
            *map(_number, (leaf.decreasing.distance[-1], leaf.decreasing.closing[-1])),
        )
    return table


def _epochs(report: BoundReport) -> Table:
    """The effect of E by the bounds alone, with the ϱ of the run."""
    cluster = next(c for c in report.clusters if c.name == report.leaves[0].name)
    table = _table(
        f"What local epochs do to the bounds of cluster {cluster.name} (same η, same ϱ)",
        *("E", "𝒯", "floor: Theorem 1", "closing", "rounds to half the start: Theorem 1", "closing"),
    )
    for epochs, steps, values in epochs_effect(report, cluster):
        rounds = [
            "never" if values[key] is None else _number(values[key]) for key in ("rounds_theorem", "rounds_closing")
        ]
        floors = [_number(values[key]) for key in ("floor_theorem", "floor_closing")]
        table.add_row(str(epochs), spans(steps), *floors, *rounds)
    return table


def epochs_effect(
    report: BoundReport, cluster: ClusterBound
) -> Iterator[tuple[int, list[int], dict[str, float | int | None]]]:
    """For several E: 𝒯, and each bound's floor and rounds to half the start, as far as η allows them."""
    known, start = cluster.constants, float(cluster.curve.distance[0])
    per_epoch = known.steps // report.config.training.epochs
    for epochs in EPOCHS:
        changed = replace(known, steps=per_epoch * epochs)
        values: dict[str, float | int | None] = {}
        for form in ("theorem", "closing"):
            try:
                values[f"floor_{form}"] = floor(changed, cluster.rate, form)
                values[f"rounds_{form}"] = rounds_to(changed, cluster.rate, start, start / 2, form)
            except UserError:  # so many steps that the bound means nothing at this rate
                values[f"floor_{form}"] = values[f"rounds_{form}"] = None
        yield epochs, np.unique(changed.steps).tolist(), values


# -------------------------------------------------------------------------------- for programs


def bounds_as_json(report: BoundReport) -> dict[str, object]:
    """The same for programs, curves included; null where no bound holds."""
    return {
        "name": report.name,
        "adjusted_rand_index": report.adjusted_rand_index,
        "violations": sum(curve.violations for curve in report.curves),
        "models": [_cluster_as_json(cluster) for cluster in (report.one_model, *report.clusters)],
        "leaves": [_leaf_as_json(leaf) for leaf in report.leaves],
        "local_epochs": [
            {"cluster": cluster.name, "epochs": epochs, "steps": steps, **values}
            for cluster in report.clusters
            if cluster.name == report.leaves[0].name
            for epochs, steps, values in epochs_effect(report, cluster)
        ],
    }


def _cluster_as_json(cluster: ClusterBound) -> dict[str, object]:
    known = cluster.constants
    return {
        "model": cluster.name,
        "members": cluster.members.tolist(),
        "alpha": known.alpha,
        "beta": known.beta,
        "rho": known.rho,
        "optimality_gap": known.optimality_gap,
        "steps": known.steps.tolist(),
        "learning_rate": cluster.rate,
        "floor_theorem": cluster.floor("theorem"),
        "floor_closing": cluster.floor("closing"),
        "limit_floor_theorem": cluster.limit_floor("theorem"),
        "limit_floor_closing": cluster.limit_floor("closing"),
        "rounds_to_half_theorem": cluster.rounds_to_half("theorem"),
        "rounds_to_half_closing": cluster.rounds_to_half("closing"),
        "curve": _curve_as_json(cluster.curve),
    }


def _leaf_as_json(leaf: LeafStory) -> dict[str, object]:
    return {
        "cluster": leaf.name,
        "members": leaf.members.tolist(),
        "born_round": leaf.born_round,
        "accuracy": leaf.accuracy,
        "one_model_accuracy": leaf.one_model_accuracy,
        "served": _curve_as_json(leaf.served),
        "one_model": _curve_as_json(leaf.one_model),
        "decreasing_rate": _curve_as_json(leaf.decreasing),
    }


def _curve_as_json(curve: Curve) -> dict[str, object]:
    def numbers(values: Floats) -> list[float | None]:
        return [None if np.isnan(value) else float(value) for value in values]

    return {
        "round": curve.rounds.tolist(),
        "squared_distance": numbers(curve.distance),
        "squared_distance_theorem": numbers(curve.theorem),
        "squared_distance_closing": numbers(curve.closing),
        "loss_gap": numbers(curve.loss_gap),
        "loss_gap_theorem": numbers(curve.beta / 2 * curve.theorem),
        "loss_gap_closing": numbers(curve.beta / 2 * curve.closing),
    }


# -------------------------------------------------------------------------------- the figure


def draw_bounds(report: BoundReport, path: Path) -> bool:
    """One column for the one model and one for each leaf; False where matplotlib (extra ``figures``) is not there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    columns = 1 + len(report.leaves)
    figure = Figure(figsize=(max(7.0, 3.2 * columns), 6.6), layout="constrained")
    panels = figure.subplots(2, columns, sharex=True, sharey="row", squeeze=False)
    panels[0, 0].set_title("one model, towards\nthe optimum of all devices", fontsize=10)
    for panel, leaf in zip(panels[0, 1:], report.leaves, strict=True):
        devices = spans(leaf.members.tolist())
        panel.set_title(f"devices {devices}, towards\nthe optimum of cluster {leaf.name}", fontsize=10)
    for row, of_loss in zip(panels, (False, True), strict=True):
        row[0].set_ylabel("F(W) − F*" if of_loss else "‖W − W*‖²")
        _draw_curve(row[0], report.one_model.curve, of_loss)
        for panel, leaf in zip(row[1:], report.leaves, strict=True):
            _draw_leaf(panel, leaf, of_loss)
        for panel in row:
            panel.set_yscale("log")
            panel.grid(alpha=0.25)
    for panel in panels[1]:
        panel.set_xlabel("round")
    handles = panels[0, -1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=max(2, int(figure.get_figwidth() / 2.8)), fontsize=9)
    figure.suptitle(f"{report.name}: measured errors under their bounds")
    figure.savefig(path, dpi=110)
    return True


def _draw_leaf(panel: "Axes", leaf: LeafStory, of_loss: bool) -> None:
    """A leaf's devices under the model that served them, beside the one model and a decreasing rate."""
    if leaf.born_round:
        panel.axvline(leaf.born_round, color="grey", linewidth=0.8, linestyle="--", label="split")
        _line(panel, leaf.one_model, of_loss, "measured", label="one model for all, measured", color="tab:red")
    _draw_curve(panel, leaf.served, of_loss)
    falling = {"linestyle": ":", "linewidth": 1.2}
    label = "closing bound at a decreasing η"
    _line(panel, leaf.decreasing, of_loss, "closing", label=label, color="C2", **falling)
    _line(panel, leaf.decreasing, of_loss, "measured", label="measured at a decreasing η", color="k", **falling)


def _draw_curve(panel: "Axes", curve: Curve, of_loss: bool) -> None:
    """A model's measured error and both of its bounds."""
    _line(panel, curve, of_loss, "theorem", label="Theorem 1, repaired", color="C0")
    _line(panel, curve, of_loss, "closing", label="closing bound", color="C2")
    _line(panel, curve, of_loss, "measured", label="measured", color="k")


def _line(panel: "Axes", curve: Curve, of_loss: bool, which: str, **style: Any) -> None:
    """One line: what was measured, or one of the bounds, of the distance or of the loss."""
    if which == "measured":
        values = curve.loss_gap if of_loss else curve.distance
    else:
        values = (curve.beta / 2 if of_loss else 1.0) * (curve.theorem if which == "theorem" else curve.closing)
    panel.plot(curve.rounds, values, **style)
