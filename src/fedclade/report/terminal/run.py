"""The closing tables of a finished run, and where a device belongs in it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedclade.core.arrays import Floats
from fedclade.core.state import CONVENTIONAL
from fedclade.core.task import ACCURACY, Score
from fedclade.core.units import duration, number
from fedclade.metrics import Metric
from fedclade.report.drift import drift_told
from fedclade.report.terminal.layout import Labelled
from fedclade.report.terminal.words import spans
from fedclade.runs import Run
from fedclade.runs.drift import groups_at_end

if TYPE_CHECKING:
    from fedclade.runs.assign import Placement


def show_placement(found: "Placement") -> Iterator[str]:
    """The walk down the tree, a line for each fork, and where it ends; or that no model fits."""
    for step in found.steps:
        yield (
            f"{step.node}: to {step.chosen}, loss {step.loss:.3f} against {step.refused_loss:.3f} in {step.refused}"
            f" (p = {step.p_value:.1g})"
        )
    right = f"loss {found.loss:.3f}, {_scored(found)}"
    if not found.fits:
        yield (
            f"No model    fits these data: the nearest, of cluster {found.leaf}, is no better than guessing"
            f" (p = {found.p_value:.1g}; {right})"
        )
        return
    yield f"Cluster     {found.leaf}: {right}"
    yield f"Model       {found.model}"


def _scored(found: "Placement") -> str:
    """How well the nearest model serves the device."""
    if found.scored == "accuracy":
        return f"{ACCURACY.text(found.score)} of {found.images} samples right"
    return f"R² {found.score:.3f} on {found.images} samples"


CLUSTERS, WIDTH = 12, 40  # shown, and columns of a list of devices, unless there are to be details


def show_run(run: Run, with_problem: bool = False, details: bool = False) -> Iterator[RenderableType]:
    """What came of a run, read from its directory: the answer, then tables; the check of P1 if wanted.

    Without ``details`` it fits on a screen: a table ends after a dozen clusters, and a long list of devices is cut.
    """
    summary = run.summary
    score, by_model = run.score, _score_of(run)
    yield from _facts_of(summary, run.real, score)
    if told := drift_told(run):
        yield Labelled("Drift", told)
    yield from _losses(run)
    yield from _own(run.own_metrics, summary)
    yield Text()
    yield _clusters(run, by_model, details)
    if not details and (more := len(run.leaves()) - CLUSTERS) > 0:
        yield Text(f"… and {more} more; fedclade show-run {run.folder} --details has all.\n")
    yield _groups(run, by_model, details)
    if with_problem:
        from fedclade.report.terminal.plan import problem
        from fedclade.runs.problem import check_run

        yield problem(check_run(run))


def _score_of(run: Run) -> dict[str, Floats]:
    """Each model's score on every device."""
    found: dict[str, Floats] = {}
    name = run.score.name
    for row in run.rows("models"):
        found.setdefault(row["model"], np.full(run.summary["devices"], np.nan))[row["device"]] = row[name]
    return found


def _spread(score: Floats) -> tuple[float, float, float]:
    """The worst, the mean and the best of what is known; not a number where nothing is."""
    there = score[~np.isnan(score)]
    return (there.min(), there.mean(), there.max()) if len(there) else (np.nan,) * 3


def _named(devices: list[int], details: bool) -> str:
    """A list of devices, cut where it is long."""
    whole = spans(devices)
    return whole if details or len(whole) <= WIDTH else f"{whole[:WIDTH].rpartition(',')[0]}, … ({len(devices)})"


def _clusters(run: Run, by_model: dict[str, Floats], details: bool) -> Table:
    table = Table(title="Clusters found", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("cluster", "devices", "since round", "stopped", "worst", "mean", "best"):
        table.add_column(name, justify="left" if name in ("cluster", "devices") else "right")
    for leaf in run.leaves() if details else run.leaves()[:CLUSTERS]:
        found = by_model[leaf.name][list(leaf.devices)]
        table.add_row(
            leaf.name,
            _named(list(leaf.devices), details),
            str(leaf.born_round),
            "not yet" if leaf.stopped_round is None else f"round {leaf.stopped_round}",
            *map(run.score.text, _spread(found)),
        )
    return table


def _groups(run: Run, by_model: dict[str, Floats], details: bool) -> Table:
    """Every planted group, where there are any, and all devices, under the one model and under their own."""
    group_of = groups_at_end(run.rows("devices"), run.rows("events"))
    own = np.full(len(group_of), np.nan)
    for leaf in run.leaves():
        own[list(leaf.devices)] = by_model[leaf.name][list(leaf.devices)]
    kind = run.config.run.conventional
    note = "trained on by everybody" if kind == "continued" else "as it stood at the first split"
    table = Table(
        title=f"One model for all ({note}) against each cluster's own", title_justify="left", box=box.SIMPLE_HEAD
    )
    planted = ["group"] if run.planted else []
    for name in (*planted, "devices", "one: worst", "one: mean", "own: worst", "own: mean", "worst +"):
        table.add_column(name, justify="left" if name in ("group", "devices") else "right")
    groups = [
        (str(group), [device for device, mine in group_of.items() if mine == group])
        for group in sorted(set(group_of.values()) if planted else ())
    ]
    for name, members in [*groups, ("all", list(group_of))]:
        before, after = _spread(by_model[CONVENTIONAL][members]), _spread(own[members])
        table.add_row(
            *([name] if planted else []),
            _named(members, details),
            *map(run.score.text, (*before[:2], *after[:2])),
            run.score.difference(after[0] - before[0], "+"),
        )
    return table


def _losses(run: Run) -> Iterator[Labelled]:
    """F, and P1's objective with the clusters' best rounds; nothing where nobody was evaluated."""
    seen, told = run.rows("objectives"), [row for row in run.rows("rounds") if row["loss"] is not None]
    if not seen or not told:
        return
    last, clusters = told[-1], [row for row in seen if row["round"] == max(each["round"] for each in seen)]
    best = ", ".join(f"cluster {row['node']} in round {row['best_round']}" for row in clusters)
    now = f"F = {last['loss']:.3f}; the sum over the clusters is {last['objective']:.3f}"
    if last["objective_best"] == last["objective"]:
        yield Labelled("Loss", f"{now}, which is the least it has been (P1's objective)")
    else:
        least = f"{last['objective_best']:.3f} with the best model that each has had (P1's objective): {best}"
        yield Labelled("Loss", f"{now}, and {least}")


def _own(metrics: Sequence[Metric], summary: dict[str, Any]) -> Iterator[Labelled]:
    """The metrics that the config names, on one line."""
    if metrics:
        told = ", ".join(f"{metric.title} {metric.text(summary[metric.name])}" for metric in metrics)
        yield Labelled("Own metrics", told)


def _facts_of(summary: dict[str, object], real: bool, score: Score) -> Iterator[Labelled]:
    def known(name: str) -> float:
        value = summary[name]
        return float(value) if isinstance(value, int | float) else float("nan")  # of devices that are all gone

    found = "1 cluster" if summary["clusters"] == 1 else f"{summary['clusters']} clusters"
    if summary["adjusted_rand_index"] is not None:
        ari = known("adjusted_rand_index")
        exact = ": exactly the planted groups" if ari == 1.0 else ""
        found += f", adjusted Rand index {ari:.2f}{exact}"
    if summary["first_split_round"] is not None:
        first, last = (
            (str(summary[f"{which}_split_round"]), duration(known(f"{which}_split_seconds")))
            for which in ("first", "last")
        )
        found += (
            f"; split in round {first[0]} ({first[1]})"
            if first == last
            else f"; splits in rounds {first[0]} to {last[0]} ({first[1]} to {last[1]})"
        )
    yield Labelled("Groups", found)
    jain = f"Jain of participation {known('jain_participation'):.3f}"
    if summary.get("jain_accuracy") is not None:
        even = f"{known('jain_accuracy'):.3f}, of participation {known('jain_participation'):.3f}"
        jain = f"Jain of accuracy {even}"
    yield Labelled(
        "Fairness",
        f"{score.title} {score.text(known(f'{score.name}_min'))} to {score.text(known(f'{score.name}_max'))}"
        f" (gap {score.difference(known(f'{score.name}_gap'))}{score.points}),"
        f" worst tenth {score.text(known(f'{score.name}_worst_tenth'))}, {jain}",
    )
    clock, joules = ("measured", "energy unknown") if real else ("simulated", f"{number(known('energy_joules'))} J")
    share = f"{100 * known('wall_share_training'):.0f} %"
    here = (
        f"{share} of them waiting for the devices"
        if real
        else f"{share} training, {known('wall_samples_per_second'):,.0f} samples/s"
    )
    yield Labelled(
        "Cost",
        f"{duration(known('simulated_seconds'))} {clock} in {summary['rounds']} rounds,"
        f" {summary['uploads']} uploads, {number(known('upload_bits') / 1e6, 4)} Mbit, {joules};"
        f" {duration(known('wall_seconds'))} {'at the server' if real else 'of computing here'} ({here})",
    )
