"""How often does a random cut pass the split test? ``python -m benchmarks.random_cuts``.

A test of a cut must not be passable by a random one. For every population one model is trained by everybody; in rounds
1 and 5 its devices are cut at random, into halves, into a quarter and the rest, and into a tenth and the rest, and each
cut is put to the devices as cross-evaluation does it, with images and with devices as the units. Where groups are
planted, the true cut (the last group against the others) is put to them, too: ``p`` of round 1 and of round 5.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.machine import markdown
from fedclade import Experiment
from fedclade.clustering.methods.cross_evaluation.split_test import SplitTest
from fedclade.config import CrossEvaluationConfig
from fedclade.core.updates import HeldUpdates
from fedclade.fleet.questions import TryCut

ROUNDS = (1, 5)
PARTS = (2, 4, 10)  # one in so many devices is cut off
UNITS = ("images", "devices")
WRITERS = {"population.source": "femnist", "population.partition": "writer"}
ALONE = {"incongruence.kind": "none", "incongruence.groups": (1,)}


def rotated(*groups: int) -> dict[str, Any]:
    return {"incongruence.kind": "rotate", "incongruence.groups": groups, "population.devices": sum(groups)}


POPULATIONS: dict[str, dict[str, Any]] = {
    "FEMNIST, 60 writers": WRITERS | ALONE | {"population.devices": 60},
    "FEMNIST, 20 writers": WRITERS | ALONE | {"population.devices": 20},
    "FEMNIST, 40 writers, 30 and 10 rotated": WRITERS | rotated(30, 10),
    "FEMNIST, 20 writers, 2 rotated": WRITERS | rotated(18, 2),
    "MNIST, i.i.d.": ALONE | {"population.partition": "iid"},
    "MNIST, label skew, α = 0.5": ALONE | {"population.alpha": 0.5},
    "MNIST, 2 of 20 rotated": rotated(18, 2),
    "CIFAR-10, 10 and 10 rotated": rotated(10, 10) | {"population.source": "cifar10", "population.samples": 6000},
}


def opinion(experiment: Experiment, model: np.ndarray, updates: np.ndarray, side: np.ndarray) -> dict[str, float]:
    """The p-value of a cut of all devices, by unit."""
    samples, everyone = experiment.population.samples, np.arange(len(side))
    parts = (~side, side, np.ones_like(side))
    share = np.stack([np.where(part, samples, 0) / samples[part].sum() for part in parts])
    models = (model + share.astype(np.float32) @ updates).astype(np.float32)
    found = {}
    for units in UNITS:
        settings = CrossEvaluationConfig(units=units)
        own = share.T if units == "devices" else np.zeros((len(side), len(parts)))
        held = HeldUpdates.of(everyone, updates)
        question = TryCut(models, model, everyone, side, own, settings.children_apart, held)
        answer = question.run(experiment.trainer.examiner)
        found[units] = SplitTest.of(side, answer.preference, answer.gain, settings=settings).p_group
    return found


def measured(cuts: int, seed: int, name: str) -> dict[str, Any]:
    """One population: the p-values of random cuts, and of the true one in each round."""
    common = {"run.seed": seed, "clustering.method": "none", "population.validation_share": 0.1, "training.workers": 1}
    experiment = Experiment("quickstart", common | POPULATIONS[name])
    trainer, samples, group = experiment.trainer, experiment.population.samples, experiment.population.group
    model, everyone = trainer.initial_model(), np.arange(len(samples))
    random, true = [], []
    for round_ in range(1, max(ROUNDS) + 1):
        updates = trainer.train(round_, model[None], everyone, everyone * 0)
        rng = np.random.default_rng((seed, round_))
        for number in range(cuts if round_ in ROUNDS else 0):
            side = np.zeros(len(samples), dtype=bool)
            side[rng.permutation(len(samples))[: max(2, len(samples) // PARTS[number % len(PARTS)])]] = True
            random.append(opinion(experiment, model, updates, side))
        if round_ in ROUNDS and len(np.unique(group)) > 1:
            true.append(opinion(experiment, model, updates, group == group.max()))
        model = (model + (samples / samples.sum()).astype(np.float32) @ updates).astype(np.float32)
    trainer.close()
    return {"name": name, "random": random, "true": true}


def row(result: dict[str, Any]) -> tuple[str, ...]:
    cells = [result["name"], str(len(result["random"]))]
    for units in UNITS:
        p_values = np.array([each[units] for each in result["random"]])
        cells += [str(int((p_values < level).sum())) for level in (1e-4, 0.05)]
        cells.append(", ".join(f"{each[units]:.0e}" for each in result["true"]))
    return tuple(cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_cuts", description=__doc__)
    parser.add_argument("--cuts", type=int, default=126, help="random cuts of each population and round")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.processes) as pool:
        results = list(pool.map(partial(measured, arguments.cuts, arguments.seed), POPULATIONS))
    head = ["population", "random cuts"]
    for units in UNITS:
        head += [f"{units}: pass 1e-4", "pass 0.05", "true cut, p"]
    print(markdown(tuple(head), [row(result) for result in results]))


if __name__ == "__main__":
    main()
