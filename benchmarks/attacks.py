"""What hostile devices do to the honest ones: ``python -m benchmarks.attacks``.

A fifth of the devices of the quickstart population are hostile: they upload what an attack says, or hold spoilt data,
and with "+ lies" they also answer the reverse of the truth to everything that they are asked. The table has one row for
each attack, method and defence (the rule that averages a cluster's updates): accuracy of the honest devices alone,
beside that of the same devices in the same run without an attack ("none"), and in one where the hostile devices might
as well be absent, as all that they upload is refused: what is lost there is lost with their data, whatever the defence.
A backdoor also has its success rate: how many of the honest devices' test images with the trigger in them are taken for
its target.
"""

import argparse
from collections.abc import Iterator
from typing import get_args

import numpy as np

from benchmarks.clustering import played
from benchmarks.machine import markdown
from fedclade.config.sections import AttackKind
from fedclade.core.state import State
from fedclade.data import Population
from fedclade.data.poison import TARGET, hostile_devices, triggered
from fedclade.simulation import Experiment

POPULATIONS = {
    "3 groups": [],
    "3 groups, 200 test images": ["population.redraw=true", "population.samples=8000", "population.test_share=0.5"],
    "i.i.d.": ["incongruence.kind=none", "incongruence.groups=[1]", "population.partition=iid"],
}
METHODS = {
    "cross-evaluation": [],
    "norm-thresholds": [
        "clustering.method=norm-thresholds",
        "norm_thresholds.epsilon1=0.6",
        "norm_thresholds.epsilon2=0.9",
    ],
    "none": ["clustering.method=none"],
}
RULES = ("mean", "clipped-mean", "median", "trimmed-mean", "multi-krum", "geometric-median")
NONE, ABSENT = ("none", False), ("not-finite", False)  # what attacks are held against
HEAD = (
    "population",
    "attack",
    "method",
    "rule",
    "mean",
    "against none",
    "against absence",
    "worst",
    "against none",
    "against absence",
    "clusters",
    "backdoor",
)


def outcome(overrides: list[str]) -> tuple[np.ndarray, State, Experiment]:
    """Every device's accuracy at the end of a run."""
    fixed = ["run.evaluate_every=40", "run.conventional=frozen"]
    experiment = Experiment("quickstart", [*fixed, *overrides])
    for state, record in played(experiment):  # noqa: B007 - the last ones are used below
        pass
    assert record.evaluation is not None
    experiment.trainer.close()
    return record.evaluation.score, state, experiment


def success_rate(state: State, experiment: Experiment, honest: np.ndarray) -> float:
    """The share of test images with the trigger in them that honest devices' models take for the target."""
    from fedclade.fleet.simulated.sequential import SequentialTrainer

    population, leaf_of, hits, images = experiment.population, state.tree.leaf_of(), 0.0, 0
    stamped = Population(**{**vars(population), "images": triggered(population.images)})
    wanted = Population(**{**vars(stamped), "labels": np.full_like(population.labels, TARGET)})
    examiner = SequentialTrainer(experiment.config, wanted).examiner
    for device in honest.tolist():
        positions = population.test[device]
        positions = positions[population.labels[positions] != TARGET]
        hits += examiner.scores(state.models[leaf_of[device]], positions)[0].sum()
        images += len(positions)
    return hits / max(1, images)


def rows(
    population: str, method: str, rule: str, attacks: list[tuple[str, bool]], overrides: list[str]
) -> Iterator[tuple[str, ...]]:
    """One run without an attack, and one with each."""
    common = [*POPULATIONS[population], *METHODS[method], f"aggregation.rule={rule}", *overrides]

    def attacked(kind: str, lies: bool) -> tuple[np.ndarray, State, Experiment]:
        return outcome([*common, f"attack.kind={kind}", f"attack.lies={str(lies).lower()}"])

    known = {each: attacked(*each) for each in (NONE, ABSENT)}
    accuracy, _, experiment = known[NONE]
    hostile = hostile_devices(experiment.config.attack, len(accuracy), experiment.config.run.seed)
    honest = np.setdiff1d(np.arange(len(accuracy)), hostile)
    references = [known[each][0][honest] for each in (NONE, ABSENT)]
    for kind, lies in [NONE, *attacks]:
        accuracy, state, experiment = known.get((kind, lies)) or attacked(kind, lies)
        after = accuracy[honest]
        yield (
            *(population, f"{kind} + lies" if lies else kind, method, rule),
            f"{100 * after.mean():.1f} %",
            *(f"{100 * (after.mean() - before.mean()):+.1f}" for before in references),
            f"{100 * after.min():.1f} %",
            *(f"{100 * (after.min() - before.min()):+.1f}" for before in references),
            str(len(set(state.tree.leaf_of()))),
            f"{success_rate(state, experiment, honest):.1%}" if kind in ("none", "backdoor") else "–",
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    kinds = [kind for kind in get_args(AttackKind) if kind != "none"]
    parser.add_argument("--attacks", nargs="+", default=["none", *kinds], choices=["none", *kinds])
    parser.add_argument("--populations", nargs="+", default=list(POPULATIONS), choices=POPULATIONS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--rules", nargs="+", default=["mean", "trimmed-mean"], choices=RULES)
    parser.add_argument("--honest-answers", action="store_true", help="without the runs in which they lie as well")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], dest="overrides", help="fields of the config that are changed")
    words = parser.parse_args()
    lies = (False,) if words.honest_answers else (False, True)
    attacks = [(kind, lie) for kind in words.attacks for lie in lies if kind != "none" or lie]
    print(markdown(HEAD, []), flush=True)
    for population in words.populations:
        for method in words.methods:
            for rule in words.rules:
                for row in rows(population, method, rule, attacks, [f"run.seed={words.seed}", *words.overrides]):
                    print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
