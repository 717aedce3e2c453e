from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import nn

from data_builders import config, image_set
from fedclade import Interrupted
from fedclade.config import Config
from fedclade.core.random import generator
from fedclade.data import Population, populate
from fedclade.fleet import questions
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.fleet.simulated.trainer import Steering
from fedclade.models import build_model

SOURCE = image_set(60, classes=3, shape=(2, 8, 8), mean=(0.4, 0.6), std=(0.3, 0.2))
EMPTY = (np.arange(0),) * 3
COLOURED = image_set(60, classes=3, shape=(3, 16, 16))


def plan(name: str = "mlp", *, validation: float = 0.0, **training: float) -> Config:
    """Three devices of 16 training and 4 test images; 16 is not a multiple of the batch size."""
    return config(
        run={"seed": 5},
        population={"devices": 3, "partition": "iid", "validation_share": validation},
        model={"name": name, "hidden": 6, "width": 0.05},
        training={"epochs": 2, "batch_size": 5, "learning_rate": 0.1, **training},
    )


def trainer_of(config: Config, source=SOURCE) -> tuple[SequentialTrainer, Population]:
    population = populate(config, source)
    return SequentialTrainer(config, population), population


def module_with(config: Config, population: Population, model: np.ndarray) -> nn.Module:
    module = build_model(config.model, population.images.shape[1:], population.task.outputs, config.run.seed)
    nn.utils.vector_to_parameters(torch.from_numpy(model.copy()), module.parameters())
    return module


def seen(population: Population, positions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels in [0, 1], standardised per channel; and labels."""
    mean, std = (np.reshape(fact, (-1, 1, 1)) for fact in (population.mean, population.std))
    pixels = (population.images[positions] / 255.0 - mean) / std
    return torch.from_numpy(pixels.astype(np.float32)), torch.from_numpy(population.labels[positions])


def update_by_hand(
    config: Config, population: Population, start: np.ndarray, round_: int, device: int, vector=0.0, proximal=None
) -> np.ndarray:
    """What torch.optim.SGD makes of the same batches."""
    proximal = config.training.proximal if proximal is None else proximal
    settings = config.training
    module = module_with(config, population, start)
    optimiser = torch.optim.SGD(
        module.parameters(),
        lr=settings.learning_rate * settings.learning_rate_decay ** (round_ - 1),
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    images, labels = seen(population, population.train[device])
    shuffles = generator(config.run.seed, "batches", round_, device)
    for _ in range(settings.epochs):
        order = shuffles.permutation(len(labels))
        for first in range(0, len(order), settings.batch_size):
            batch = order[first : first + settings.batch_size]
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(module(images[batch]), labels[batch])
            apart = nn.utils.parameters_to_vector(module.parameters()) - torch.from_numpy(start)
            (loss + proximal / 2 * (apart**2).sum() + (torch.as_tensor(vector) * apart).sum()).backward()
            optimiser.step()
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy() - start


def two_models(trainer: SequentialTrainer) -> np.ndarray:
    initial = trainer.initial_model()
    return np.stack([initial, 0.5 * initial])


# -------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    ("round_", "training"),
    [
        (1, {"epochs": 1, "batch_size": 99}),  # one step
        (1, {}),
        (2, {"momentum": 0.9}),
        (2, {"weight_decay": 0.3}),
        (2, {"proximal": 0.7}),
        (4, {"learning_rate_decay": 0.5}),
        (3, {"momentum": 0.9, "weight_decay": 0.3, "learning_rate_decay": 0.9, "epochs": 3}),
    ],
)
def test_an_update_is_what_torchs_sgd_does_to_the_clusters_model(round_, training):
    settings = plan(**training)
    trainer, population = trainer_of(settings)
    models, devices, model_of = two_models(trainer), np.array([2, 0, 1]), np.array([0, 1, 1])
    updates = trainer.train(round_, models, devices, model_of)
    assert updates.dtype == np.float32
    for update, device, model in zip(updates, devices, model_of, strict=True):
        by_hand = update_by_hand(settings, population, models[model], round_, device)
        np.testing.assert_allclose(update, by_hand, rtol=1e-4, atol=1e-6)
        assert np.linalg.norm(by_hand) > 1e-3


def test_steering_adds_a_vector_of_ones_own_to_every_gradient_and_sets_the_pull():
    settings = plan(momentum=0.5, proximal=9.0)
    trainer, population = trainer_of(settings)
    models, devices, model_of = two_models(trainer), np.array([2, 0, 1]), np.array([0, 1, 1])
    vectors = np.random.default_rng(0).normal(size=(3, trainer.parameters)).astype(np.float32)
    updates = trainer.train(2, models, devices, model_of, Steering(vectors, 0.7))
    for row, (device, model) in enumerate(zip(devices, model_of, strict=True)):
        by_hand = update_by_hand(settings, population, models[model], 2, device, vectors[row], 0.7)
        np.testing.assert_allclose(updates[row], by_hand, rtol=1e-4, atol=1e-6)


def test_the_rate_falls_by_the_decay_every_round():
    """Seen in one step of all samples, whose gradient the order of the samples does not change."""
    trainer, _ = trainer_of(plan(epochs=1, batch_size=99, learning_rate_decay=0.5))
    models = two_models(trainer)
    one, two = (trainer.train(round_, models, np.array([0]), np.array([0])) for round_ in (1, 2))
    np.testing.assert_allclose(two, 0.5 * one, rtol=1e-3, atol=1e-6)


def test_training_leaves_the_models_and_torchs_generator_alone():
    trainer, _ = trainer_of(plan("alexnet"), COLOURED)
    models = two_models(trainer)
    before, state = models.copy(), torch.get_rng_state()
    trainer.train(1, models, np.arange(3), np.array([0, 1, 0]))
    np.testing.assert_array_equal(models, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn", "alexnet"])  # the alexnet has dropout
def test_a_devices_update_depends_on_neither_order_nor_company(name):
    trainer, _ = trainer_of(plan(name, momentum=0.5), COLOURED)
    models, model_of = two_models(trainer), np.array([0, 1, 1])
    alone = [trainer.train(1, models, np.array([k]), model_of[[k]])[0].tobytes() for k in range(3)]
    for size in (2, 3):
        for some in permutations(range(3), size):
            together = trainer.train(1, models, np.array(some), model_of[list(some)])
            assert [update.tobytes() for update in together] == [alone[k] for k in some]


@pytest.mark.parametrize("name", ["mlp", "alexnet"])
def test_another_trainer_of_the_same_config_gives_the_same_bytes_whatever_torch_drew(name):
    def updates(round_: int) -> bytes:
        torch.manual_seed(round_)
        trainer, _ = trainer_of(plan(name), COLOURED)
        torch.rand(round_)
        return trainer.train(2, two_models(trainer), np.arange(3), np.array([0, 1, 0])).tobytes()

    assert updates(1) == updates(7)


def test_every_round_and_every_device_has_a_dropout_of_its_own():
    """One sample in one batch leaves nothing but dropout to differ."""
    settings = plan("alexnet", epochs=1, batch_size=1)
    population = populate(settings, COLOURED)
    one = population.train[0][:1]
    trainer = SequentialTrainer(settings, replace(population, train=(one, one, one)))
    models = trainer.initial_model()[None] * 5
    updates = [trainer.train(r, models, np.arange(3), np.zeros(3, int)) for r in (1, 2)]
    assert len({update.tobytes() for update in np.concatenate(updates)}) == 6


def test_a_device_with_a_single_training_sample_trains():
    settings = config(population={"devices": 30, "min_samples": 2, "partition": "iid"}, model={"name": "mlp"})
    trainer, population = trainer_of(settings)
    assert set(population.samples) == {1}
    models = trainer.initial_model()[None]
    (update,) = trainer.train(1, models, np.array([29]), np.array([0]))
    by_hand = update_by_hand(settings, population, models[0], 1, 29)
    np.testing.assert_allclose(update, by_hand, rtol=1e-4, atol=1e-6)
    assert Evaluate(models, np.array([29]), np.array([0])).run(trainer.examiner).score in (0.0, 1.0)


@pytest.mark.parametrize("trained", [0, 2])
def test_a_stop_request_interrupts_between_two_devices_and_leaves_nothing_behind(trained):
    settings = plan()
    population = populate(settings, SOURCE)
    answers = iter([False] * trained + [True] + [False] * 3)
    trainer = SequentialTrainer(settings, population, lambda: next(answers))
    models, everybody = two_models(trainer), (np.arange(3), np.array([0, 1, 0]))
    with pytest.raises(Interrupted):
        trainer.train(1, models, *everybody)
    undisturbed = SequentialTrainer(settings, population).train(1, models, *everybody)
    np.testing.assert_array_equal(trainer.train(1, models, *everybody), undisturbed)


# -------------------------------------------------------------------------------- evaluation


@pytest.mark.parametrize("share", ["train", "validation", "test"])
def test_evaluation_is_the_mean_over_a_devices_images(share):
    settings = plan(validation=0.2)
    trainer, population = trainer_of(settings)
    models = two_models(trainer) * 3
    devices, model_of = np.array([2, 0, 1, 2]), np.array([1, 0, 1, 0])
    evaluation = Evaluate(models, devices, model_of, share).run(trainer.examiner)
    for row, (device, model) in enumerate(zip(devices, model_of, strict=True)):
        module = module_with(settings, population, models[model]).eval()
        right, loss = [], []
        for position in getattr(population, share)[device]:
            image, label = seen(population, np.array([position]))
            scores = module(image).detach()[0].double()
            right.append(int(scores.argmax()) == int(label))
            loss.append(float(scores.logsumexp(0) - scores[int(label)]))
        assert evaluation.score[row] == np.mean(right)
        assert evaluation.loss[row] == pytest.approx(np.mean(loss), rel=1e-5)


def test_evaluation_is_of_the_test_share_unless_told_otherwise():
    trainer, _ = trainer_of(plan())
    asked = two_models(trainer), np.arange(3), np.zeros(3, int)
    default, test, train = (
        Evaluate(*asked).run(trainer.examiner),
        Evaluate(*asked, "test").run(trainer.examiner),
        Evaluate(*asked, "train").run(trainer.examiner),
    )
    np.testing.assert_array_equal(default.loss, test.loss)
    assert (default.loss != train.loss).all()


def test_more_images_than_one_evaluation_batch_are_all_counted():
    settings = config(population={"devices": 1, "partition": "iid", "validation_share": 0}, model={"name": "logistic"})
    trainer, population = trainer_of(settings, image_set(1500, classes=3))
    models = trainer.initial_model()[None]
    evaluation = Evaluate(models, np.array([0]), np.array([0]), "train").run(trainer.examiner)
    images, labels = seen(population, population.train[0])
    scores = module_with(settings, population, models[0])(images).detach()
    assert len(labels) == 1200
    assert evaluation.score[0] == (scores.argmax(1) == labels).double().mean()
    assert evaluation.loss[0] == pytest.approx(float(nn.functional.cross_entropy(scores, labels)), rel=1e-5)


def test_evaluation_drops_nothing_out_and_does_not_disturb_training():
    trainer, _ = trainer_of(plan("alexnet"), COLOURED)
    models, everybody = two_models(trainer), (np.arange(3), np.array([0, 1, 0]))
    before = trainer.train(1, models, *everybody)
    losses = [Evaluate(models, *everybody).run(trainer.examiner).loss.tobytes() for _ in range(2)]
    assert losses[0] == losses[1]
    np.testing.assert_array_equal(trainer.train(1, models, *everybody), before)


def right_label(net, images, labels):
    """The probability that a model gives to each image's label."""
    return net(images).detach().softmax(1)[torch.arange(len(labels)), labels]


@pytest.mark.parametrize("share", ["train", "validation"])
def test_comparing_is_one_misfit_less_the_other_image_by_image_and_class_by_class(share):
    settings = plan(validation=0.3)
    trainer, population = trainer_of(settings)
    models = np.stack([trainer.initial_model() * scale for scale in (1, 3, -2)])
    devices, first, second = np.array([2, 0, 1, 2]), np.array([1, 0, 1, 2]), np.array([0, 2, 1, 1])
    answer = Compare(models, devices, first, second, share).run(trainer.examiner)
    for row, device in enumerate(devices):
        positions = getattr(population, share)[device]
        images, labels = seen(population, positions)
        a, b = (module_with(settings, population, models[each[row]]).eval() for each in (first, second))
        fits = [right_label(net, images, labels).sqrt() for net in (a, b)]
        differences = (fits[0] - fits[1]).double().numpy()
        for label in range(population.task.outputs):
            mine = differences[labels.numpy() == label]
            assert answer.samples[row, label] == len(mine)
            if len(mine):
                assert answer.mean[row, label] == pytest.approx(mine.mean(), rel=1e-4, abs=1e-6)
                assert answer.squares[row, label] == pytest.approx((mine**2).mean(), rel=1e-4, abs=1e-6)


def test_comparing_is_of_the_validation_share_unless_told_otherwise():
    trainer, population = trainer_of(plan(validation=0.3))
    answer = Compare(two_models(trainer), np.arange(3), np.zeros(3, int), np.ones(3, int)).run(trainer.examiner)
    assert answer.samples.sum(axis=1).tolist() == [len(part) for part in population.validation]


def test_comparing_without_held_out_images_says_nothing():
    trainer, _ = trainer_of(plan())
    asked = two_models(trainer), np.arange(3), np.zeros(3, int), np.ones(3, int)
    assert Compare(*asked).run(trainer.examiner).test() == (0.0, 1.0)


def test_a_survey_is_the_mean_misfit_of_every_model_by_class_of_the_training_images():
    settings = plan(validation=0.2)
    trainer, population = trainer_of(settings)
    models, devices = np.stack([trainer.initial_model() * scale for scale in (1, 3, -2)]), np.array([2, 0, 1])
    answer = SurveyModels(models, devices).run(trainer.examiner)
    assert answer.misfit.shape == (3, 3, population.task.outputs)
    for row, device in enumerate(devices):
        images, labels = seen(population, population.train[device])
        for column, model in enumerate(models):
            net = module_with(settings, population, model).eval()
            misfits = (1 - right_label(net, images, labels).sqrt()).double().numpy()
            for label in range(population.task.outputs):
                mine = misfits[labels.numpy() == label]
                assert answer.samples[row, label] == len(mine)
                expected = mine.mean() if len(mine) else 0.0
                assert answer.misfit[row, column, label] == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("images", [1, 7, 20, 10_000])
def test_a_survey_of_some_images_has_the_same_share_of_each_class_and_counts_them_all(images, monkeypatch):
    trainer, population = trainer_of(plan(validation=0.2))
    models, devices = two_models(trainer), np.array([1, 2, 0])
    looked = []
    look = questions._some
    monkeypatch.setattr(questions, "_some", lambda *asked: looked.append(look(*asked)) or looked[-1])
    whole, some = (
        SurveyModels(models, devices).run(trainer.examiner),
        SurveyModels(models, devices, images).run(trainer.examiner),
    )
    np.testing.assert_array_equal(some.samples, whole.samples)
    for row, (device, mine) in enumerate(zip(devices, looked, strict=True)):
        assert set(mine) <= set(population.train[device])
        held = whole.samples[row]
        share = min(1.0, images / held.sum())
        counts = np.bincount(population.labels[mine], minlength=len(held))
        assert (np.abs(counts - share * held) < 1).all()
        assert ((counts > 0) == (held > 0)).all()
    if images > held.sum():
        np.testing.assert_array_equal(some.misfit, whole.misfit)


def test_a_survey_agrees_with_comparisons():
    trainer, _ = trainer_of(plan(validation=0.2))
    models, devices = two_models(trainer), np.array([1, 2, 0])
    answer = SurveyModels(models, devices).run(trainer.examiner)
    first, second = np.zeros(3, dtype=np.int64), np.ones(3, dtype=np.int64)
    compared = Compare(models, devices, first, second, "train").run(trainer.examiner)
    np.testing.assert_array_equal(compared.samples, answer.samples)
    assert answer.misfit[:, 1] - answer.misfit[:, 0] == pytest.approx(compared.mean, abs=1e-9)


# -------------------------------------------------------------------------------- models


def test_the_initial_model_is_the_built_one_and_cannot_be_spoilt():
    settings = plan()
    trainer, population = trainer_of(settings)
    module = build_model(settings.model, (2, 8, 8), population.task.outputs, settings.run.seed)
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    trainer.initial_model()[:] = 0
    trainer.train(1, two_models(trainer), np.array([0]), np.array([0]))
    np.testing.assert_array_equal(trainer.initial_model(), expected)
    assert trainer.parameters == len(expected) == (2 * 64 * 6 + 6) + (6 * 3 + 3)


def test_named_tensors_are_the_modules_own_and_copies():
    settings = plan("cnn")
    trainer, population = trainer_of(settings, COLOURED)
    model = np.arange(trainer.parameters, dtype=np.float32)
    tensors = trainer.named_tensors(model)
    expected = module_with(settings, population, model).state_dict()
    assert list(tensors) == list(expected)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name].numpy())
        tensor[:] = -1
    np.testing.assert_array_equal(model, np.arange(trainer.parameters))


def test_what_devices_hold_is_left_as_it_is():
    held = populate(plan(), replace(SOURCE, x=SOURCE.x.astype(np.float32)))
    before = held.images.copy()
    SequentialTrainer(plan(), held)
    np.testing.assert_array_equal(held.images, before)


def test_in_the_last_rounds_devices_train_on_what_they_held_out_too():
    settings = plan(validation=0.25, refit_share=0.2)
    settings = settings.model_copy(update={"run": settings.run.model_copy(update={"rounds": 10})})
    trainer, population = trainer_of(settings)
    everything = tuple(map(np.concatenate, zip(population.train, population.validation, strict=True)))
    all_along = SequentialTrainer(settings, replace(population, train=everything, validation=EMPTY))
    model, me = trainer.initial_model()[None], np.array([1])
    assert settings.refit_from == 9
    for round_ in (8, 9):
        updates = [each.train(round_, model, me, me * 0) for each in (trainer, all_along)]
        assert np.array_equal(*updates) == (round_ == 9)
