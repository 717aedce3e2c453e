"""Does cross-evaluation find planted groups among writers, and nothing else? ``python -m benchmarks.writers``.

FEMNIST by writer: every device holds the images of one person, so devices differ one by one, with groups or without.
Needs FEMNIST in ``$FEDCLADE_DATA``. *Right* is: planted groups found exactly; where nothing is planted, one cluster, or
neither the mean nor the worst device worse than with one model by more than a point. Beside it run the oracle, which is
told the groups, and IFCA, which is told how many there are. Results are appended to a file as they come, so that it can
be stopped and gone on with.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clustering import outcome_of
from benchmarks.machine import around, markdown
from fedclade import Experiment

Cell = dict[str, Any]
HEAD = (
    "writers",
    "model",
    "groups",
    "take part",
    "seed",
    "clusters",
    "ARI",
    "right",
    "mean",
    "worst",
    "one model",
    "worst",
    "oracle",
    "worst",
)
RIVALS = ("oracle", "ifca")


def cells(writers: int, model: str, seed: int, rivals: Sequence[str] = RIVALS) -> Iterator[Cell]:
    """No groups, two to four rotated or permuted ones, and one of a tenth of the writers."""
    quarter, fifth, tenth = writers // 4, writers // 5, max(2, writers // 10)
    two, three = [writers - quarter, quarter], [writers - quarter - fifth, quarter, fifth]
    common = {"writers": writers, "model": model, "seed": seed, "rivals": list(rivals)}
    for part in ("all", "half"):
        yield common | {"kind": "none", "groups": [1], "part": part, "rivals": []}
        for kind, sizes in (
            ("rotate", [two, three, [writers - 3 * quarter, quarter, quarter, quarter], [writers - tenth, tenth]]),
            ("permute-labels", [two, three, [writers - tenth, tenth]]),
        ):
            for groups in sizes:
                yield common | {"kind": kind, "groups": groups, "part": part}


def config_of(cell: Cell, method: str = "cross-evaluation") -> dict[str, Any]:
    """A cell as a config: the quickstart's training; nothing in it is about clustering but what IFCA must be told."""
    half = cell["part"] == "half"
    rounds = 60 if half else 30
    return {
        "run": {"seed": cell["seed"], "rounds": rounds, "evaluate_every": rounds, "conventional": "continued"},
        "population": {"source": "femnist", "partition": "writer", "devices": cell["writers"]},
        "incongruence": {"kind": cell["kind"], "groups": cell["groups"]},
        "model": {"name": cell["model"]},
        "training": {"epochs": 5, "learning_rate": 0.05, "workers": 1},
        "scheduling": {"policy": "random", "per_round": cell["writers"] // 2} if half else {},
        "clustering": {"method": method},
        "ifca": {"clusters": len(cell["groups"])},
    }


def run(cell: Cell) -> Cell:
    """The outcome of a cell, and what its rivals made of it."""
    rivals = {name: played_out(config_of(cell, name)) for name in cell["rivals"]}
    return cell | played_out(config_of(cell)) | {"by_rivals": rivals}


def played_out(config: dict[str, Any]) -> Cell:
    """The outcome of one run."""
    experiment = Experiment(config)
    outcome = outcome_of(experiment)
    experiment.trainer.close()
    return outcome


def right(cell: Cell) -> bool:
    if cell["kind"] != "none":
        return bool(cell["adjusted_rand_index"] == 1.0)
    harm = max(cell[f"one_model_{name}"] - cell[f"accuracy_{name}"] for name in ("mean", "min"))
    return bool(cell["clusters"] == 1 or harm <= 0.01)


def groups_of(cell: Cell) -> str:
    return "none" if cell["kind"] == "none" else f"{cell['kind']}, {', '.join(map(str, cell['groups']))}"


def row(cell: Cell) -> tuple[str, ...]:
    told = [cell[name] for name in ("accuracy_mean", "accuracy_min", "one_model_mean", "one_model_min")]
    oracle = cell["by_rivals"].get("oracle")
    told += [None, None] if oracle is None else [oracle["accuracy_mean"], oracle["accuracy_min"]]
    accuracy = ("–" if value is None else f"{100 * value:.1f} %" for value in told)
    found = (str(cell["clusters"]), f"{cell['adjusted_rand_index']:.2f}", "yes" if right(cell) else "no")
    return (f"{cell['writers']}", cell["model"], groups_of(cell), cell["part"], str(cell["seed"]), *found, *accuracy)


def summary(done: list[Cell]) -> str:
    """All seeds of each kind of population in a row, then every cell that did not come out right."""
    kinds = dict.fromkeys((each["writers"], each["model"], groups_of(each), each["part"]) for each in done)
    rows = []
    for kind in kinds:
        mine = [each for each in done if (each["writers"], each["model"], groups_of(each), each["part"]) == kind]
        gains = [100 * (each["accuracy_mean"] - each["one_model_mean"]) for each in mine]
        found = " ".join(str(each["clusters"]) for each in mine)
        mean = f"{np.mean(gains):+.1f} (least {min(gains):+.1f})"
        rows.append((*kind, f"{sum(map(right, mine))} of {len(mine)}", found, mean, *beside_rivals(mine)))
    head = ("writers", "model", "groups", "take part", "right", "clusters", "mean accuracy over one model's, points")
    head += ("over the oracle's", "worst device over the oracle's", "IFCA, true k: exact")
    planted = [right(cell) for cell in done if cell["kind"] != "none"]
    alone = [cell["clusters"] == 1 for cell in done if cell["kind"] == "none"]
    told = f"Groups found exactly: {sum(planted)} of {len(planted)}; left whole where there are none: {sum(alone)} of "
    misses = [row(cell) for cell in done if not right(cell)]
    parts = [markdown(head, rows), f"{told}{len(alone)}."]
    return "\n\n".join(parts + ([markdown(HEAD, misses)] if misses else []))


def beside_rivals(cells: list[Cell]) -> tuple[str, str, str]:
    """Mean and worst accuracy over the oracle's, in points, and how often IFCA found the groups, over several seeds."""
    if "oracle" not in cells[0]["by_rivals"]:
        return "–", "–", "–"
    over = []
    for name in ("accuracy_mean", "accuracy_min"):
        points = [100 * (cell[name] - cell["by_rivals"]["oracle"][name]) for cell in cells]
        over.append(f"{np.mean(points):+.1f} (least {min(points):+.1f})")
    exact = sum(cell["by_rivals"]["ifca"]["adjusted_rand_index"] == 1.0 for cell in cells)
    return over[0], over[1], f"{exact} of {len(cells)}"


def finished(todo: list[Cell], path: Path, processes: int) -> list[Cell]:
    """All cells with their outcomes, those of the file and those run now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = [result for result in written if any(cell.items() <= result.items() for cell in todo)]
    missing = [cell for cell in todo if not any(cell.items() <= result.items() for result in done)]
    with ProcessPoolExecutor(processes) as pool, path.open("a") as file:
        for future in as_completed([pool.submit(run, cell) for cell in missing]):
            done.append(future.result())
            print(json.dumps(done[-1]), file=file, flush=True)
            print(" ".join(row(done[-1])), flush=True)
    return [result for cell in todo for result in done if cell.items() <= result.items()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.writers", description=__doc__)
    parser.add_argument("--writers", type=int, nargs="+", default=[20])
    parser.add_argument("--models", nargs="+", default=["mlp", "cnn"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[81, 82, 83])
    parser.add_argument("--alone", action="store_true", help="without oracle and IFCA beside it")
    parser.add_argument("--only", choices=("all", "half"), help="cells in which so many take part")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--page", type=Path, help="a page of docs to put the summary into")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "writers.jsonl")
    arguments = parser.parse_args()
    todo = [
        cell
        for seed in arguments.seeds
        for writers in arguments.writers
        for model in arguments.models
        for cell in cells(writers, model, seed, () if arguments.alone else RIVALS)
        if arguments.only in (None, cell["part"])
    ]
    done = finished(todo, arguments.results, arguments.processes)
    print(markdown(HEAD, [row(cell) for cell in done]))
    print(f"\n{summary(done)}")
    if arguments.page:
        before, after = around(arguments.page, "writers")
        arguments.page.write_text(f"{before}{summary(done)}\n{after}", "utf-8")


if __name__ == "__main__":
    main()
