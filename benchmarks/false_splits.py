"""How often is a population split that has no groups? ``python -m benchmarks.false_splits``.

Many small populations of ``benchmarks.clustering``, alike but for the seed: digits, 20 devices, 30 rounds.
"""

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from scipy.stats import beta

from benchmarks.clustering import cell_of, config_of, played
from benchmarks.machine import markdown
from fedclade.simulation import Experiment

POPULATIONS = ("i.i.d.", "label skew, α = 0.5")


def tried(population: str, seed: int) -> tuple[int, int]:
    """Cuts tried and splits made in one run."""
    cell = cell_of("digits", "mlp", population, 1.0, 5, "", "equal", seed=seed)
    experiment = Experiment(config_of(cell))
    kinds = [event.kind for _, record in played(experiment) for event in record.events]
    experiment.trainer.close()
    splits = kinds.count("split")
    return splits + kinds.count("split-test"), splits


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.false_splits", description=__doc__)
    parser.add_argument("--seeds", type=int, default=120)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for population in POPULATIONS:
            found = list(pool.map(partial(tried, population), range(1, arguments.seeds + 1)))
            cuts, split = sum(cuts for cuts, _ in found), sum(splits > 0 for _, splits in found)
            most = beta.ppf(0.95, split + 1, arguments.seeds - split)  # one-sided, Clopper and Pearson
            rows.append((population, arguments.seeds, cuts, split, f"{100 * most:.1f} %"))
    print(markdown(("population", "runs", "split tests", "runs with a split", "at most, with 95 % confidence"), rows))


if __name__ == "__main__":
    main()
