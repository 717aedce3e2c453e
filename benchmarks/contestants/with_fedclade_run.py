"""fedclade: whole runs into a directory, with clustering, evaluation in every round, records and the page."""

import shutil
import sys
from pathlib import Path

import torch
from protocol import Turns

from fedclade import Experiment
from fedclade.core.tree import ROOT

folder = Path(sys.argv[1])
experiment = Experiment(str(folder / "config.toml"))
turns = Turns(torch.from_numpy(experiment.trainer.initial_model()))
while turns.wait():
    shutil.rmtree(folder / "run", ignore_errors=True)
    run = Experiment(str(folder / "config.toml")).run(folder / "run")
    samples = run.devices.set_index("device")["train_samples"]
    trained = int(samples[run.uploads["device"]].sum()) + int(samples.sum()) * len(run.rounds)  # and one model for all
    weights = torch.cat([torch.from_numpy(tensor).ravel() for tensor in run.model(ROOT).values()])
    turns.done(trained * run.config.training.epochs, weights)
