"""The page of one run: a single HTML file that needs neither a server nor a network.

Python gathers the numbers, small and rounded; the page's own script draws them with plotly, which is inside the file.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclade.clustering.tree import Tree
from fedclade.config import fields_of
from fedclade.core.state import CONVENTIONAL
from fedclade.edge import duration
from fedclade.metrics import fairness
from fedclade.metrics.registry import METRICS
from fedclade.runs import Run, write_beside
from fedclade.runs.problem import check_run

DIGITS = 5  # of a number on the page
Json = Mapping[str, Any]


def write_run_page(run: Run) -> Path:
    """Write ``report.html`` into the run's directory, whole or not at all; the run may be going on."""
    return write_page(run.folder / "report.html", "run", run_data(run))


def write_page(path: Path, kind: str, data: Json) -> Path:
    """Fill the shell: body, style, scripts and data of one kind of page."""
    from plotly.offline import get_plotlyjs

    page = _asset("page.html")
    for mark, text in (
        ("@TITLE@", "fedclade"),
        ("@STYLE@", _asset("page.css")),
        ("@BODY@", _asset(f"{kind}.html")),
        ("@SCRIPT@", _asset("common.js") + _asset(f"{kind}.js")),
        ("@DATA@", json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")),
        ("@PLOTLY@", get_plotlyjs()),
    ):
        before, after = page.split(mark)
        page = before + text + after
    write_beside(path, page.encode())
    return path


def _asset(name: str) -> str:
    return (resources.files("fedclade.report") / "assets" / name).read_text("utf-8")


def rounded(values: Iterable[Any]) -> list[float | None]:
    """Numbers for the page: few digits, None for what does not exist."""
    return [None if pd.isna(value) else float(f"{value:.{DIGITS}g}") for value in values]


def packed(values: Any, kind: str) -> Json:
    """A long list of numbers as base64 of a little-endian typed array (``i1``, ``i2`` or ``f4``)."""
    return {"type": kind, "base64": base64.b64encode(np.asarray(values).astype(f"<{kind}").tobytes()).decode()}


def run_data(run: Run) -> Json:
    """All that the page of one run shows."""
    config, rounds, devices, uploads = run.config, run.rounds, run.devices, run.uploads
    clusters = run.clusters
    tree = run.read_tree()
    models = run.models
    served = _served(run, tree, models)
    participation = _participation(uploads, len(devices))
    planned = config.run.rounds
    done = len(rounds)
    continued = config.run.conventional == "continued"
    one_model = "trained on by everybody" if continued else "as it stood at the first split"
    return {
        "name": f"{run.folder.resolve().name}: {len(devices)} devices, policy {config.scheduling.policy}",
        "lead": _lead(run, rounds, tree),
        "finished": run.finished,
        "banner": f"Not finished: {done} of {planned} rounds so far. Refresh with: fedclade report {run.folder}",
        "tiles": _tiles(run, rounds, clusters, uploads, tree, served),
        "one_model": one_model,
        "jain": fairness.jain(participation["uploads"].to_numpy(np.float64)),
        "epsilons": list(config.clustering.epsilons),
        "norm": config.clustering.norm,
        "rounds": _rounds(rounds),
        "clusters": {
            str(node): {
                "round": part["round"].tolist(),
                "mean": rounded(part["mean_norm"]),
                "max": rounded(part["max_norm"]),
            }
            for node, part in clusters.groupby("node")
        },
        "tree": _nodes(tree, served, devices),
        "splits": _splits(run, devices),
        "uploads": _uploads(uploads, done),
        "models": models_data(models),
        "devices": {
            "device": devices["device"].tolist(),
            "own": rounded(served["own"]),
            "one": rounded(served["one"]),
            "uploads": participation["uploads"].astype(int).tolist(),
            **{name: rounded(participation[name]) for name in ("compute", "wait", "upload")},
        },
        "problem": [
            [constraint.name, constraint.meaning, "yes" if constraint.holds else "no", constraint.detail]
            for constraint in (check_run(run) if run.finished else [])
        ],
        "numbers": _numbers(run),
        "config": [
            [name, "unset" if value is None else str(value), meaning] for name, value, meaning in fields_of(config)
        ],
        "footer": made_from(run.folder),
    }


def _numbers(run: Run) -> list[list[str]]:
    """Every metric of a finished run: title, value, meaning."""
    if not run.finished:
        return []
    summary = run.summary
    return [
        [metric.title, metric.text(summary[metric.name]), metric.meaning]
        for metric in (*METRICS.values(), *run.own_metrics)
        if metric.name in summary
    ]


def made_from(folder: Path) -> str:
    """The footer."""
    return f"Made by fedclade {metadata.version('fedclade')} from {folder.resolve().name}. Works offline."


def _served(run: Run, tree: Tree, models: pd.DataFrame) -> pd.DataFrame:
    """One row a device: accuracy under its own model and under the one for all; empty before any evaluation."""
    if len(models):
        table = models.pivot(index="device", columns="model", values="accuracy")
        own = {device: table.at[device, leaf.name] for leaf in tree.leaves() for device in leaf.devices}
        return pd.DataFrame({"own": pd.Series(own).sort_index(), "one": table[CONVENTIONAL]})
    seen = run.evaluations
    last = seen[seen["round"] == seen["round"].max()].set_index("device")
    both = pd.DataFrame({"own": last["accuracy"], "one": last["conventional_accuracy"]})
    return both.reindex(run.devices["device"])


def _participation(uploads: pd.DataFrame, devices: int) -> pd.DataFrame:
    """One row a device: how often it uploaded, and the mean seconds of computing, waiting and uploading."""
    sent = uploads[uploads["missed"] == 0]
    times = pd.DataFrame(
        {
            "device": sent["device"],
            "compute": sent["ready_seconds"],
            "wait": sent["start_seconds"] - sent["ready_seconds"],
            "upload": sent["end_seconds"] - sent["start_seconds"],
        }
    ).groupby("device")
    table = times.mean().reindex(range(devices))
    table["uploads"] = times.size().reindex(range(devices), fill_value=0)
    return table


def _rounds(rounds: pd.DataFrame) -> Json:
    evaluated = rounds.dropna(subset=["accuracy_mean"])
    return {
        "round": rounds["round"].tolist(),
        "seconds": rounded(rounds["seconds"]),
        "end": rounded(rounds["start_seconds"] + rounds["seconds"]),
        "evaluated": {
            "round": evaluated["round"].tolist(),
            "min": rounded(evaluated["accuracy_min"]),
            "mean": rounded(evaluated["accuracy_mean"]),
            "max": rounded(evaluated["accuracy_max"]),
            "one_min": rounded(evaluated["conventional_accuracy_min"]),
            "one_mean": rounded(evaluated["conventional_accuracy_mean"]),
        },
    }


def _nodes(tree: Tree, served: pd.DataFrame, devices: pd.DataFrame) -> list[Json]:
    """Every model there ever was; ``in_use`` are the leaves."""
    in_use = {leaf.name for leaf in tree.leaves()}
    return [{**_node(node, served, devices), "in_use": node["name"] in in_use} for node in tree.to_json()]


def _node(node: Json, served: pd.DataFrame, devices: pd.DataFrame) -> Json:
    own = served["own"].reindex(node["members"])
    planted = devices.set_index("device")["planted_group"].reindex(node["members"]).value_counts().sort_index()
    low, mean, high = rounded([own.min(), own.mean(), own.max()])
    return {
        **{
            name: node[name]
            for name in ("name", "children", "members", "born_round", "stopped_round", "merged_into", "split")
        },
        "planted": ", ".join(f"{count} of group {group}" for group, count in planted.items()),
        "accuracy_min": low,
        "accuracy_mean": mean,
        "accuracy_max": high,
    }


def _splits(run: Run, devices: pd.DataFrame) -> list[Json]:
    """The matrix of every split: first child's devices before the second's, each ordered by planted group."""
    group = dict(zip(devices["device"], devices["planted_group"], strict=True))
    events = run.events.query("kind == 'split'").set_index(["round", "node"])["detail"]
    found: list[Json] = []
    for split in run.splits.to_dict("records"):
        event, ids = events.loc[(split["round"], split["node"])], split["devices"]
        first = set(event["first"])
        order = sorted(range(len(ids)), key=lambda i: (ids[i] not in first, group[ids[i]], ids[i]))
        found.append(
            {
                "round": split["round"],
                "node": split["node"],
                "devices": [ids[i] for i in order],
                "first": sum(device in first for device in ids),
                "by": event["by"],
                "likeness": packed(np.rint(split["likeness"][np.ix_(order, order)] * 127), "i1"),
            }
        )
    return found


def _uploads(uploads: pd.DataFrame, rounds: int) -> Json:
    """All timelines; ``first[r - 1]`` is where round r begins."""
    uploads = uploads.sort_values("round", kind="stable")
    return {
        "first": np.searchsorted(uploads["round"], np.arange(1, rounds + 2)).tolist(),
        "device": packed(uploads["device"], "i2"),
        "set": packed(uploads["aggregation_set"], "i2"),
        "subchannel": packed(uploads["subchannel"], "i2"),
        "ready": packed(uploads["ready_seconds"], "f4"),
        "start": packed(uploads["start_seconds"].fillna(0.0), "f4"),
        "end": packed(uploads["end_seconds"].fillna(0.0), "f4"),
    }


def models_data(models: pd.DataFrame) -> Json:
    """Models × devices: accuracy and membership."""
    if models.empty:
        return {"names": [], "accuracy": [], "member": []}
    names = [CONVENTIONAL, *sorted(set(models["model"]) - {CONVENTIONAL})]
    accuracy = models.pivot(index="model", columns="device", values="accuracy").loc[names]
    member = models.pivot(index="model", columns="device", values="member").loc[names]
    return {
        "names": names,
        "accuracy": [rounded(row) for row in accuracy.to_numpy()],
        "member": member.to_numpy().tolist(),
    }


# -------------------------------------------------------------------------------- words


def _lead(run: Run, rounds: pd.DataFrame, tree: Tree) -> str:
    population = run.config.population
    leaves = len(tree.leaves())
    served = "one model" if leaves == 1 else f"{leaves} models"
    return (
        f"{population.devices} devices with {population.source} data share {run.config.edge.subchannels} sub-channels"
        f" of one base station. After {len(rounds)} rounds they are served by {served}."
    )


def _tiles(
    run: Run,
    rounds: pd.DataFrame,
    clusters: pd.DataFrame,
    uploads: pd.DataFrame,
    tree: Tree,
    served: pd.DataFrame,
) -> list[Json]:
    """The headlines: what came out, who gained, what it cost."""
    splits = sorted((node.split for node in tree.nodes.values() if node.split), key=lambda split: split.round)
    when = f"first split in round {splits[0].round} ({duration(splits[0].seconds)})" if splits else "no split"
    rand = run.summary["adjusted_rand_index"] if run.finished else None
    truth = "" if rand is None else "exactly the planted groups; " if rand == 1 else f"adjusted Rand index {rand:.2f}; "
    before, after = served["one"].min(), served["own"].min()
    sent, everybody = int((uploads["missed"] == 0).sum()), len(rounds) * len(served)
    stopped = clusters[clusters["verdict"] == "stopped"]
    greedy = int((stopped["members"] - stopped["heard"]).sum())
    seconds = float(rounds["seconds"].sum())
    longest = f", the longest round {duration(float(rounds['seconds'].max()))}" if len(rounds) else ""

    def tile(label: str, value: str, why: str) -> Json:
        return {"label": label, "value": value, "why": why}

    def share(value: float) -> str:
        return "–" if pd.isna(value) else f"{100 * value:.0f} %"

    return [
        tile("Clusters found", str(len(tree.leaves())), truth + when),
        tile(
            "Worst-served device",
            share(after) if not splits else f"{share(before)} → {share(after)}",
            "accuracy under one model for all, and under its own" if splits else "accuracy under the one model",
        ),
        tile("Simulated time", duration(seconds), f"{len(rounds)} rounds{longest}"),
        tile(
            "Uploads saved",
            f"{everybody - sent} of {everybody}",
            f"against everybody in every round; {greedy} of them because stopped clusters send only a few",
        ),
        tile("Energy", f"{float(rounds['energy_joules'].sum()):.3g} J", f"of all devices, {sent} uploads"),
    ]
