"""How often does a random cut pass? ``python -m benchmarks.random_cuts``.

For every population one model is trained by everybody; in rounds 1 and 5 its devices are cut at random, into halves,
into a quarter and the rest, and into a tenth and the rest. Each cut is put to the devices as cross-evaluation does it:
by the children's models alone (``SplitTest``); and as it decides in the end, with random halves of one side as a
control, and by what the devices say of one another's models where these pass, too (``PairTest``). Where groups are
planted, so is the true cut (the last group against the others).
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.machine import markdown
from fedclade import Experiment
from fedclade.clustering.methods.cross_evaluation.affinity import Affinity
from fedclade.clustering.methods.cross_evaluation.separation import matched_halves
from fedclade.clustering.methods.cross_evaluation.split_test import PairTest, SplitTest
from fedclade.config import CrossEvaluationConfig
from fedclade.fleet.questions import SurveyModels, TryCut

SETTINGS = CrossEvaluationConfig(controls=5)
ROUNDS = (1, 5)
PARTS = (2, 4, 10)  # one in so many devices is cut off
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


def tried(
    experiment: Experiment, model: np.ndarray, updates: np.ndarray, side: np.ndarray, of: np.ndarray
) -> SplitTest:
    """What some devices say of the models of both sides of a cut of them."""
    samples = experiment.population.samples[of]
    parts = (~side, side, np.ones_like(side))
    share = np.stack([np.where(part, samples, 0) / samples[part].sum() for part in parts])
    models = (model + share.astype(np.float32) @ updates[of]).astype(np.float32)
    answer = TryCut(models, of, side, SETTINGS.children_apart).run(experiment.trainer.examiner)
    return SplitTest.of(side, answer.preference, answer.gain)


class Devices:
    """What is known of all devices in a round."""

    def __init__(self, experiment: Experiment, model: np.ndarray, updates: np.ndarray, seed: int) -> None:
        self.parts, self.everyone, self.seed = (experiment, model, updates), np.arange(len(updates)), seed
        models = np.concatenate([model + np.float32(SETTINGS.survey_step) * updates, model[None]])
        seen, held_out = (
            SurveyModels(models, self.everyone, SETTINGS.survey_images, share).run(experiment.trainer.examiner)
            for share in ("train", "validation")
        )
        nothing = Affinity.unknown(len(updates), seen.samples.shape[1])
        self.seen = nothing.heard(self.everyone, self.everyone, seen)
        self.held_out = nothing.heard(self.everyone, self.everyone, held_out, self.seen.samples)

    def opinion(self, side: np.ndarray) -> dict[str, bool]:
        """Whether a cut passes by the children's models alone, and as it is decided in the end."""
        images = tried(*self.parts, side, self.everyone).passed(SETTINGS)
        larger = np.flatnonzero(side if 2 * side.sum() > len(side) else ~side)
        rng, likeness = np.random.default_rng(self.seed), self.seen.likeness(larger)
        controls = [tried(*self.parts, matched_halves(likeness, rng), larger).p_group for _ in range(SETTINGS.controls)]
        alike = bool(np.median(controls) >= SETTINGS.control_level)
        pairs = PairTest.of(side, self.everyone, self.seen, self.held_out, 0.0, 2, rng).passed(SETTINGS)
        return {"images": images, "one by one": not alike, "passes": images and (alike or pairs)}


def measured(cuts: int, seed: int, name: str) -> dict[str, Any]:
    """One population: what becomes of random cuts, and of the true one, in each round."""
    common = {"run.seed": seed, "clustering.method": "none", "population.validation_share": 0.1, "training.workers": 1}
    experiment = Experiment("quickstart", common | POPULATIONS[name])
    trainer, samples, group = experiment.trainer, experiment.population.samples, experiment.population.group
    model, everyone = trainer.initial_model(), np.arange(len(samples))
    random, true = [], []
    for round_ in range(1, max(ROUNDS) + 1):
        updates = trainer.train(round_, model[None], everyone, everyone * 0)
        rng = np.random.default_rng((seed, round_))
        devices = Devices(experiment, model, updates, seed) if round_ in ROUNDS else None
        for number in range(cuts if devices else 0):
            side = np.zeros(len(samples), dtype=bool)
            side[rng.permutation(len(samples))[: max(2, len(samples) // PARTS[number % len(PARTS)])]] = True
            random.append(devices.opinion(side))
        if devices and len(np.unique(group)) > 1:
            true.append(devices.opinion(group == group.max()))
        model = (model + (samples / samples.sum()).astype(np.float32) @ updates).astype(np.float32)
    trainer.close()
    return {"name": name, "random": random, "true": true}


def row(result: dict[str, Any]) -> tuple[str, ...]:
    counts = [str(sum(each[name] for each in result["random"])) for name in ("images", "one by one", "passes")]
    true = ", ".join("passes" if each["passes"] else "refused" for each in result["true"])
    return (result["name"], str(len(result["random"])), *counts, true)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_cuts", description=__doc__)
    parser.add_argument("--cuts", type=int, default=126, help="random cuts of each population and round")
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.processes) as pool:
        results = list(pool.map(partial(measured, arguments.cuts, arguments.seed), POPULATIONS))
    head = ("population", "random cuts", "pass by the children's models", "random halves pass, too", "pass", "true cut")
    print(markdown(head, [row(result) for result in results]))


if __name__ == "__main__":
    main()
