"""The simulated fleet: what it remembers, what it tells, and what becomes of a plan. More of it in test_server."""

import numpy as np
import pytest

from fedclade.core.records import Event
from fedclade.fleet.attacks import HostileTrainer
from fedclade.fleet.questions import Compare, Evaluate
from made_up import FACING, make, model_of, play

EVERYBODY = np.arange(6)
ONE = np.zeros(6, dtype=np.int64)


def test_evaluations_are_remembered_and_other_questions_asked_anew():
    server = make(FACING)
    looked = list[list[int]]()
    scores = server.trainer.scores
    server.trainer.scores = lambda model, images: looked.append(images.tolist()) or scores(model, images)
    models = np.stack([model_of(0), model_of(1)])
    first, again = (server.fleet.ask(Evaluate(models, EVERYBODY, ONE)).value for _ in range(2))
    assert looked == [[0, 1, 2, 3, 4, 5]]
    np.testing.assert_array_equal(first.loss, again.loss)
    assert first.samples.tolist() == [1] * 6
    for _ in range(2):
        server.fleet.ask(Compare(models, EVERYBODY, ONE, ONE + 1))
    assert len(looked) == 1 + 2 * 2


def test_a_remembered_answer_costs_devices_as_much_as_any():
    """Only the simulation saves the work: a real device would have to look."""
    server = make(FACING, "training.epochs=1")
    fleet = server.fleet.at(server.edge.observe(1))
    costs = [fleet.ask(Evaluate(model_of(0)[None], EVERYBODY, ONE)).cost for _ in range(2)]
    assert [cost.seconds for cost in costs] == pytest.approx([1 / 3] * 2)


def test_what_went_wrong_and_was_mended_is_told_once():
    server = make(FACING, "clustering.method=none")
    server.trainer.incidents.append("a worker died")
    _, records = play(server, 2)
    told = [[event for event in record.events if event.kind == "incident"] for record in records]
    assert told == [[Event("incident", "", detail={"what": "a worker died"})], []]


def test_a_hostile_trainers_incidents_are_those_of_the_honest_one():
    trainer = make(FACING).trainer
    hostile = HostileTrainer(trainer, make(FACING, "attack.kind=huge").config.attack, 6, 1)
    trainer.incidents.append("a worker died")
    assert hostile.incidents == ["a worker died"]
    hostile.incidents.clear()
    assert trainer.incidents == []


def test_everybody_trains_one_model_off_the_clock():
    server = make(FACING)
    updates = server.fleet.train_all(1, model_of(1))
    assert updates.devices.tolist() == [0, 1, 2, 3, 4, 5]
    assert updates.rows(EVERYBODY).ravel().tolist() == [2, 2, 3, -4, -4, -5]


def test_the_matrix_that_a_training_filled_is_the_one_that_is_remembered():
    server = make(FACING, "clustering.max_age=3")
    filled = list[np.ndarray]()
    train = server.trainer.train
    server.trainer.train = lambda *asked: filled.append(train(*asked)) or filled[-1]
    state, _ = play(server, 1)
    assert np.shares_memory(state.memory.rows(EVERYBODY), filled[0])
