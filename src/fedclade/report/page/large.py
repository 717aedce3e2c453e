"""The numbers that the page of a large run shows: sums, quantiles and the worst-served devices, not every device."""

import numpy as np
import pandas as pd

from fedclade.config import fields_of
from fedclade.core.task import Score
from fedclade.core.units import duration, number
from fedclade.report.page.headlines import lead, numbers, truth
from fedclade.report.page.shell import Json, made_from, rounded, score_data
from fedclade.runs import Run

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
WORST = 20  # devices listed


def large_data(run: Run) -> Json:
    """All that the page of a large run shows; its size does not grow with the number of devices."""
    rounds, seen, score = run.rounds, run.evaluations, run.score
    groups = dict(zip(run.devices["device"], run.devices["planted_group"], strict=True))
    return {
        "name": f"{run.folder.resolve().name}: {len(run.devices):,} devices",
        "lead": lead(run),
        "finished": run.finished,
        "banner": f"Not finished: {len(rounds)} of {run.config.run.rounds} rounds so far.",
        "tiles": _tiles(run),
        "score": score_data(score),
        "quantiles": _quantiles(seen, score),
        "sizes": _sizes(run.clusters),
        "rounds": [
            [row["round"], duration(row["seconds"]), row["uploads"], row["missed"], row["clusters"]]
            for row in rounds.to_dict("records")
        ],
        "clusters": _clusters(run, groups),
        "worst": _worst(seen, groups, score),
        "numbers": numbers(run),
        "config": [
            [name, "unset" if value is None else str(value), meaning] for name, value, meaning in fields_of(run.config)
        ],
        "footer": made_from(run.folder),
    }


def _tiles(run: Run) -> list[Json]:
    rounds, error = run.rounds, run.summary.get("accuracy_error") if run.finished else None
    mean = rounds[f"{run.score.name}_mean"].dropna()
    told = "–" if mean.empty else run.score.text(mean.iloc[-1])
    sample = "of the devices evaluated" if error is None else f"by a sample, standard error {100 * error:.2f} points"
    time = duration(float(rounds["seconds"].sum()))
    tiles = (
        ("Clusters found", str(len(run.leaves())), truth(run)),
        (f"Mean {run.score.title}", told, sample),
        ("Simulated time", time, f"{len(rounds)} rounds, {int(rounds['uploads'].sum()):,} uploads"),
        ("Energy", f"{number(float(rounds['energy_joules'].sum()))} J", "of all devices"),
    )
    return [{"label": label, "value": value, "why": why} for label, value, why in tiles]


def _quantiles(seen: pd.DataFrame, score: Score) -> Json:
    """Of the evaluated devices' scores, by round."""
    by_round = seen.dropna(subset=[score.name]).groupby("round")[score.name]
    table = by_round.quantile(np.array(QUANTILES)).unstack() if len(seen) else pd.DataFrame(columns=list(QUANTILES))
    return {"round": [int(r) for r in table.index], **{f"q{100 * q:g}": rounded(table[q]) for q in QUANTILES}}


def _sizes(clusters: pd.DataFrame) -> list[Json]:
    return [
        {"name": str(node), "round": part["round"].tolist(), "members": part["members"].tolist()}
        for node, part in clusters.groupby("node")
    ]


def _clusters(run: Run, groups: dict[int, int]) -> list[list[str]]:
    """One row for each leaf: members, whom they were planted as, score."""
    last = run.evaluations
    last = last[last["round"] == last["round"].max()] if len(last) else last
    rows = []
    for leaf in run.leaves():
        members = pd.Series([groups[device] for device in leaf.devices])
        planted = ", ".join(f"{count:,} of group {group}" for group, count in members.value_counts().items())
        found = last[last["node"] == leaf.name][run.score.name].dropna()
        low, mean = run.score.text(float(found.quantile(0.1))), run.score.text(float(found.mean()))
        stopped = "not yet" if leaf.stopped_round is None else f"round {leaf.stopped_round}"
        rows.append([leaf.name, f"{len(leaf.devices):,}", planted, str(leaf.born_round), stopped, low, mean])
    return rows


def _worst(seen: pd.DataFrame, groups: dict[int, int], score: Score) -> list[list[str]]:
    """The worst-served of the devices evaluated last."""
    last = seen[seen["round"] == seen["round"].max()] if len(seen) else seen
    worst = last.dropna(subset=[score.name]).nsmallest(WORST, score.name)
    return [
        [
            str(row["device"]),
            row["node"],
            f"group {groups[row['device']]}",
            score.text(row[score.name]),
            f"{row['loss']:.3f}",
        ]
        for row in worst.to_dict("records")
    ]
