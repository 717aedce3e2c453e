"""The presets on real FEMNIST and CIFAR-10, through the command line, for a round or two."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from fedclade import config as configuration
from fedclade import open_run
from tiny_runs import fedclade

pytestmark = pytest.mark.slow

SMALLER = {
    "femnist-rotated": ["run.rounds=1"],
    "femnist-two-class": ["run.rounds=2", "training.epochs=5"],
    "paper-femnist": ["run.rounds=2", "training.epochs=5"],
    "paper-femnist-small": ["run.rounds=2", "training.epochs=5"],
    "paper-literal": ["run.rounds=2", "training.epochs=5"],
    "paper-table": ["run.rounds=2", "training.epochs=2"],
    "methods-femnist": ["run.rounds=1"],
    "methods-cifar10": ["run.rounds=1"],
    "published-sattler": ["run.rounds=1", "population.devices=20"],
    "paper-cifar10": ["run.rounds=1", "run.evaluate_every=1", "population.samples=1000", "training.epochs=1"],
    "paper-cifar10-small": ["run.rounds=1", "run.evaluate_every=1"],
    "cifar10": ["run.rounds=2", "run.evaluate_every=1", "population.samples=1500", "training.epochs=1"],
}


PLANTED = {  # where it is not 15 and 5
    "femnist-two-class": [20],
    "methods-femnist": [20],
    "methods-cifar10": [20],
    "paper-literal": [20],
    "published-sattler": [10, 10],
}


def test_every_preset_of_real_data_is_tried_here():
    needs_files = {name for name in configuration.presets() if _source(name) in ("femnist", "cifar10")}
    assert needs_files == set(SMALLER)


def _source(preset: str) -> str:
    return configuration.load(preset).population.source


@pytest.mark.parametrize("preset", SMALLER)
def test_a_preset_runs_on_real_data(preset, real_data, tmp_path):
    overrides = [f"population.root={real_data}", *SMALLER[preset]]
    words = [word for override in overrides for word in ("--set", override)]
    answer = fedclade("run", preset, *words, "--out", tmp_path / "run", "--json")
    assert (answer.code, answer.err) == (0, "")
    summary, config = json.loads(answer.out), configuration.load(preset, overrides)
    assert (summary["rounds"], summary["devices"]) == (config.run.rounds, 20)
    assert summary["uploads"] == 20 * config.run.rounds  # everybody in every round of phase 1
    run = open_run(tmp_path / "run")
    assert (run.clusters["mean_norm"] > 0).all()
    assert np.isfinite(run.evaluations["loss"]).all()
    if config.population.source == "femnist":  # AlexNet has not left the loss of a guess after so few steps
        # the loss averaged by D_k, as the models are, falls from that of a guess among 62 classes
        rounds = run.evaluations.merge(run.devices, on="device").groupby("round")
        averages = (np.average(round_["loss"], weights=round_["train_samples"]) for _, round_ in rounds)
        assert all(after < before for before, after in pairwise([math.log(62), *averages]))
    planted = run.devices["planted_group"].value_counts().tolist()
    assert planted == PLANTED.get(preset, [15, 5])
