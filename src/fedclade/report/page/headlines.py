"""What the page of a run says in words: its opening sentence, and the tiles with what came out."""

from collections.abc import Iterator

import pandas as pd

from fedclade.core.task import Score
from fedclade.core.units import duration, number
from fedclade.metrics.registry import told_of
from fedclade.report.page.shell import Json
from fedclade.runs import Run


def lead(run: Run) -> str:
    """Who took part, and how many models serve them now."""
    config, leaves, rounds = run.config, len(run.leaves()), len(run.rounds)
    served = "one model" if leaves == 1 else f"{leaves} models"
    who = (
        f"{number(len(run.devices))} real devices took part."
        if run.real
        else f"{number(config.population.devices)} devices with {config.population.source} data share"
        f" {config.edge.subchannels} sub-channels of one base station."
    )
    return f"{who} After {rounds} {'round' if rounds == 1 else 'rounds'} they are served by {served}."


def tiles(run: Run, served: pd.DataFrame) -> list[Json]:
    """The headlines: what came out, who gained, what it cost; ``served`` has each device's accuracies."""
    found = (*_groups(run, served), *_cost(run, len(served)))
    return [{"label": label, "value": value, "why": why} for label, value, why in found]


def _groups(run: Run, served: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    tree = run.read_tree()
    splits = sorted((node.split for node in tree.nodes.values() if node.split), key=lambda split: split.round)
    when = f"first split in round {splits[0].round} ({duration(splits[0].seconds)})" if splits else "no split"
    yield "Clusters found", str(len(tree.leaves())), "; ".join(filter(None, (truth(run), when)))
    score = run.score
    before, after = (_short(score, served[which].min()) for which in ("one", "own"))
    if splits:
        yield "Worst-served device", f"{before} → {after}", f"{score.title} under one model for all, and under its own"
    else:
        yield "Worst-served device", after, f"{score.title} under the one model"


def _cost(run: Run, devices: int) -> Iterator[tuple[str, str, str]]:
    rounds, clusters, uploads = run.rounds, run.clusters, run.uploads
    longest = f", the longest round {duration(float(rounds['seconds'].max()))}" if len(rounds) else ""
    clock = "Measured time" if run.real else "Simulated time"
    yield clock, duration(float(rounds["seconds"].sum())), f"{len(rounds)} rounds{longest}"
    sent, everybody = int((uploads["missed"] == 0).sum()), len(rounds) * devices
    stopped = clusters[clusters["verdict"] == "stopped"]
    spared = int((stopped["members"] - stopped["heard"]).sum())
    saved = everybody - sent
    yield "Uploads saved", f"{saved} of {everybody}", f"against everybody in every round{saved_because(saved, spared)}"
    if not run.real:
        yield "Energy", f"{number(float(rounds['energy_joules'].sum()))} J", f"of all devices, {sent} uploads"


def truth(run: Run) -> str:
    """How far the clusters of a finished run are the planted groups; nothing where none were planted."""
    rand = run.summary["adjusted_rand_index"] if run.finished else None
    return "" if rand is None else "exactly the planted groups" if rand == 1 else f"adjusted Rand index {rand:.2f}"


def saved_because(saved: int, spared: int) -> str:
    """Why uploads were saved, where stopped clusters spared the devices some of them."""
    few = "because stopped clusters send only a few"
    return "" if not min(spared, saved) else f", {few}" if spared >= saved else f"; {spared} of them {few}"


def _short(score: Score, value: float) -> str:
    """Of a percentage no decimals."""
    return "–" if pd.isna(value) else f"{100 * value:.0f} %" if score.factor == 100 else score.text(value)


def numbers(run: Run) -> list[list[str]]:
    """Every metric of a finished run that has a value: title, value, meaning."""
    if not run.finished:
        return []
    summary, unknown = run.summary, {"energy_joules"} if run.real else set()

    def words(text: str) -> str:
        """Real devices' seconds are measured."""
        return text.replace("Simulated ", "Measured ").replace("simulated ", "measured ") if run.real else text

    return [
        [words(metric.title), metric.text(summary[metric.name]), words(metric.meaning)]
        for metric in told_of(run.score, run.own_metrics)
        if summary.get(metric.name) is not None and metric.name not in unknown
    ]
