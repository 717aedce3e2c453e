"""The NumPy trainer of the strongly convex case, held against the product's own."""

import numpy as np
import pytest

from data_builders import config, image_set
from fedclade.data import Source, populate
from fedclade.edge.latency import local_steps
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.theory.trainer import LogisticTrainer


def parts(*, validation: float = 0.0, source: Source | None = None, **training: object):
    whole = config(
        population={"source": "digits", "devices": 3, "partition": "iid", "validation_share": validation},
        model={"name": "logistic"},
        training={"epochs": 3, "batch_size": 1000, "learning_rate": 0.05, "weight_decay": 0.1, **training},
    )
    population = populate(whole, source or image_set(90, 4))
    return whole, population, LogisticTrainer(whole, population, local_steps(whole.training, population.samples))


TABLE = np.random.default_rng(1).normal(0.5, 2.0, (90, 1, 1, 3)).astype(np.float32)
FEATURES = Source(TABLE, np.arange(90) % 4, 4, mean=(0.5, 0.0, 1.0), std=(2.0, 1.0, 4.0))


@pytest.mark.parametrize("source", [None, FEATURES], ids=["images", "features"])
def test_with_whole_batches_it_does_what_the_products_trainer_does(source):
    whole, population, mine = parts(source=source, learning_rate_decay=0.5)
    theirs = SequentialTrainer(whole, population)
    model = theirs.initial_model()
    tensors = theirs.named_tensors(model)
    same_model = np.c_[tensors["1.weight"], tensors["1.bias"]].ravel()
    devices, model_of = np.array([2, 0]), np.array([0, 0])
    for round_ in (1, 2):
        ours = mine.train(round_, same_model[None], devices, model_of)
        product = theirs.train(round_, model[None], devices, model_of)
        for row in range(2):
            named = theirs.named_tensors(product[row])
            for name, values in mine.named_tensors(ours[row]).items():
                assert values == pytest.approx(named[name], abs=2e-6)
    for share in ("train", "test"):
        answer = Evaluate(same_model[None], devices, model_of, share).run(mine.examiner)
        product = Evaluate(model[None], devices, model_of, share).run(theirs.examiner)
        assert answer.score == pytest.approx(product.score)
        assert answer.loss == pytest.approx(product.loss, rel=1e-5)  # the cross-entropy alone, without the penalty


def test_it_starts_at_zero_and_notes_the_largest_gradient_of_each_device():
    _, _, trainer = parts()
    start = trainer.initial_model()
    assert not start.any()
    trainer.train(1, start[None], np.arange(3), np.zeros(3, dtype=np.int64))
    first = [np.sum(problem.loss_and_gradient(np.zeros(trainer.parameters))[1] ** 2) for problem in trainer.problems]
    (noted,) = trainer.squared_gradients
    assert noted == pytest.approx(first)  # from zero, gradients only shrink


def test_batches_are_drawn_anew_each_step_keyed_by_round_and_device():
    _, _, trainer = parts(batch_size=8, epochs=1)
    start, one = trainer.initial_model()[None], np.array([0])
    first, again, later = (trainer.train(round_, start, one, one) for round_ in (1, 1, 2))
    assert (first == again).all()
    assert (first != later).any()
    # over many rounds of one small step each, the mean step is that of the whole gradient: batches are unbiased
    alone = parts(batch_size=23, epochs=1, learning_rate=1e-3)[2]
    steps = np.mean([alone.train(round_, start, one, one)[0] for round_ in range(400)], axis=0)
    whole = -1e-3 * alone.problems[0].loss_and_gradient(start[0].astype(np.float64))[1]
    assert steps == pytest.approx(2 * whole, abs=0.05 * float(np.abs(2 * whole).max()))


def with_same_models(theirs: SequentialTrainer) -> tuple[np.ndarray, np.ndarray]:
    """Two models, in the product's order of parameters and in this trainer's."""
    models = np.stack([theirs.initial_model() * scale for scale in (1, 4)])
    tensors = [theirs.named_tensors(model) for model in models]
    return models, np.stack([np.c_[each["1.weight"], each["1.bias"]].ravel() for each in tensors])


@pytest.mark.parametrize("share", ["train", "validation"])
def test_it_compares_models_as_the_products_trainer_does(share):
    whole, population, mine = parts(validation=0.3)
    theirs = SequentialTrainer(whole, population)
    models, same_models = with_same_models(theirs)
    asked = np.array([2, 0]), np.array([0, 1]), np.array([1, 0]), share
    ours, product = Compare(same_models, *asked).run(mine.examiner), Compare(models, *asked).run(theirs.examiner)
    np.testing.assert_array_equal(ours.samples, product.samples)
    assert ours.mean == pytest.approx(product.mean, abs=1e-5)
    assert ours.squares == pytest.approx(product.squares, abs=1e-5)


def test_it_surveys_models_as_the_products_trainer_does():
    whole, population, mine = parts(validation=0.3)
    theirs = SequentialTrainer(whole, population)
    models, same_models = with_same_models(theirs)
    devices = np.array([2, 0])
    ours, product = (
        SurveyModels(same_models, devices).run(mine.examiner),
        SurveyModels(models, devices).run(theirs.examiner),
    )
    np.testing.assert_array_equal(ours.samples, product.samples)
    assert ours.misfit == pytest.approx(product.misfit, abs=1e-5)
