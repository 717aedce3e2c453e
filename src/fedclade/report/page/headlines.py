"""What the page of a run says in words: its opening sentence, and the tiles with what came out."""

from collections.abc import Iterator

import pandas as pd

from fedclade.edge import duration
from fedclade.metrics.registry import METRICS
from fedclade.report.page.shell import Json
from fedclade.runs import Run


def lead(run: Run) -> str:
    """Who took part, and how many models serve them now."""
    population, leaves = run.config.population, len(run.leaves())
    served = "one model" if leaves == 1 else f"{leaves} models"
    return (
        f"{population.devices} devices with {population.source} data share {run.config.edge.subchannels} sub-channels"
        f" of one base station. After {len(run.rounds)} rounds they are served by {served}."
    )


def tiles(run: Run, served: pd.DataFrame) -> list[Json]:
    """The headlines: what came out, who gained, what it cost; ``served`` has each device's accuracies."""
    found = (*_groups(run, served), *_cost(run, len(served)))
    return [{"label": label, "value": value, "why": why} for label, value, why in found]


def _groups(run: Run, served: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    tree = run.read_tree()
    splits = sorted((node.split for node in tree.nodes.values() if node.split), key=lambda split: split.round)
    when = f"first split in round {splits[0].round} ({duration(splits[0].seconds)})" if splits else "no split"
    rand = run.summary["adjusted_rand_index"] if run.finished else None
    truth = "" if rand is None else "exactly the planted groups; " if rand == 1 else f"adjusted Rand index {rand:.2f}; "
    yield "Clusters found", str(len(tree.leaves())), truth + when
    before, after = (_share(served[which].min()) for which in ("one", "own"))
    if splits:
        yield "Worst-served device", f"{before} → {after}", "accuracy under one model for all, and under its own"
    else:
        yield "Worst-served device", after, "accuracy under the one model"


def _cost(run: Run, devices: int) -> Iterator[tuple[str, str, str]]:
    rounds, clusters, uploads = run.rounds, run.clusters, run.uploads
    longest = f", the longest round {duration(float(rounds['seconds'].max()))}" if len(rounds) else ""
    yield "Simulated time", duration(float(rounds["seconds"].sum())), f"{len(rounds)} rounds{longest}"
    sent, everybody = int((uploads["missed"] == 0).sum()), len(rounds) * devices
    stopped = clusters[clusters["verdict"] == "stopped"]
    spared = int((stopped["members"] - stopped["heard"]).sum())
    yield (
        "Uploads saved",
        f"{everybody - sent} of {everybody}",
        f"against everybody in every round; {spared} of them because stopped clusters send only a few",
    )
    yield "Energy", f"{float(rounds['energy_joules'].sum()):.3g} J", f"of all devices, {sent} uploads"


def _share(value: float) -> str:
    return "–" if pd.isna(value) else f"{100 * value:.0f} %"


def numbers(run: Run) -> list[list[str]]:
    """Every metric of a finished run: title, value, meaning."""
    if not run.finished:
        return []
    summary = run.summary
    return [
        [metric.title, metric.text(summary[metric.name]), metric.meaning]
        for metric in (*METRICS.values(), *run.own_metrics)
        if metric.name in summary
    ]
