"""Does cross-evaluation find the groups, and leave alone what is one? ``python -m benchmarks.clustering``.

One and the same config for every population: only what a user's situation would change does change (data, model,
learning rate, epochs, groups, label skew, sizes, who takes part). Results are appended to a file as they come, so that
the grid can be stopped and gone on with; ``--page`` puts its tables into docs/explanation/clustering.md.
"""

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.machine import around, markdown
from fedclade.clustering import bipartition
from fedclade.core.records import RoundRecord
from fedclade.core.state import State
from fedclade.core.updates import cosine_similarity, update_norms
from fedclade.fleet.simulated.trainer import Trainer
from fedclade.simulation import Experiment

GROUPS = {
    "rotated, 2 groups": ("rotate", (10, 10)),
    "rotated, 4 groups": ("rotate", (5, 5, 5, 5)),
    "labels permuted, 3 groups": ("permute-labels", (7, 7, 6)),
    "labels permuted, 4 groups": ("permute-labels", (5, 5, 5, 5)),
    "disjoint classes, 3 groups": ("disjoint-classes", (7, 7, 6)),
    "rotated, 2 of 20 devices": ("rotate", (18, 2)),
}
ALONE = {"i.i.d.": ("iid", 1.0), "label skew, α = 1": ("dirichlet", 1.0), "label skew, α = 0.5": ("dirichlet", 0.5)}
NETS = (
    ("mnist5k", "mlp"),
    ("digits", "mlp"),
    ("femnist", "mlp"),
    ("mnist5k", "cnn"),
    ("cifar10", "mlp"),
    ("femnist", "cnn"),
    ("cifar10", "cnn"),
)
RATES_AND_EPOCHS = ((1.0, 5), (3.0, 1), (0.3, 10), (1.0, 10), (3.0, 5), (1.0, 1), (0.3, 5))
IMAGES = {"mnist5k": 5000, "digits": 1797, "femnist": 4800, "cifar10": 4800}
ROUNDS = {1: 60, 5: 30, 10: 25}
LATER = 3  # no splits in the first third of the rounds, to compare with

Cell = dict[str, Any]


def cells(seed: int = 1) -> Iterator[Cell]:
    """Every data set and model with every kind of groups; the other settings take turns."""
    settings, skews, sizes = cycle(RATES_AND_EPOCHS), cycle((1.0, 0.5)), cycle(("equal", "equal", "power-law"))
    for groups in GROUPS:
        for source, model in NETS:
            for _ in range(2 if model == "mlp" and source != "cifar10" else 1):
                yield cell_of(source, model, groups, *next(settings), f"α = {next(skews)}", next(sizes), seed=seed)
    for each, some in ((seed, NETS), (seed + 1, NETS[:3])):
        for alone in ALONE:
            for source, model in some:
                yield cell_of(source, model, alone, *next(settings), "", next(sizes), seed=each)
    for nets in (NETS[:3], NETS[3:6]):
        for groups in GROUPS:
            for source, model in nets:
                yield cell_of(source, model, groups, *next(settings), "α = 1.0", "equal", part="half", seed=seed)
        for source, model in nets:
            yield cell_of(source, model, "i.i.d.", *next(settings), "", "equal", part="half", seed=seed)
    for alone in list(ALONE)[1:]:
        for source, model in NETS[:3]:
            yield cell_of(source, model, alone, *next(settings), "", "equal", part="half", seed=seed)


def cell_of(
    source: str,
    model: str,
    groups: str,
    rate: float,
    epochs: int,
    skew: str,
    sizes: str,
    part: str = "all",
    seed: int = 1,
) -> Cell:
    """One population and how it trains; ``skew``: within groups, as text."""
    name = "; ".join(
        filter(None, (f"{source} {model}", groups, skew, sizes, f"E = {epochs}, η × {rate:g}", f"{part} take part"))
    )
    return {
        "name": f"{name}; seed {seed}",
        "source": source,
        "model": model,
        "groups": groups,
        "rate": rate,
        "epochs": epochs,
        "alpha": float(skew.rpartition(" ")[2]) if skew else ALONE[groups][1],
        "sizes": sizes,
        "part": part,
        "seed": seed,
    }


def config_of(cell: Cell) -> dict[str, Any]:
    """A cell as a config; nothing in it is about clustering."""
    kind, groups = GROUPS.get(cell["groups"], ("none", (1,)))
    partition = "dirichlet" if kind != "none" else ALONE[cell["groups"]][0]
    population = {"source": cell["source"], "devices": 20, "partition": partition, "alpha": cell["alpha"]}
    population |= {"sizes": cell["sizes"]}
    if cell["sizes"] == "power-law":
        population |= {"min_samples": 30, "max_samples": 1500}
    if cell["sizes"] == "equal" or cell["source"] in ("mnist5k", "digits"):
        population |= {"samples": IMAGES[cell["source"]]}
    halves = {"policy": "random", "per_round": 10} if cell["part"] == "half" else {}
    rounds = ROUNDS[cell["epochs"]] * (2 if halves else 1)
    return {
        "run": {"seed": cell["seed"], "rounds": rounds, "evaluate_every": rounds, "conventional": "continued"},
        "population": population,
        "incongruence": {"kind": kind, "groups": list(groups)},
        "model": {"name": cell["model"]},
        "training": {
            "epochs": cell["epochs"],
            "learning_rate": 0.01 * cell["rate"],
            "engine": "batched" if cell["model"] == "mlp" else "workers",
            "workers": 1,
        },
        "scheduling": halves,
    }


def run(cell: Cell) -> Cell:
    """The outcome of a cell; for MLPs also that of later splits, and of the best norm thresholds for the first one."""
    config = config_of(cell)
    experiment = Experiment(config)
    outcome = outcome_of(experiment)
    if cell["groups"] in GROUPS and cell["model"] == "mlp" and cell["part"] == "all":
        population = experiment.population
        outcome["best_thresholds"] = best_thresholds(
            experiment.trainer, population.samples, population.group, outcome["rounds"]
        )
        later = Experiment(config | {"cross_evaluation": {"warmup_rounds": config["run"]["rounds"] // LATER}})
        outcome["later_mean"] = outcome_of(later)["accuracy_mean"]
        later.trainer.close()
    experiment.trainer.close()
    return cell | outcome


def outcome_of(experiment: Experiment) -> Cell:
    """Play a run to its end: the clusters it found, and how well they serve."""
    group, first = experiment.population.group, None
    for state, record in played(experiment):  # noqa: B007 - the last ones are used below
        if first is None and len(state.tree.leaves()) > 1 and _pure(np.array(state.tree.leaf_of()), group):
            first = state.round
    assert record.evaluation is not None
    own, one = record.evaluation.score, record.evaluation.conventional_score
    return {
        "adjusted_rand_index": float(adjusted_rand_score(group, state.tree.leaf_of())),
        "clusters": len(state.tree.leaves()),
        "first_right_split": first,
        "accuracy_mean": float(own.mean()),
        "accuracy_min": float(own.min()),
        "one_model_mean": float(one.mean()),
        "one_model_min": float(one.min()),
        "rounds": state.round,
    }


def played(experiment: Experiment) -> Iterator[tuple[State, RoundRecord]]:
    """A run round by round, of which nothing is kept; its trainer is left open."""
    server, state = experiment.server, experiment.server.initial_state()
    while server.finished(state) is None:
        result = server.step(state)
        assert result is not None
        state, record = result
        yield state, record


def best_thresholds(trainer: Trainer, samples: np.ndarray, group: np.ndarray, rounds: int) -> int | None:
    """The earliest round in which some pair of norm thresholds makes a right first split and no wrong one before.

    One run without splits tells it for all pairs at once: thresholds split in the first round r with mean norm < ε1 and
    largest norm > ε2, so round r can be had unless some earlier round with a wrong cut has a lower mean and a larger
    maximum. The cut is by average linkage; the paper's own is right less often.
    """
    devices = np.arange(len(group))
    model, wrong = trainer.initial_model(), list[tuple[float, float]]()
    weights = (samples / samples.sum()).astype(np.float32)
    for round_ in range(1, rounds + 1):
        updates = trainer.train(round_, model[None], devices, devices * 0)
        side = bipartition(cosine_similarity(updates), "average", 2)
        mean, largest = float(np.linalg.norm(updates.mean(axis=0))), float(update_norms(updates).max())
        if side is not None and _pure(side, group):
            if not any(before <= mean and most >= largest for before, most in wrong):
                return round_
        else:
            wrong.append((mean, largest))
        model = model + weights @ updates
    return None


def _pure(cluster: np.ndarray, group: np.ndarray) -> bool:
    """Whether no planted group is spread over several clusters."""
    return all(len(set(cluster[group == g].tolist())) == 1 for g in set(group.tolist()))


def tables(results: list[Cell]) -> str:
    """What came out, by kind of population; then every miss."""
    rows = []
    for part in ("all", "half"):
        for groups in (*GROUPS, *ALONE):
            mine = [r for r in results if r["groups"] == groups and r["part"] == part]
            if mine:
                gains = _gains(mine, "one_model_mean"), _gains([r for r in mine if "later_mean" in r], "later_mean")
                rows.append((groups, part, len(mine), sum(map(right, mine)), *_splits(mine), *gains))
    head = (
        "population",
        "take part",
        "cells",
        "right",
        "first right split, round (median)",
        "norm thresholds at best (median)",
        "no later than they",
        "mean accuracy over one model's, points",
        "over splits after a third of the rounds",
    )
    misses = [
        (
            r["name"],
            f"{r['adjusted_rand_index']:.2f}",
            r["clusters"],
            f"{100 * (r['accuracy_mean'] - r['one_model_mean']):+.1f}",
        )
        for r in results
        if not right(r)
    ]
    planted = [r for r in results if r["groups"] in GROUPS]
    alone = [r for r in results if r["groups"] == "i.i.d."]
    lines = [
        markdown(head, rows),
        f"Groups found exactly (adjusted Rand index 1.0): {sum(map(right, planted))} of {len(planted)}; "
        f"i.i.d. left whole: {sum(map(right, alone))} of {len(alone)}.",
        "Every cell that did not come out right:",
        markdown(("cell", "adjusted Rand index", "clusters", "mean accuracy over one model's, points"), misses),
    ]
    return "\n\n".join(lines)


def right(result: Cell) -> bool:
    """Groups: found exactly. i.i.d.: not split. Label skew alone: nobody worse off by more than a point."""
    if result["groups"] in GROUPS:
        return bool(result["adjusted_rand_index"] == 1.0)
    if result["groups"] == "i.i.d.":
        return bool(result["clusters"] == 1)
    worst = min(result["accuracy_mean"] - result["one_model_mean"], result["accuracy_min"] - result["one_model_min"])
    return bool(worst >= -0.01)


def _splits(results: list[Cell]) -> tuple[str, str, str]:
    both = [(r["first_right_split"], r["best_thresholds"]) for r in results if "best_thresholds" in r]
    firsts = [r["first_right_split"] for r in results if r["first_right_split"] is not None]
    fixed = [theirs for _, theirs in both if theirs is not None]
    sooner = sum(theirs is None or (ours is not None and ours <= theirs) for ours, theirs in both)
    return (
        f"{np.median(firsts):g}" if firsts and results[0]["groups"] in GROUPS else "",
        f"{np.median(fixed):g} ({len(both) - len(fixed)} never)" if fixed else "",
        f"{sooner} of {len(both)}" if both else "",
    )


def _gains(results: list[Cell], over: str) -> str:
    differences = [100 * (r["accuracy_mean"] - r[over]) for r in results]
    return f"{np.median(differences):+.1f} (least {min(differences):+.1f})" if differences else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clustering", description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="cells with this in their name")
    parser.add_argument("--seed", type=int, default=1, help="of the populations; the page's is 1")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "clustering.jsonl")
    parser.add_argument(
        "--page", type=Path, help="put the tables into their place in this page: docs/explanation/clustering.md"
    )
    arguments = parser.parse_args()
    path: Path = arguments.results
    path.parent.mkdir(parents=True, exist_ok=True)
    grid = {cell["name"]: cell for cell in cells(arguments.seed)}
    written = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = [result for result in written if result["name"] in grid]
    known = {result["name"] for result in done}
    todo = [cell for name, cell in grid.items() if name not in known and arguments.only in name]
    with ProcessPoolExecutor(arguments.processes) as pool, path.open("a") as file:
        for number, future in enumerate(as_completed([pool.submit(run, cell) for cell in todo]), 1):
            result = future.result()
            done.append(result)
            print(json.dumps(result), file=file, flush=True)
            outcome = (
                "right" if right(result) else f"ARI {result['adjusted_rand_index']:.2f}, {result['clusters']} clusters"
            )
            print(f"{number} of {len(todo)}: {result['name']}: {outcome}", flush=True)
    text = tables(done)
    print(text)
    if arguments.page:
        before, after = around(arguments.page, "grid")
        arguments.page.write_text(f"{before}{text}\n{after}", "utf-8")


if __name__ == "__main__":
    main()
