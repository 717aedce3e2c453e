"""What can go wrong before a cluster is there."""

import sys

import pytest

from data_builders import config, error_line
from fedclade.core import machine
from fedclade.data import build_population
from fedclade.fleet.simulated.engines import build_trainer, choose_engine
from fedclade.fleet.simulated.ray import RayTrainer
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


def ray_trainer() -> RayTrainer:
    plan = config(population={"source": "digits", "devices": 4}, training={"engine": "ray"})
    population = build_population(plan)
    found = build_trainer(choose_engine(plan, population), plan, population)
    assert isinstance(found, RayTrainer)
    return found


def test_a_node_of_another_processor_is_warned_of_and_recorded_once():
    trainer, here = ray_trainer(), machine.facts()
    trainer._compare(here)
    assert trainer.incidents == []
    other = {**here, "processor": "another one", "blas": "of its own"}
    with pytest.warns(UserWarning, match="the last bits may differ"):
        trainer._compare(other)
    trainer._compare(other)  # the second node of its kind
    (told,) = trainer.incidents
    assert f"processor another one instead of {here['processor']}" in told
    assert "blas of its own" in told
    assert "numpy_version" not in told


def test_a_node_with_another_fedclade_is_refused():
    other = {**machine.facts(), "fedclade_version": "0.0.1"}
    assert "a node has fedclade 0.0.1" in error_line(ray_trainer()._compare, other)
