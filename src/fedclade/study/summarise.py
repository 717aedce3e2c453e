"""What came out of a study: one row a finished run, means and their spread, differences, curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedclade.config import Config
from fedclade.core.arrays import Floats
from fedclade.core.errors import UserError
from fedclade.core.task import ACCURACY, Score
from fedclade.metrics import Metric
from fedclade.metrics.registry import compared
from fedclade.runs import Run
from fedclade.study.contenders import against, contenders
from fedclade.study.plan import Job
from fedclade.study.statistics import bootstrap_interval, mean_over_time

GRID = 300  # moments of the race
RACERS = ("min", "mean")  # what is raced: the worst device and the mean of all


@dataclass(frozen=True)
class Race:
    """Accuracy, or R², against the simulated clock: means over seeds, as long as all of them go on.

    The last moment is the mean of the moments at which they ended, with the mean of what they had come to.
    """

    seconds: Floats
    score: dict[str, Floats]  # min, mean

    @property
    def end(self) -> float:
        """The second at which the runs ended, on average."""
        return float(self.seconds[-1])


@dataclass(frozen=True)
class Curves:
    """How one contender went at one K: means over seeds, and the first seed's norms and splits."""

    round: Floats
    score: dict[str, Floats]  # min, mean, max: means over seeds
    norm_round: Floats
    norms: dict[str, Floats]  # mean, max: the largest over the clusters, first seed
    split_rounds: list[int]  # first seed
    race: Race


@dataclass(frozen=True)
class Comparison:
    """All that tables, figures and page show."""

    config: Config
    contenders: list[str]
    frame: pd.DataFrame  # one row a finished run
    curves: dict[tuple[int, str], Curves]
    common: dict[int, float]  # per K, the last simulated second at which every run was still going on
    abreast: dict[tuple[int, str], dict[str, float]]  # score (min, mean) at that second, means over seeds
    first: dict[tuple[int, str], Run]  # the first finished seed of each
    metrics: dict[str, Metric]  # what is told of them, table by table
    score: Score = ACCURACY  # what devices are scored by

    @property
    def sizes(self) -> list[int]:
        """The numbers of devices for which there is something to show."""
        return sorted(self.common)


def collect(config: Config, jobs: Sequence[Job]) -> Comparison:
    """Read what is finished."""
    finished = {job: Run(job.folder) for job in jobs if job.finished}
    if not finished:
        raise UserError("no run of this comparison is finished yet")
    target = config.compare.target_accuracy
    rounds = {job: run.rounds for job, run in finished.items()}
    scores = {run.score for run in finished.values()}
    if len(scores) > 1:
        raise UserError("these runs cannot be compared: some have devices with classes, others with numbers")
    (score,) = scores
    own = {metric.name: metric for run in finished.values() for metric in run.own_metrics}
    metrics = compared(own.values(), score)
    rows = [
        {
            "devices": job.devices,
            "contender": job.contender,
            "seed": job.seed,
            **{name: run.summary.get(name) for name in metrics},
            **_reached(rounds[job], target, score),
            **_grouped(run, rounds[job], score),
            "reveals": run.summary.get("reveals"),
        }
        for job, run in finished.items()
    ]
    names = list(contenders(config))
    frame = pd.DataFrame(rows).astype(dict.fromkeys(metrics, np.float64))
    curves, common, abreast, first = {}, {}, {}, {}
    for devices in sorted({job.devices for job in finished}):
        here = [job for job in finished if job.devices == devices]
        common[devices] = min(_ended(rounds[job]) for job in here)
        for name in names:
            seeds = [job for job in here if job.contender == name]
            if seeds:
                told = [rounds[job] for job in seeds]
                first[devices, name] = finished[seeds[0]]
                curves[devices, name] = _curves(told, finished[seeds[0]], score)
                at_once = _over_time(told, np.array([common[devices]]), score)
                abreast[devices, name] = {part: float(values[0]) for part, values in at_once.items()}
    return Comparison(config, names, frame, curves, common, abreast, first, metrics, score)


def _end(rounds: pd.DataFrame) -> "pd.Series[float]":
    return rounds["start_seconds"] + rounds["seconds"]


def _ended(rounds: pd.DataFrame) -> float:
    """The simulated second at which a run ended; 0 for one whose first round did not fit into its time budget."""
    return float(_end(rounds).max()) if len(rounds) else 0.0


def _evaluated(rounds: pd.DataFrame, score: Score) -> pd.DataFrame:
    return rounds.assign(end=_end(rounds)).dropna(subset=[f"{score.name}_mean"])


def _reached(rounds: pd.DataFrame, target: float, score: Score) -> dict[str, float | None]:
    """When the devices' mean score first was the target's."""
    seen = _evaluated(rounds, score)
    there = seen[seen[f"{score.name}_mean"] >= target]
    if there.empty:
        return {"rounds_to_target": None, "seconds_to_target": None}
    return {"rounds_to_target": float(there["round"].iloc[0]), "seconds_to_target": float(there["end"].iloc[0])}


def _grouped(run: Run, rounds: pd.DataFrame, score: Score) -> dict[str, float | None]:
    """Whether the clusters end as exactly the planted groups, and from which round and second on they are."""
    planted = run.devices.set_index("device")["planted_group"]
    seen = run.evaluations
    groups = seen["device"].map(planted)
    exact = {at: _same_groups(part["node"], groups[part.index]) for at, part in _by_round(seen)}
    wrong = max((at for at, same in exact.items() if not same), default=-1)
    right = [at for at in exact if at > wrong]
    if not right:
        return {"groups_found": 0.0, "rounds_to_groups": None, "seconds_to_groups": None}
    ended = _evaluated(rounds, score).set_index("round")["end"]
    return {"groups_found": 1.0, "rounds_to_groups": float(right[0]), "seconds_to_groups": float(ended[right[0]])}


def _by_round(seen: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    return [(at, seen[seen["round"] == at]) for at in sorted(set(seen["round"].tolist()))]


def _same_groups(found: "pd.Series[str]", planted: "pd.Series[int]") -> bool:
    """Whether two labellings of the same devices make the same groups."""
    pairs = set(zip(found, planted, strict=True))
    return len(pairs) == found.nunique() == planted.nunique()


def _over_time(seeds: Sequence[pd.DataFrame], moments: Floats, score: Score) -> dict[str, Floats]:
    """Scores (min, mean) at some moments of the simulated clock: means over seeds."""
    seen, ends = [_evaluated(rounds, score) for rounds in seeds], [_ended(rounds) for rounds in seeds]
    times = [rounds["end"].to_numpy() for rounds in seen]
    return {
        part: mean_over_time(times, [rounds[f"{score.name}_{part}"].to_numpy() for rounds in seen], ends, moments)
        for part in RACERS
    }


def _race(seeds: Sequence[pd.DataFrame], score: Score) -> Race:
    ends = [_ended(rounds) for rounds in seeds]
    moments = np.linspace(0.0, min(ends), GRID)
    last = pd.concat([_evaluated(rounds, score).tail(1) for rounds in seeds])
    return Race(
        np.append(moments, np.mean(ends)),
        {
            part: np.append(values, last[f"{score.name}_{part}"].mean())
            for part, values in _over_time(seeds, moments, score).items()
        },
    )


def _curves(seeds: list[pd.DataFrame], first: Run, score: Score) -> Curves:
    seen = [_evaluated(rounds, score) for rounds in seeds]
    parts = ("min", "mean", "max")
    by_round = pd.concat(seen).groupby("round")[[f"{score.name}_{part}" for part in parts]].mean()
    largest = first.clusters.groupby("round")[["mean_norm", "max_norm"]].max()

    return Curves(
        by_round.index.to_numpy(np.float64),
        {part: by_round[f"{score.name}_{part}"].to_numpy() for part in parts},
        largest.index.to_numpy(np.float64),
        {part: largest[f"{part}_norm"].to_numpy(np.float64) for part in ("mean", "max")},
        first.events.query("kind == 'split'")["round"].tolist(),
        _race(seeds, score),
    )


def spread(comparison: Comparison) -> pd.DataFrame:
    """Mean and standard deviation over seeds, a row for each K, contender and metric; ``count`` seeds have a value."""
    rows: list[dict[str, Any]] = []
    for (devices, name), part in _groups(comparison):
        for metric in comparison.metrics:
            values = part[metric].dropna()
            rows.append(
                {
                    "devices": devices,
                    "contender": name,
                    "metric": metric,
                    "mean": values.mean(),
                    "std": values.std(ddof=1),
                    "count": len(values),
                    "seeds": len(part),
                }
            )
    return pd.DataFrame(rows)


def paired(comparison: Comparison) -> pd.DataFrame:
    """Differences to the contender chosen to compare against, seed by seed: their mean and its interval."""
    other = against(comparison.config)
    rows: list[dict[str, Any]] = []
    groups = dict(_groups(comparison))
    for (devices, name), part in groups.items():
        if name == other or (devices, other) not in groups:
            continue
        theirs = groups[devices, other].set_index("seed")
        for metric in comparison.metrics:
            difference = (part.set_index("seed")[metric] - theirs[metric]).dropna().to_numpy(np.float64)
            low, high = bootstrap_interval(difference) or (None, None)
            rows.append(
                {
                    "devices": devices,
                    "contender": name,
                    "against": other,
                    "metric": metric,
                    "difference": difference.mean() if len(difference) else None,
                    "low": low,
                    "high": high,
                    "pairs": len(difference),
                }
            )
    columns = ["devices", "contender", "against", "metric", "difference", "low", "high", "pairs"]
    return pd.DataFrame(rows, columns=columns)


def _groups(comparison: Comparison) -> list[tuple[tuple[int, str], pd.DataFrame]]:
    """The finished runs of each K and contender, in the order in which they were named."""
    frame = comparison.frame
    keys = [(devices, name) for devices in comparison.sizes for name in comparison.contenders]
    parts = [(key, frame[(frame["devices"] == key[0]) & (frame["contender"] == key[1])]) for key in keys]
    return [(key, part) for key, part in parts if len(part)]
