"""What hostile devices do to the honest ones: ``python -m benchmarks.attacks``.

A fifth of the devices of the quickstart population send spoilt updates, with clusters and with one model for all; and
so in an i.i.d. population. Accuracies are of the honest devices alone.
"""

import argparse
from typing import get_args

import numpy as np

from benchmarks.clustering import played
from benchmarks.machine import markdown
from fedclade.config import AttackConfig
from fedclade.fleet.attacks import HostileTrainer
from fedclade.simulation import Experiment

POPULATIONS = {
    "3 groups": [],
    "i.i.d.": ["incongruence.kind=none", "incongruence.groups=[1]", "population.partition=iid"],
}
MODELS = {
    "clusters": [],
    "one model": ["clustering.method=none"],
}


def row(population: str, models: str, kind: str) -> tuple[str, ...]:
    """One run."""
    overrides = [*POPULATIONS[population], *MODELS[models], "run.evaluate_every=40", "run.conventional=frozen"]
    experiment = Experiment("quickstart", [*overrides, f"attack.kind={kind}"])
    rejected = 0
    for state, record in played(experiment):  # noqa: B007 - the last ones are used below
        rejected += sum(event.kind == "rejected" for event in record.events)
    assert record.evaluation is not None
    trainer = experiment.trainer
    hostile = trainer.hostile if isinstance(trainer, HostileTrainer) else np.zeros(0, dtype=np.int64)
    leaf_of = np.array(state.tree.leaf_of())
    honest = np.setdiff1d(np.arange(len(leaf_of)), hostile)
    alone = sum(set(np.flatnonzero(leaf_of == name)) <= set(hostile.tolist()) for name in set(leaf_of.tolist()))
    accuracy = record.evaluation.accuracy[honest]
    trainer.close()
    return (
        population,
        models,
        kind,
        f"{100 * accuracy.mean():.1f} %",
        f"{100 * accuracy.min():.1f} %",
        str(len(set(leaf_of.tolist()))),
        str(alone),
        str(rejected),
    )


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__).parse_args()
    kinds = get_args(AttackConfig.model_fields["kind"].annotation)
    rows = [row(*case) for case in ((p, m, k) for p in POPULATIONS for m in MODELS for k in kinds)]
    head = (
        "population",
        "models",
        "attack",
        "honest, mean",
        "honest, worst",
        "clusters",
        "of hostile only",
        "rejected",
    )
    print(markdown(head, rows))


if __name__ == "__main__":
    main()
