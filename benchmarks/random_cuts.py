"""How often does a random cut pass? ``python -m benchmarks.random_cuts``.

For every population one model is trained by everybody; in rounds 1 and 5 its devices are cut at random, into halves,
into a quarter and the rest, and into a tenth and the rest. Each cut is put to the devices as cross-evaluation does it:
by the children's models (``SplitTest``); and as it decides in the end: if random halves of devices most alike pass,
devices differ one by one, and judge by models from which they leave their own update out (``PayTest``). Where groups
are planted, so is the true cut (the last group against the others).
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import around, markdown
from fedclade import Experiment
from fedclade.clustering.methods.cross_evaluation.affinity import Affinity
from fedclade.clustering.methods.cross_evaluation.preference import kinship
from fedclade.clustering.methods.cross_evaluation.split_test import SplitTest
from fedclade.clustering.methods.cross_evaluation.without_own import PayTest, mean_misfits, with_shorter_steps
from fedclade.config import CrossEvaluationConfig
from fedclade.core.updates import HeldUpdates
from fedclade.fleet.answers import Survey
from fedclade.fleet.questions import SurveyModels, TryCut, fraction_for
from fedclade.fleet.told import Share

SETTINGS = CrossEvaluationConfig()
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


class Devices:
    """All devices in a round: what they say of cuts."""

    def __init__(self, experiment: Experiment, model: np.ndarray, updates: np.ndarray, seed: int) -> None:
        self.examiner, self.samples = experiment.trainer.examiner, experiment.population.samples
        self.model, self.updates, self.everyone = model, updates, np.arange(len(updates))
        models = np.concatenate([model + np.float32(SETTINGS.survey_step) * updates, model[None]])
        fraction = fraction_for(SETTINGS.survey_work, experiment.config.training.passes, len(models))
        survey = SurveyModels(models, self.everyone, SETTINGS.survey_least, fraction).run(self.examiner)
        affinity = Affinity.unknown(len(updates), survey.samples.shape[1]).heard(self.everyone, self.everyone, survey)
        rng, alike = np.random.default_rng(seed), affinity.most_alike(self.everyone, 4)
        halves = (rng.permutation(np.arange(len(alike)) < len(alike) // 2) for _ in range(SETTINGS.controls))
        controls = [self.tried(side, alike) for side in halves]
        kin = kinship(*affinity.plain(self.everyone), SETTINGS.closest_share)
        together = np.zeros(len(updates), dtype=bool)
        _, _, parent, *_, start = mean_misfits(self.answers(together, SETTINGS.review_images, ("train",))).mean(axis=0)
        self.help = float(start - parent) * kin
        self.control_p, self.control_gain = (
            np.median([getattr(test, name) for test in controls]) for name in ("p_group", "gain_group")
        )

    def children(self, side: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The models of both sides of a cut, of all, and of the round before; each device's own weight in them."""
        samples = self.samples[of]
        parts = (~side, side, side | True)
        weights = np.stack([np.where(part, samples, 0) / max(1, samples[part].sum()) for part in parts])
        moved = (self.model + weights.astype(np.float32) @ self.updates[of]).astype(np.float32)
        return np.concatenate([moved, self.model[None]]), np.concatenate([weights, np.zeros((1, len(of)))]).T

    def tried(self, side: np.ndarray, of: np.ndarray) -> SplitTest:
        models, _ = self.children(side, of)
        answer = TryCut(models[:-1], of, side, SETTINGS.children_apart).run(self.examiner)
        return SplitTest.of(side, answer.preference, answer.gain)

    def answers(self, side: np.ndarray, images: int | None, shares: tuple[Share, ...]) -> list[Survey]:
        """What devices say of a cut's models, from which each leaves its own update out."""
        models, own = with_shorter_steps(*self.children(side, self.everyone), side)
        updates = HeldUpdates.of(self.everyone, self.updates)
        asked = (SurveyModels(models, self.everyone, images, share=share, own=own, updates=updates) for share in shares)
        return [question.run(self.examiner) for question in asked]

    def opinion(self, side: np.ndarray, best_help: float) -> dict[str, bool]:
        """Whether a cut passes by the children's models alone, and as it is decided in the end."""
        test = self.tried(side, self.everyone)
        images = test.passed(SETTINGS)
        one_by_one = self.control_p < SETTINGS.control_level
        one_by_one &= self.control_gain > SETTINGS.control_share * test.gain_group
        passes = images
        if images and one_by_one:
            paid = PayTest.of(side, self.answers(side, None, ("train", "validation")))
            passes = paid.passed(SETTINGS, best_help)
        return {"images": images, "one by one": bool(one_by_one), "passes": passes}


def measured(cuts: int, seed: int, name: str) -> dict[str, Any]:
    """One population: what becomes of random cuts, and of the true one, in each round."""
    common = {"run.seed": seed, "clustering.method": "none", "population.validation_share": 0.1, "training.workers": 1}
    experiment = Experiment("quickstart", common | POPULATIONS[name])
    trainer, samples, group = experiment.trainer, experiment.population.samples, experiment.population.group
    model, everyone = trainer.initial_model(), np.arange(len(samples))
    random, true, best_help = [], [], 0.0
    for round_ in range(1, max(ROUNDS) + 1):
        updates = trainer.train(round_, model[None], everyone, everyone * 0)
        rng = np.random.default_rng((seed, round_))
        devices = Devices(experiment, model, updates, seed) if round_ in ROUNDS else None
        best_help = max(best_help, devices.help) if devices else best_help
        for number in range(cuts if devices else 0):
            side = np.zeros(len(samples), dtype=bool)
            side[rng.permutation(len(samples))[: max(2, len(samples) // PARTS[number % len(PARTS)])]] = True
            random.append(devices.opinion(side, best_help))
        if devices and len(np.unique(group)) > 1:
            true.append(devices.opinion(group == group.max(), best_help))
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
    parser.add_argument("--page", type=Path, help="a page of docs to put the table into")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.processes) as pool:
        results = list(pool.map(partial(measured, arguments.cuts, arguments.seed), POPULATIONS))
    head = ("population", "random cuts", "pass by the children's models", "random halves do, too", "pass", "true cut")
    told = markdown(head, [row(result) for result in results])
    print(told)
    if arguments.page:
        before, after = around(arguments.page, "random cuts")
        arguments.page.write_text(f"{before}{told}\n{after}", "utf-8")


if __name__ == "__main__":
    main()
