"""What questions cost: forward passes by the slowest device asked, and models on the downlink."""

import numpy as np
import pytest

from fedclade.clustering.method import Conversation
from fedclade.config import TrainingConfig
from fedclade.edge import Links
from fedclade.fleet.answers import Evaluation, Paired, Survey
from fedclade.fleet.fleet import Answers, Cost
from fedclade.fleet.metered import Metered
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels
from tiny_runs import digits

IMAGES = np.array([[2, 4], [6, 0], [0, 12]])  # of two classes, that each of three devices looks at
DEVICES = np.arange(3)
MODELS = np.zeros((4, 5), dtype=np.float32)


class Answering:
    """A fleet that looks at IMAGES whatever it is asked, and does nothing else."""

    parameters, simulated, keeps_updates = 5, True, True

    def ask(self, question):
        devices, nothing = question.devices, np.zeros((len(question.devices), 2))
        value = {
            Evaluate: Evaluation(nothing[:, 0], nothing[:, 0], IMAGES[devices].sum(axis=1)),
            Compare: Paired(IMAGES[devices], nothing, nothing),
            SurveyModels: Survey(IMAGES[devices], np.zeros((len(devices), len(MODELS), 2))),
        }[type(question)]
        return Answers(value, Cost.nothing(3), ("the devices answered",))


class FourSecondsAModel:
    model_bits = 100.0

    def broadcast_seconds(self, models: int) -> float:
        return 4.0 * models


def metered() -> Metered:
    """Training takes the three devices 1, 2 and 4 seconds, and 10 J each, for 2 epochs of 30 images."""
    seconds, one = np.array([1.0, 2.0, 4.0]), np.ones(3)
    links = Links(one, one, seconds, one, 10 * one, one, one > 0)
    return Metered(Answering(), FourSecondsAModel(), links, np.array([30, 30, 30]), TrainingConfig(epochs=2))


def cost_of(question) -> Cost:
    return metered().ask(question).cost


def test_a_survey_costs_a_third_of_training_on_every_image_with_every_model_and_all_models_are_sent():
    cost = cost_of(SurveyModels(MODELS, DEVICES))
    looks = 4 * np.array([6, 6, 12])
    assert cost.seconds == pytest.approx(4 * 4.0 + 4.0 * (48 / 60) / 3)  # the third device is the slowest, with most
    np.testing.assert_allclose(cost.joules, 10.0 * looks / 60 / 3)
    assert cost.downlink_bits == 4 * 100.0


def test_a_survey_of_some_images_costs_no_more_than_so_many():
    cost = cost_of(SurveyModels(MODELS, DEVICES, images=7))
    np.testing.assert_allclose(cost.joules, 10.0 * 4 * np.array([6, 6, 7]) / 60 / 3)


def test_a_comparison_looks_at_two_models_and_only_those_compared_are_sent():
    cost = cost_of(Compare(MODELS, DEVICES[:2], np.array([0, 0]), np.array([1, 2])))
    assert cost.seconds == pytest.approx(3 * 4.0 + 2.0 * (12 / 60) / 3)
    assert cost.joules[2] == 0
    assert cost.downlink_bits == 3 * 100.0


def test_models_that_the_devices_were_sent_just_before_are_not_sent_again():
    cost = cost_of(Compare(MODELS, DEVICES[:2], np.array([0, 0]), np.array([1, 2]), sent=0))
    assert cost.seconds == pytest.approx(2.0 * (12 / 60) / 3)
    assert cost.downlink_bits == 0


def test_a_clusters_own_model_needs_no_sending_and_the_images_really_held_out_are_charged():
    cost = cost_of(Evaluate(MODELS, DEVICES, DEVICES * 0, "validation"))
    assert cost.seconds == pytest.approx(4.0 * (12 / 60) / 3)
    np.testing.assert_allclose(cost.joules, 10.0 * IMAGES.sum(axis=1) / 60 / 3)
    assert cost.downlink_bits == 0


def test_an_evaluation_of_models_that_must_be_sent_pays_for_that():
    cost = cost_of(Evaluate(MODELS[:2], DEVICES, DEVICES * 0, "train", sent=2))
    assert cost.seconds == pytest.approx(2 * 4.0 + 4.0 * (12 / 60) / 3)
    assert cost.downlink_bits == 200.0


def test_questions_add_up_within_a_round_and_one_device_asked_twice_answers_twice():
    talk = Conversation(metered(), 3)
    talk.ask(Evaluate(MODELS, np.array([0, 0]), np.array([0, 1]), "train"))
    assert talk.cost.seconds == pytest.approx(1.0 * (12 / 60) / 3)
    talk.ask(SurveyModels(MODELS[:1], DEVICES[:1]))
    assert talk.cost.seconds == pytest.approx(12 / 60 / 3 + 4.0 + 1.0 * (6 / 60) / 3)
    np.testing.assert_allclose(talk.cost.joules, [10.0 * 18 / 60 / 3, 0, 0])
    assert [note.detail["what"] for note in talk.notes()] == ["the devices answered"] * 2


# -------------------------------------------------------------------------------- in whole runs


def test_a_runs_clock_and_energy_hold_its_split_tests(tmp_path):
    run = digits().run(tmp_path / "run")
    rounds = run.rounds
    apart = rounds["seconds"] - rounds["makespan_seconds"] - rounds["broadcast_seconds"]
    np.testing.assert_allclose(apart, rounds["asking_seconds"], atol=1e-9)
    tried = run.events[run.events["kind"].isin(["split-test", "split"])]["round"].unique()
    quiet = rounds[~rounds["round"].isin(tried)]["asking_seconds"].max()
    assert rounds[rounds["round"].isin(tried)]["asking_seconds"].min() > 2 * quiet > 0
    assert run.summary["simulated_seconds"] == pytest.approx(rounds["seconds"].sum())
    split = next(node for node in run.tree if node["split"])["split"]
    end = rounds[rounds["round"] == split["round"]].iloc[0]
    assert end["start_seconds"] + end["makespan_seconds"] < split["seconds"] <= end["start_seconds"] + end["seconds"]


def test_the_papers_rule_asks_nothing(tmp_path):
    run = digits("clustering.method=norm-thresholds").run(tmp_path / "run")
    assert (run.rounds["asking_seconds"] == 0).all()


def test_a_round_whose_split_test_does_not_end_within_the_budget_is_not_made(tmp_path):
    whole = digits().run(tmp_path / "whole").rounds
    first = whole.iloc[0]
    assert first["asking_seconds"] > 0
    budget = first["seconds"] - first["asking_seconds"] / 2
    run = digits(f"run.time_budget_seconds={budget}").run(tmp_path / "run")
    assert len(run.rounds) == 0
