"""The numbers that the page of one run shows."""

from pathlib import Path

import numpy as np
import pandas as pd

from fedclade.config import fields_of
from fedclade.core.state import CONVENTIONAL, State
from fedclade.core.task import Score
from fedclade.core.tree import Tree
from fedclade.metrics.fairness import jain
from fedclade.report.listener import Listener
from fedclade.report.page.drift import drift_data
from fedclade.report.page.headlines import lead, numbers, tiles
from fedclade.report.page.large import large_data
from fedclade.report.page.shell import Json, made_from, packed, rounded, score_data, shared_folder, write_page
from fedclade.runs import Run
from fedclade.runs.drift import groups_at_end
from fedclade.runs.problem import check_run


def write_run_page(run: Run, single_file: bool = False) -> Path:
    """Write ``report.html`` into the run's directory, whole or not at all; the run may be going on.

    Plotly is shared with the pages of other runs where there is a folder for that, unless ``single_file``.
    """
    share = None if single_file else shared_folder(run.folder)
    if not run.config.by_device:
        return write_page(run.folder / "report.html", "large", large_data(run), share)
    return write_page(run.folder / "report.html", "run", run_data(run), share)


class RunPage(Listener):
    """Writes a run's page when the run has ended and its directory is complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ended(self, state: State, why: str) -> None:
        """Write it."""
        write_run_page(Run(self._folder))


def run_data(run: Run) -> Json:
    """All that the page of one run shows."""
    config, rounds, devices, uploads, models = run.config, run.rounds, run.devices, run.uploads, run.models
    tree = run.read_tree()
    each = served(run)
    participation = _participation(uploads, len(devices))
    continued = config.run.conventional == "continued"
    return {
        "name": f"{run.folder.resolve().name}: {len(devices)} devices, policy {config.scheduling.policy}, "
        f"method {config.clustering.method}",
        "method": config.clustering.method,
        "planted": run.planted,
        "real": run.real,
        "seconds": "measured seconds" if run.real else "simulated seconds",
        "lead": lead(run),
        "finished": run.finished,
        "banner": f"Not finished: {len(rounds)} of {config.run.rounds} rounds so far."
        f" Refresh with: fedclade report {run.folder}",
        "tiles": tiles(run, each),
        "score": score_data(run.score),
        "one_model": "trained on by everybody" if continued else "as it stood at the first split",
        "jain": jain(participation["uploads"].to_numpy(np.float64)),
        "epsilons": list(config.epsilons),
        "norm": config.norm_thresholds.norm,
        "rounds": _rounds(rounds, run.score),
        "drift": drift_data(run),
        "clusters": _norms(run.clusters),
        "tree": _nodes(run, tree, each),
        "splits": _splits(run, devices),
        "uploads": _uploads(uploads, len(rounds)),
        "models": models_data(models, run.score),
        "devices": {
            "device": devices["device"].tolist(),
            "own": rounded(each["own"]),
            "one": rounded(each["one"]),
            "uploads": participation["uploads"].astype(int).tolist(),
            **{name: rounded(participation[name]) for name in ("compute", "wait", "upload")},
        },
        "problem": [
            [constraint.name, constraint.meaning, "yes" if constraint.holds else "no", constraint.detail]
            for constraint in (check_run(run) if run.finished else [])
        ],
        "numbers": numbers(run),
        "config": [
            [name, "unset" if value is None else str(value), meaning] for name, value, meaning in fields_of(config)
        ],
        "footer": made_from(run.folder),
    }


def _norms(clusters: pd.DataFrame) -> Json:
    """Of every cluster: the mean and the largest update norm of its rounds."""
    return {
        str(node): {
            "round": part["round"].tolist(),
            "mean": rounded(part["mean_norm"]),
            "max": rounded(part["max_norm"]),
        }
        for node, part in clusters.groupby("node")
    }


def served(run: Run) -> pd.DataFrame:
    """One row a device: score under its own model and under the one for all; empty before any evaluation."""
    tree, models, score = run.read_tree(), run.models, run.score.name
    if len(models):
        table = models.pivot(index="device", columns="model", values=score)
        leaf_of = tree.leaf_of()
        own = {device: table.at[device, leaf_of[device]] for device in table.index}
        both = pd.DataFrame({"own": pd.Series(own).sort_index(), "one": table[CONVENTIONAL]})
        return both.reindex(run.devices["device"])  # of many devices, only a sample was evaluated
    seen = run.evaluations
    last = seen[seen["round"] == seen["round"].max()].set_index("device")
    both = pd.DataFrame({"own": last[score], "one": last[f"conventional_{score}"]})
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


def _rounds(rounds: pd.DataFrame, score: Score) -> Json:
    name = score.name
    evaluated = rounds.dropna(subset=[f"{name}_mean"])
    return {
        "round": rounds["round"].tolist(),
        "seconds": rounded(rounds["seconds"]),
        "end": rounded(rounds["start_seconds"] + rounds["seconds"]),
        **{name: rounded(rounds[f"{name}_seconds"]) for name in ("makespan", "broadcast", "asking")},
        "evaluated": {
            "round": evaluated["round"].tolist(),
            "min": rounded(evaluated[f"{name}_min"]),
            "mean": rounded(evaluated[f"{name}_mean"]),
            "max": rounded(evaluated[f"{name}_max"]),
            "one_min": rounded(evaluated[f"conventional_{name}_min"]),
            "one_mean": rounded(evaluated[f"conventional_{name}_mean"]),
        },
    }


def _nodes(run: Run, tree: Tree, served: pd.DataFrame) -> list[Json]:
    """Every model there ever was; ``in_use`` are the leaves, ``last_round`` is the last in which it was one."""
    in_use, last = {leaf.name for leaf in tree.leaves()}, run.clusters.groupby("node")["round"].max()
    group = pd.Series(groups_at_end(run.rows("devices"), run.rows("events")))
    return [
        {
            **_node(node, served, group),
            "in_use": node["name"] in in_use,
            "last_round": int(last.get(node["name"], node["born_round"])),
        }
        for node in tree.to_json()
    ]


def _node(node: Json, served: pd.DataFrame, group: pd.Series) -> Json:
    own = served["own"].reindex(node["members"])
    planted = group.reindex(node["members"]).value_counts().sort_index()
    low, mean, high = rounded([own.min(), own.mean(), own.max()])
    return {
        **{
            name: node[name]
            for name in ("name", "children", "members", "born_round", "stopped_round", "merged_into", "split")
        },
        "planted": ", ".join(f"{count} of group {group}" for group, count in planted.items()),
        "worst": low,
        "mean": mean,
        "best": high,
    }


def _splits(run: Run, devices: pd.DataFrame) -> list[Json]:
    """The matrix of every split: the devices child by child, each child's ordered by planted group."""
    group = dict(zip(devices["device"], devices["planted_group"], strict=True))
    events = run.events.query("kind == 'split'").set_index(["round", "node"])["detail"]
    found: list[Json] = []
    for split in run.splits.to_dict("records"):
        event, ids = events.loc[(split["round"], split["node"])], split["devices"]
        child = {device: number for number, part in enumerate(event["parts"]) for device in part}
        order = sorted(range(len(ids)), key=lambda i: (child[ids[i]], group[ids[i]], ids[i]))
        found.append(
            {
                "round": split["round"],
                "node": split["node"],
                "devices": [ids[i] for i in order],
                "ends": np.cumsum(np.bincount([child[device] for device in ids])).tolist(),
                "by": event.get("by"),
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


def models_data(models: pd.DataFrame, score: Score) -> Json:
    """Models × devices: score and membership."""
    if models.empty:
        return {"names": [], "score": [], "member": []}
    names = [CONVENTIONAL, *sorted(set(models["model"]) - {CONVENTIONAL})]
    scores = models.pivot(index="model", columns="device", values=score.name).loc[names]
    member = models.pivot(index="model", columns="device", values="member").loc[names]
    return {
        "names": names,
        "score": [rounded(row) for row in scores.to_numpy()],
        "member": member.to_numpy().tolist(),
    }
