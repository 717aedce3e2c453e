"""Noise in answers: as much as it must be, and an answer is still one."""

import importlib.util
import math
import warnings

import numpy as np
import pytest

from data_builders import config, image_set
from fedclade import Experiment, UserError
from fedclade.data import populate
from fedclade.fleet.answers import Evaluation, Paired, Survey
from fedclade.fleet.privacy import LOSS_MOST, Private, epsilon
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels, TryCut
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.fleet.told import Declared, Told
from tiny_runs import TINY

EVERYBODY = np.arange(5)
PAIRED = Paired(np.full((400, 1), 100), np.zeros((400, 1)), np.full((400, 1), 0.5))


@pytest.fixture(scope="module")
def trainer() -> SequentialTrainer:
    held_out = {"devices": 5, "partition": "iid", "validation_share": 0.3}
    plan = config(population=held_out, model={"name": "logistic"})
    return SequentialTrainer(plan, populate(plan, image_set(300, 4)))


def private(noise: float, seed: int = 1) -> Private:
    chance = np.random.default_rng(seed)
    return Private(noise, lambda device: chance)


def questions(trainer) -> list:
    models, none = np.stack([trainer.initial_model(v) for v in range(3)]), EVERYBODY * 0
    return [
        SurveyModels(models, EVERYBODY, images=3),
        Compare(models, EVERYBODY, none, none + 1),
        TryCut(models, EVERYBODY, EVERYBODY > 2, 3.0),
        Evaluate(models, EVERYBODY, none, "validation"),
    ]


def numbers(answer) -> list[np.ndarray]:
    return [n for v in vars(answer).values() for n in ([v] if isinstance(v, np.ndarray) else numbers(v))]


def test_hardly_any_noise_hardly_changes_an_answer_to_all_samples(trainer):
    for question in questions(trainer):
        truth = question.run(trainer.examiner)
        if isinstance(question, SurveyModels):
            truth = SurveyModels(question.models, EVERYBODY).run(trainer.examiner)
        for found, right in zip(numbers(private(1e-9).run(question, trainer.examiner)), numbers(truth), strict=True):
            np.testing.assert_allclose(found, right, atol=1.0 if right.dtype.kind == "i" else 1e-6)


@pytest.mark.parametrize("noise", [0.1, 3.0, 1000.0])
def test_a_noisy_answer_is_still_one_that_the_server_can_read(trainer, noise):
    holds = {
        share: max(len(trainer.examiner.positions(k, share)) for k in range(5)) for share in ("train", "validation")
    }
    for question in questions(trainer):
        found, taken = private(noise).run(question, trainer.examiner), question.nothing(4)
        for device in range(5):
            alone = type(question).read(*question.part(device), device)
            one = private(noise, device).run(alone, trainer.examiner)
            question.take(taken, device, Told(*question.reply(one), Declared(holds)))
        assert all(np.isfinite(each).all() for each in numbers(taken) + numbers(found))


@pytest.mark.parametrize(
    ("answer", "term", "deviation"),
    [
        # three models: b = 1 + 3/4, so max(4 · 3/4, 2 · 7/4) = 3.5
        (Survey(np.full((400, 1), 100), np.full((400, 3, 1), 0.5)), lambda a: a.misfit[:, 0, 0], math.sqrt(3.5) / 100),
        # a difference in [-1, 1] and its square: b = 1 + 1 + 1/4, so max(4 · 5/4, 2 · 9/4) = 5
        (
            Paired(np.full((400, 1), 100), np.zeros((400, 1)), np.ones((400, 1)) / 2),
            lambda a: a.mean[:, 0],
            5**0.5 / 100,
        ),
        # right or wrong, and a loss: b = 1 + 1/4 + 1/4, so max(4 · 1/2, 2 · 3/2) = 3
        (
            Evaluation(np.full(400, 0.5), np.full(400, LOSS_MOST / 2), np.full(400, 100)),
            lambda a: a.score,
            math.sqrt(3) / 100,
        ),
    ],
    ids=["survey", "comparison", "evaluation"],
)
def test_noise_is_as_large_as_one_sample_can_change_an_answer_times_the_multiplier(answer, term, deviation):
    noisy = private(2.0)._noisy(answer, np.arange(400))
    assert term(noisy).std() == pytest.approx(2 * deviation, rel=0.25)
    assert term(noisy).mean() == pytest.approx(term(answer).mean(), abs=6 * deviation / math.sqrt(400) + 0.02)


def test_every_noise_that_is_drawn_counts_as_an_answer(trainer):
    one = private(1.0)
    for question in questions(trainer):
        one.run(question, trainer.examiner)
    assert one.answers == dict.fromkeys(range(5), 5)  # a cut is asked about in two comparisons


def test_what_cannot_be_made_private_is_refused():
    with pytest.raises(UserError, match="how to make a dict private is not known"):
        private(1.0)._noisy({}, EVERYBODY)


def test_a_run_with_noise_is_the_same_again():
    losses = []
    for _ in range(2):
        experiment = Experiment(TINY, ["clustering.method=cross-evaluation", "privacy.noise=0.5", "run.rounds=2"])
        state, _ = experiment.server.step(experiment.server.initial_state())
        losses.append(state.method.losses)
    np.testing.assert_array_equal(*losses)


@pytest.mark.skipif(importlib.util.find_spec("opacus") is None, reason="Opacus is not installed")
def test_epsilon_is_that_of_the_gaussian_mechanism_composed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, many = epsilon(5.0, 1, 1e-5), epsilon(5.0, 100, 1e-5)
        assert epsilon(50.0, 100, 1e-5) == pytest.approx(one, rel=1e-6)  # 100 answers with ten times the noise are one
    # by hand, for the Gaussian mechanism: min over α of α / (2 σ²) + ln(1 / δ) / (α - 1), without later refinements
    by_hand = min(a / 50 + math.log(1e5) / (a - 1) for a in np.linspace(1.1, 500, 5000))
    assert 0.5 * by_hand < one < by_hand
    assert many > 8 * one
