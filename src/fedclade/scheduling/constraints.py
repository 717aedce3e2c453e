"""The paper's problem P1 as an object: does a plan, or a finished run, keep its constraints, and by how much?

Two of them cannot be meant literally where sub-channels are reused, and are read as the repaired system has them:
P1.3 (T_r = the largest T_tot) as "a round lasts until its last upload ends", and P1.4 (|Ω_r| ≤ N) as "at most N
uploads at once".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedclade.core.arrays import Floats
from fedclade.core.timeline import Timeline
from fedclade.core.units import duration, number
from fedclade.scheduling.timeline import most_at_once

ROUNDING = 1e-9  # of a round's length: sums of seconds round differently


@dataclass(frozen=True)
class Constraint:
    """One line of P1. The margin is how far it is from being broken, in the constraint's own unit; None: no limit."""

    name: str
    meaning: str
    holds: bool
    margin: float | None
    detail: str


def uploads_at_once(start: Floats, end: Floats) -> int:
    """The most uploads that are under way at one moment; one that begins as another ends does not overlap it."""
    return round(most_at_once(start, end, np.ones(len(start))))


def check_plan(timeline: Timeline, subchannels: int, deadline: float | None, budget: float | None) -> list[Constraint]:
    """P1.1 to P1.5 of one planned round; P1.0 is about models, of which a plan has none."""
    uploads = pd.DataFrame({"round": 1, "device": timeline.device, "start": timeline.start, "end": timeline.end})
    rounds = pd.DataFrame(
        {
            "seconds": [timeline.makespan],
            "makespan": [timeline.makespan],
            "largest": [timeline.largest_latency],
            "deadline": [np.nan if deadline is None else deadline],
        },
        index=[1],
    )
    return list(_schedule(rounds, uploads[~timeline.missed], subchannels, budget))


def check_rounds(
    rounds: pd.DataFrame,
    uploads: pd.DataFrame,
    evaluations: pd.DataFrame,
    samples: pd.Series,
    *,
    subchannels: int,
    budget: float | None,
    epsilon: float,
) -> list[Constraint]:
    """P1.0 to P1.5 of rounds that took place.

    ``rounds`` has one row a round (round, seconds, makespan_seconds, largest_latency_seconds, deadline_seconds),
    ``uploads`` one for each device that was to upload (round, device, start_seconds, end_seconds, missed),
    ``evaluations`` one for each device that was evaluated (round, device, node, loss); ``samples`` is how much data
    each device trains on. The limits are N, T^tot (None: there is none) and ε of P1.0.
    """
    rounds = rounds.set_index("round").rename(
        columns={
            "makespan_seconds": "makespan",
            "largest_latency_seconds": "largest",
            "deadline_seconds": "deadline",
        }
    )
    rounds["deadline"] = rounds["deadline"].astype(float)
    arrived = uploads[uploads["missed"] == 0].rename(columns={"start_seconds": "start", "end_seconds": "end"})
    return [_optimality(evaluations, samples, epsilon), *_schedule(rounds, arrived, subchannels, budget)]


def _optimality(seen: pd.DataFrame, samples: pd.Series, epsilon: float) -> Constraint:
    """P1.0: each cluster's loss now against the best it has had, by its members' test data."""
    weight = seen["device"].map(samples)
    loss = (seen["loss"] * weight).groupby([seen["node"], seen["round"]]).sum()
    loss = loss / weight.groupby([seen["node"], seen["round"]]).sum()
    last = int(seen["round"].max())
    gaps = {
        str(node): float(part.droplevel("node").loc[last] - part.min())
        for node, part in loss.groupby("node")
        if last in part.droplevel("node").index
    }
    worst = max(gaps, key=lambda node: gaps[node])
    return Constraint(
        "P1.0",
        "each cluster's model is within ε of its best",
        gaps[worst] <= epsilon,
        epsilon - gaps[worst],
        f"at most {gaps[worst]:.3g} above the best loss (cluster {worst}); ε = {epsilon:g}"
        if gaps[worst] > 0
        else f"every cluster ended with its best loss; ε = {epsilon:g}",
    )


def _schedule(
    rounds: pd.DataFrame, uploads: pd.DataFrame, subchannels: int, budget: float | None
) -> Iterator[Constraint]:
    total = float(rounds["seconds"].sum())
    yield Constraint(
        "P1.1",
        "all rounds fit into the time budget",
        budget is None or total <= budget * (1 + ROUNDING),
        None if budget is None else budget - total,
        f"{number(total, 4)} s; no budget is set"
        if budget is None
        else f"{number(total, 4)} s of {number(budget, 4)} s",
    )
    limit = rounds["deadline"].fillna(rounds["makespan"])
    spare = limit.reindex(uploads["round"]).to_numpy() - uploads["end"].to_numpy()
    slack = float(spare.min(initial=np.inf))
    yield Constraint(
        "P1.2",
        "who is selected ends by the round's deadline",
        bool(slack >= -ROUNDING * max(total, 1.0)),
        slack if np.isfinite(slack) else None,
        "no upload"
        if not np.isfinite(slack)
        else "no deadline is set: a round lasts until its last upload ends"
        if rounds["deadline"].isna().all()
        else f"the last one ends {duration(max(slack, 0.0))} before its round's deadline",
    )
    last_end = uploads.groupby("round")["end"].max().reindex(rounds.index).fillna(0.0)
    off = float((rounds["makespan"] - last_end).abs().max())
    reuse = float((rounds["makespan"] - rounds["largest"]).max())
    yield Constraint(
        "P1.3",
        "a round lasts until its last upload ends",
        off <= ROUNDING * max(total, 1.0),
        -off,
        f"waiting for a sub-channel makes a round at most {reuse:.3g} s longer than its largest T_tot",
    )
    busiest = max(
        (uploads_at_once(part["start"].to_numpy(), part["end"].to_numpy()) for _, part in uploads.groupby("round")),
        default=0,
    )
    yield Constraint(
        "P1.4",
        "at most N uploads at once",
        busiest <= subchannels,
        float(subchannels - busiest),
        f"{busiest} of {subchannels} sub-channels at the busiest moment",
    )
    twice = int(uploads.duplicated(["round", "device"]).sum())
    yield Constraint(
        "P1.5",
        "a device is selected once in a round or not at all",
        twice == 0,
        float(-twice),
        f"{len(uploads)} uploads, {twice} of them twice in a round",
    )
