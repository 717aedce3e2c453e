"""Does cross-evaluation find planted groups among writers, and nothing else? ``python -m benchmarks.writers``.

FEMNIST by writer: every device holds the images of one person, so devices differ one by one, with groups or without.
Needs FEMNIST in ``$FEDCLADE_DATA``. *Right* is: planted groups found exactly; where nothing is planted, one cluster, or
neither the mean nor the worst device worse than with one model by more than a point.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.clustering import outcome_of
from benchmarks.machine import markdown
from fedclade import Experiment

Cell = dict[str, Any]


def cells(writers: int, seed: int) -> Iterator[Cell]:
    """No groups, two to four rotated or permuted ones, and one of a tenth of the writers."""
    quarter, fifth, tenth = writers // 4, writers // 5, max(2, writers // 10)
    two, three = [writers - quarter, quarter], [writers - quarter - fifth, quarter, fifth]
    for part in ("all", "half"):
        yield {"writers": writers, "kind": "none", "groups": [1], "part": part, "seed": seed}
        for kind, sizes in (
            ("rotate", [two, three, [writers - 3 * quarter, quarter, quarter, quarter], [writers - tenth, tenth]]),
            ("permute-labels", [two, three, [writers - tenth, tenth]]),
        ):
            for groups in sizes:
                yield {"writers": writers, "kind": kind, "groups": groups, "part": part, "seed": seed}


def config_of(cell: Cell) -> dict[str, Any]:
    """A cell as a config: the quickstart's training, and random halves as a control."""
    half = cell["part"] == "half"
    rounds = 60 if half else 30
    return {
        "run": {"seed": cell["seed"], "rounds": rounds, "evaluate_every": rounds, "conventional": "continued"},
        "population": {"source": "femnist", "partition": "writer", "devices": cell["writers"]},
        "incongruence": {"kind": cell["kind"], "groups": cell["groups"]},
        "cross_evaluation": {"controls": cell["controls"]},
        "training": {"epochs": 5, "learning_rate": 0.05, "workers": 1},
        "scheduling": {"policy": "random", "per_round": cell["writers"] // 2} if half else {},
    }


def run(cell: Cell) -> Cell:
    experiment = Experiment(config_of(cell))
    outcome = outcome_of(experiment)
    experiment.trainer.close()
    return cell | outcome


def right(cell: Cell) -> bool:
    if cell["kind"] != "none":
        return bool(cell["adjusted_rand_index"] == 1.0)
    harm = max(cell[f"one_model_{name}"] - cell[f"accuracy_{name}"] for name in ("mean", "min"))
    return bool(cell["clusters"] == 1 or harm <= 0.01)


def row(cell: Cell) -> tuple[str, ...]:
    groups = "none" if cell["kind"] == "none" else f"{cell['kind']}, {', '.join(map(str, cell['groups']))}"
    accuracy = (
        f"{100 * cell[name]:.1f} %" for name in ("accuracy_mean", "accuracy_min", "one_model_mean", "one_model_min")
    )
    found = (str(cell["clusters"]), f"{cell['adjusted_rand_index']:.2f}", "yes" if right(cell) else "no")
    return (f"{cell['writers']}", groups, cell["part"], str(cell["seed"]), *found, *accuracy)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.writers", description=__doc__)
    parser.add_argument("--writers", type=int, nargs="+", default=[20])
    parser.add_argument("--seed", type=int, nargs="+", default=[51])
    parser.add_argument("--controls", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    every = [cell for seed in arguments.seed for writers in arguments.writers for cell in cells(writers, seed)]
    todo = [cell | {"controls": arguments.controls} for cell in every]
    with ProcessPoolExecutor(arguments.processes) as pool:
        done = list(pool.map(run, todo))
    head = ("writers", "groups", "take part", "seed", "clusters", "ARI", "right", "mean", "worst", "one model", "worst")
    print(markdown(head, [row(cell) for cell in done]))
    planted = [right(cell) for cell in done if cell["kind"] != "none"]
    print(f"\nGroups found exactly: {sum(planted)} of {len(planted)}.")


if __name__ == "__main__":
    main()
