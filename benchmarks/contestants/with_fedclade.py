"""fedclade: whole rounds of its server, everybody taking part, one model, no evaluation."""

import json
import sys
from pathlib import Path

import torch
from protocol import Turns

from fedclade import config as configuration
from fedclade.core.tree import ROOT
from fedclade.edge import SimulatedEdge
from fedclade.fleet.simulated.engines import build_trainer, choose_engine
from fedclade.simulation import simulated_server

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.work import population_in

folder, setting = sys.argv[1], json.loads(sys.argv[2])
config = configuration.load(str(Path(folder, "config.toml")), [f"training.{k}={v}" for k, v in setting.items()])
population = population_in(Path(folder))
engine = choose_engine(config, population)
trainer = build_trainer(engine, config, population)
samples = population.samples
edge = SimulatedEdge(config, samples, population.bits_per_sample, trainer.parameters)
server = simulated_server(config, trainer, edge, samples)
state = server.initial_state()
turns = Turns(torch.from_numpy(state.models[ROOT]))
print(f"engine: {engine}", file=sys.stderr)
while turns.wait():
    advanced = server.step(state)
    assert advanced is not None
    state, record = advanced
    turns.done(int(samples[record.computed].sum()) * config.training.epochs, torch.from_numpy(state.models[ROOT]))
trainer.close()
