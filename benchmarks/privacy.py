"""What noise in the devices' answers costs: ``python -m benchmarks.privacy``.

Runs of the quickstart with more and more noise (``privacy.noise``), several seeds each. Groups are held against the
planted ones, accuracies are the truth, not what devices say of them, and epsilon is that of all answers of the device
that gave most, at delta = 1e-5, for one of its samples. Updates are not protected: see docs/explanation/privacy.md.
"""

import argparse

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.clustering import played
from benchmarks.machine import markdown
from fedclade.core.state import index, stack
from fedclade.fleet.privacy import epsilon
from fedclade.fleet.questions import Evaluate
from fedclade.simulation import Experiment

DELTA = 1e-5
HEAD = ("noise", "epsilon", "answers", "ARI", "clusters", "mean", "worst")


def outcome(noise: float, seed: int, overrides: list[str]) -> tuple[int, float, int, float, float]:
    """Answers of the device that gave most, the adjusted Rand index, clusters, and true accuracies of one run."""
    common = ["run.evaluate_every=40", "run.conventional=frozen", f"run.seed={seed}", f"privacy.noise={noise}"]
    experiment = Experiment("quickstart", [*common, *overrides])
    for state, _ in played(experiment):  # noqa: B007 - the last one is used below
        pass
    leaf_of, names = state.tree.leaf_of(), sorted(state.models)
    everyone = np.arange(state.devices)
    asked = Evaluate(stack(state.models, names), everyone, index(leaf_of, names))
    accuracy = asked.run(experiment.trainer.examiner).score
    answers = max(experiment.server.fleet.private.answers.values(), default=0)  # type: ignore[attr-defined]
    experiment.trainer.close()
    found = float(adjusted_rand_score(experiment.population.group, leaf_of))
    return answers, found, len(set(leaf_of)), float(accuracy.mean()), float(accuracy.min())


def row(noise: float, seeds: list[int], overrides: list[str]) -> tuple[str, ...]:
    """Means over the seeds."""
    runs = np.array([outcome(noise, seed, overrides) for seed in seeds])
    answers, found, clusters, mean, worst = runs.mean(axis=0)
    spent = f"{epsilon(noise, round(runs[:, 0].max()), DELTA):.1f}" if noise else "∞"
    return (
        f"{noise:g}",
        spent,
        f"{answers:.0f}" if noise else "–",
        f"{found:.2f}",
        f"{clusters:.1f}",
        f"{100 * mean:.1f} %",
        f"{100 * worst:.1f} %",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.privacy", description=__doc__)
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--set", nargs="+", default=[], dest="overrides", help="fields of the config that are changed")
    words = parser.parse_args()
    print(markdown(HEAD, []), flush=True)
    for noise in words.noise:
        print("| " + " | ".join(row(noise, words.seeds, words.overrides)) + " |", flush=True)


if __name__ == "__main__":
    main()
