"""What questions cost: forward passes by the slowest device asked, and models on the downlink."""

import numpy as np
import pytest

from fedclade import config as configuration
from fedclade.asking import Asking
from fedclade.edge import Links
from fedclade.fleet.answers import Paired, Survey
from fedclade.fleet.simulated import Evaluation
from tiny_runs import digits

IMAGES = np.array([[2, 4], [6, 0], [0, 12]])  # of two classes, that each of three devices looks at
DEVICES = np.arange(3)
MODELS = np.zeros((4, 5), dtype=np.float32)


class Answering:
    """Looks at IMAGES whatever it is asked."""

    parameters = 5

    def evaluate(self, models, devices, model_of, share):
        return Evaluation(np.ones(len(devices)), np.zeros(len(devices)))

    def compare(self, models, devices, first, second, share):
        nothing = np.zeros((len(devices), 2))
        return Paired(IMAGES[devices], nothing, nothing)

    def survey(self, models, devices, images):
        return Survey(IMAGES[devices], np.zeros((len(devices), len(models), 2)))


class FourSecondsAModel:
    def broadcast_seconds(self, models: int) -> float:
        return 4.0 * models


def asking(*, real: bool = False) -> Asking:
    """Training takes the three devices 1, 2 and 4 seconds, and 10 J each, for 2 epochs of 30 images."""
    config = configuration.load(None, ["training.epochs=2", "population.test_share=0.2"])
    found = Asking(config, Answering(), FourSecondsAModel(), np.array([30, 30, 30]), real)
    seconds, one = np.array([1.0, 2.0, 4.0]), np.ones(3)
    found.begin(Links(one, one, seconds, one, 10 * one, one, one > 0))
    return found


def test_a_survey_costs_a_third_of_training_on_every_image_with_every_model_and_all_models_are_sent():
    asked = asking()
    asked.survey(MODELS, DEVICES)
    looks = 4 * np.array([6, 6, 12])
    assert asked.seconds == pytest.approx(4 * 4.0 + 4.0 * (48 / 60) / 3)  # the third device is the slowest, with most
    np.testing.assert_allclose(asked.joules, 10.0 * looks / 60 / 3)


def test_a_comparison_looks_at_two_models_and_only_those_compared_are_sent():
    asked = asking()
    asked.compare(MODELS, DEVICES[:2], np.array([0, 0]), np.array([1, 2]))
    assert asked.seconds == pytest.approx(3 * 4.0 + 2.0 * (12 / 60) / 3)
    assert asked.joules[2] == 0


def test_a_clusters_own_model_needs_no_sending_and_held_out_images_are_a_share():
    asked = asking()
    asked.evaluate(MODELS, DEVICES, DEVICES * 0, "validation")
    assert asked.seconds == pytest.approx(4.0 * (30 / 7 / 60) / 3)  # a tenth held out, a fifth for testing


def test_questions_add_up_within_a_round_and_one_device_asked_twice_answers_twice():
    asked = asking()
    asked.evaluate(MODELS, np.array([0, 0]), np.array([0, 1]), "train")
    assert asked.seconds == pytest.approx(1.0 * (60 / 60) / 3)
    asked.survey(MODELS[:1], DEVICES[:1])
    assert asked.seconds == pytest.approx(1 / 3 + 4.0 + 1.0 * (6 / 60) / 3)


def test_on_real_devices_the_clock_on_the_wall_counts():
    asked = asking(real=True)
    asked.survey(MODELS, DEVICES)
    assert 0 < asked.seconds < 4.0  # nothing of what the edge would say


# -------------------------------------------------------------------------------- in whole runs


def test_a_runs_clock_and_energy_hold_its_trials(tmp_path):
    run = digits().run(tmp_path / "run")
    rounds = run.rounds
    apart = rounds["seconds"] - rounds["makespan_seconds"] - rounds["broadcast_seconds"]
    np.testing.assert_allclose(apart, rounds["asking_seconds"], atol=1e-9)
    tried = run.events[run.events["kind"].isin(["trial", "split"])]["round"].unique()
    quiet = rounds[~rounds["round"].isin(tried)]["asking_seconds"].max()
    assert rounds[rounds["round"].isin(tried)]["asking_seconds"].min() > 2 * quiet > 0
    assert run.summary["simulated_seconds"] == pytest.approx(rounds["seconds"].sum())
    split = next(node for node in run.tree if node["split"])["split"]
    end = rounds[rounds["round"] == split["round"]].iloc[0]
    assert end["start_seconds"] + end["makespan_seconds"] < split["seconds"] <= end["start_seconds"] + end["seconds"]


def test_the_papers_rule_asks_nothing(tmp_path):
    run = digits("clustering.thresholds=fixed").run(tmp_path / "run")
    assert (run.rounds["asking_seconds"] == 0).all()


def test_a_round_whose_trial_does_not_end_within_the_budget_is_not_made(tmp_path):
    whole = digits().run(tmp_path / "whole").rounds
    first = whole.iloc[0]
    assert first["asking_seconds"] > 0
    budget = first["seconds"] - first["asking_seconds"] / 2
    run = digits(f"run.time_budget_seconds={budget}").run(tmp_path / "run")
    assert len(run.rounds) == 0
