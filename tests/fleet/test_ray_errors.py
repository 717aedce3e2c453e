"""What can go wrong before a cluster is there."""

import sys

from data_builders import config, error_line
from fedclade.data import build_population
from fedclade.fleet.simulated.engines import build_trainer, choose_engine
from fedclade.simulation import Experiment


def test_without_ray_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    plan = config(population={"source": "digits", "devices": 4}, training={"engine": "ray"})
    population = build_population(plan)
    trainer = build_trainer(choose_engine(plan, population), plan, population)
    line = error_line(trainer.train, 1, trainer.initial_model()[None], population.group, population.group)
    assert 'pip install "fedclade[ray]"' in line


def test_the_engine_is_told_and_written_down():
    experiment = Experiment("quickstart", ["training.engine=ray"])
    assert str(experiment.engine) == "ray, as many actors as cores"
    assert str(Experiment("quickstart", ["training.engine=ray", "training.workers=3"]).engine) == "ray, 3 actors"
