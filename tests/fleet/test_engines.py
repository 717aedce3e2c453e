"""Every engine is held to the plain one: same batches, same updates but for the last bits, for any devices."""

import io
import json
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from data_builders import config, error_line, image_set, stand_in_folder_with
from fedclade.core.errors import Interrupted
from fedclade.core.task import Task
from fedclade.core.updates import sketch_signs
from fedclade.data import Population
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels
from fedclade.fleet.simulated import pool, streamed, worker
from fedclade.fleet.simulated.engines import Engine, build_trainer, choose_engine
from fedclade.fleet.simulated.kernels.batched import ConvolutionStack, DenseStack
from fedclade.fleet.simulated.kernels.dual import DualProgram
from fedclade.fleet.simulated.kernels.flat import bind
from fedclade.fleet.simulated.kernels.lean import compile_lean
from fedclade.fleet.simulated.kernels.targets import Classes, Numbers
from fedclade.fleet.simulated.looks import parts_of
from fedclade.fleet.simulated.net import LOOK_BATCH
from fedclade.fleet.simulated.pool import WorkersTrainer
from fedclade.fleet.simulated.streamed import Recipe, StreamedUpdates
from fedclade.fleet.simulated.trainer import Steering
from fedclade.models import build_model
from tiny_runs import outcome, tiny

SIDE = 16  # the smallest image the small convolutional net takes


TURNED = (  # nets that are trained with autograd, with the kernels turned
    "from torch import nn\n"
    "def net(shape, classes):\n"
    "    first, second = nn.Conv2d(shape[0], 20, 3, stride=2), nn.Conv2d(20, 18, (2, 3))\n"
    "    return nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(18 * 6 * 5, classes))\n"
)


def population_of(sizes: list[int], shape: tuple[int, int, int] = (1, SIDE, SIDE)) -> Population:
    """Devices with so many training images each, and one test image."""
    source = image_set(sum(sizes) + len(sizes), 5, shape)
    ends = np.cumsum([size + 1 for size in sizes])
    parts = [np.arange(end - size - 1, end) for size, end in zip(sizes, ends, strict=True)]
    return Population(
        source.x,
        source.y,
        tuple(part[1:] for part in parts),
        tuple(part[:0] for part in parts),
        tuple(part[:1] for part in parts),
        np.zeros(len(sizes), dtype=np.int64),
        Task(5),
        (0.5,) * shape[0],
        (0.3,) * shape[0],
    )


def settings_of(model: str, **training: object):
    return config(
        model={"name": model, "hidden": 7},
        training={"epochs": 2, "batch_size": 8, "learning_rate": 0.05} | training,
    )


def updates(
    engine: Engine, plan, population: Population, round_: int = 3, nudge: float = 0.0, steered: bool = False
) -> np.ndarray:
    trainer = build_trainer(engine, plan, population)
    start = trainer.initial_model()
    start = start + np.float32(nudge) * np.random.default_rng(0).normal(size=start.shape).astype(np.float32)
    models = np.stack([start, start * np.float32(0.5)])
    devices = np.arange(population.devices)
    try:
        vectors = np.random.default_rng(1).normal(size=(len(devices), len(start))).astype(np.float32)
        steering = Steering(0.1 * vectors, 0.5) if steered else None
        return trainer.train(round_, models, devices, devices % 2, steering)
    finally:
        trainer.close()


def close(found: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Which devices' updates are alike to float tolerance, relative to each update's size."""
    return np.linalg.norm(found - reference, axis=1) <= 2e-4 * np.linalg.norm(reference, axis=1) + 1e-7


def assert_close(found: np.ndarray, reference: np.ndarray) -> None:
    assert close(found, reference).all(), np.linalg.norm(found - reference, axis=1)


ENGINES = [
    ("cnn", "workers"),
    ("cnn", "batched"),
    ("mlp", "workers"),
    ("mlp", "batched"),
    ("logistic", "batched"),
    ("logistic", "workers"),
]


@pytest.mark.parametrize(("model", "engine"), ENGINES)
@settings(max_examples=15)
@example(
    sizes=[25, 29], extras={"weight_decay": 0.01, "learning_rate_decay": 0.9}, steered=False
)  # such a kink, for the cnn
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    extras=st.sampled_from(
        [{}, {"momentum": 0.9}, {"weight_decay": 0.01, "learning_rate_decay": 0.9}, {"proximal": 0.5}]
    ),
    steered=st.booleans(),
)
def test_an_engine_gives_the_plain_engines_updates(model, engine, sizes, extras, steered):
    plan, population = settings_of(model, **extras), population_of(sizes)
    found, alike = updates(Engine(engine, 1), plan, population, steered=steered), np.zeros(len(sizes), dtype=bool)
    for nudge in (0.0, 1e-8, -1e-8, 3e-8, -3e-8):  # at a kink of the net rounding decides, in the plain engine, too
        if not alike.all():
            alike |= close(found, updates(Engine("sequential", 1), plan, population, nudge=nudge, steered=steered))
    assert alike.all()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_net_the_lean_step_does_not_know_gives_the_plain_engines_updates_too(channels, tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "turned", TURNED)
    plan, population = settings_of("turned:net", momentum=0.5), population_of([9, 1, 20], (channels, SIDE, SIDE))
    reference = updates(Engine("sequential", 1), plan, population)
    assert_close(updates(Engine("workers", 1), plan, population), reference)
    plain, turned = (build_trainer(Engine(name, 1), plan, population) for name in ("sequential", "workers"))
    model, device = plain.initial_model(), np.arange(1)
    np.testing.assert_array_equal(turned.initial_model(), model)
    one, other = (Evaluate(model[None], device, device).run(trainer.examiner) for trainer in (plain, turned))
    np.testing.assert_allclose(other.loss, one.loss, rtol=1e-5)


SHARED_AND_FROZEN = """
from torch import nn

def shared(shape, classes):
    first, middle, last = nn.Linear(256, 9), nn.Linear(9, 9), nn.Linear(9, classes)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), middle, nn.ReLU(), middle, nn.ReLU(), last)

def frozen(shape, classes):
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 9), nn.ReLU(), nn.Linear(9, classes))
    net[1].requires_grad_(False)
    return net
"""


@pytest.mark.parametrize("extras", [{}, {"weight_decay": 0.01, "momentum": 0.5}])
@pytest.mark.parametrize("net", ["shared", "frozen"])
def test_what_layers_share_is_one_and_what_is_frozen_stays_with_every_engine(net, extras, tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "nets_19", SHARED_AND_FROZEN)
    plan, population = settings_of(f"nets_19:{net}", **extras), population_of([9, 20])
    plain, lean = (updates(Engine(name, 1), plan, population) for name in ("sequential", "workers"))
    assert_close(lean, plain)
    assert not DenseStack.fits(build_model(plan.model, (1, SIDE, SIDE), 5, 1))
    assert (np.abs(plain[:, : 257 * 9]).max() > 0) == (net == "shared")
    assert np.abs(plain[:, -5:]).max() > 0


@pytest.mark.parametrize(("model", "engine"), ENGINES)
def test_an_engine_compares_models_as_the_plain_engine_does(model, engine):
    plan, population = settings_of(model), population_of([9, 1, 20])
    plain, other = (build_trainer(Engine(name, 1), plan, population) for name in ("sequential", engine))
    models = np.stack([plain.initial_model() * scale for scale in np.float32([1, 2])])
    asked = models, np.array([2, 0, 1]), np.array([0, 1, 1]), np.array([1, 0, 0]), "train"
    expected, found = Compare(*asked).run(plain.examiner), Compare(*asked).run(other.examiner)
    np.testing.assert_array_equal(found.samples, expected.samples)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
    other.close()


@pytest.mark.parametrize(("model", "engine"), ENGINES)
def test_an_engine_surveys_models_as_the_plain_engine_does(model, engine):
    plan, population = settings_of(model), population_of([9, 1, 20])
    plain, other = (build_trainer(Engine(name, 1), plan, population) for name in ("sequential", engine))
    models, devices = np.stack([plain.initial_model() * scale for scale in np.float32([1, 2, -1])]), np.array([2, 0, 1])
    expected, found = (
        SurveyModels(models, devices).run(plain.examiner),
        SurveyModels(models, devices).run(other.examiner),
    )
    np.testing.assert_array_equal(found.samples, expected.samples)
    np.testing.assert_allclose(found.misfit, expected.misfit, rtol=1e-4, atol=1e-5)
    other.close()


@pytest.mark.parametrize(("model", "engine"), [("cnn", "workers"), ("mlp", "workers"), ("logistic", "batched")])
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_worker_processes_give_the_same_bytes_as_one_process(model, engine, workers):
    plan, population = settings_of(model), population_of([12, 1])  # also more workers than devices
    alone, together = (build_trainer(Engine(engine, count), plan, population) for count in (1, workers))
    models = np.stack([alone.initial_model() * scale for scale in np.float32([1, 0.5, -1])])
    images = np.resize(np.arange(13), 5 * LOOK_BATCH + 7)
    before = together.examiner.losses(models, images)  # there are no processes yet
    devices = np.arange(2)
    updates = [trainer.train(3, models, devices, devices) for trainer in (together, alone)]
    np.testing.assert_array_equal(*updates)
    for several in (models, models[:1]):
        looks = [trainer.examiner.losses(several, images) for trainer in (together, alone)]
        np.testing.assert_array_equal(*looks)
        np.testing.assert_array_equal(looks[0], before[: len(several)])
    scores = [trainer.examiner.scores(models[1], images) for trainer in (together, alone)]
    np.testing.assert_array_equal(*scores)
    together.close()


@given(st.integers(1, 40), st.integers(1, 5000), st.integers(1, 12))
def test_looks_are_parted_without_gaps_at_whole_batches(models, images, most):
    parts, seen = parts_of(models, images, most), np.zeros((models, images), dtype=int)
    for (first, last), (start, end) in parts:
        seen[first:last, start:end] += 1
        assert start % LOOK_BATCH == 0
    assert (seen == 1).all()
    assert len(parts) <= max(most, 1)


def test_worker_processes_may_have_nobody_to_train():
    plan, population = settings_of("logistic"), population_of([4, 4])
    trainer, nobody = WorkersTrainer(plan, population, workers=2), np.zeros(0, dtype=np.int64)
    try:
        assert trainer.train(1, trainer.initial_model()[None], nobody, nobody).shape == (0, trainer.parameters)
    finally:
        trainer.close()


def test_a_killed_worker_is_replaced_and_its_device_trained_again_to_the_same_bytes():
    plan, population = settings_of("cnn"), population_of([9, 20, 3])
    trainer = WorkersTrainer(plan, population, workers=2)
    everybody, models = np.arange(3), trainer.initial_model()[None]
    try:
        before = trainer.train(1, models, everybody, everybody * 0)
        for worker in trainer._workers:
            os.kill(worker.process.pid, signal.SIGKILL)
        after = trainer.train(1, models, everybody, everybody * 0)
    finally:
        trainer.close()
    np.testing.assert_array_equal(after, before)
    assert trainer.incidents == ["a worker process died (exit code -9) and was replaced"] * 2


@pytest.mark.parametrize("first", ["", json.dumps({"arrays": {"order": {"path": "/proc/0/fd/9"}}}) + "\n"])
def test_a_worker_whose_server_died_before_it_was_ready_ends_without_a_word(first, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO(first))
    worker.main()


@pytest.mark.slow
def test_a_task_that_keeps_killing_its_workers_ends_the_run_with_one_line(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(
        "import os, sys\nfrom torch import nn\n"
        "def net(shape, classes):\n"
        "    if 'pytest' not in sys.modules:\n        os._exit(7)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(256, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    trainer = WorkersTrainer(settings_of("deadly:net"), population_of([4, 4]), workers=2)
    devices = np.arange(2)
    try:
        line = error_line(trainer.train, 1, trainer.initial_model()[None], devices, devices * 0)
    finally:
        trainer.close()
    assert "training.workers: 3 worker processes died" in line
    assert "exit code 7" in line


@pytest.mark.slow
def test_a_request_to_stop_ends_a_round_of_workers_and_they_can_go_on():
    stop = SimpleNamespace(wanted=False)
    plan, population = settings_of("cnn"), population_of([5, 5])
    trainer = WorkersTrainer(plan, population, lambda: stop.wanted, workers=2)
    devices, models = np.arange(2), trainer.initial_model()[None]
    try:
        expected = trainer.train(1, models, devices, devices * 0)
        stop.wanted = True
        with pytest.raises(Interrupted):
            trainer.train(1, models, devices, devices * 0)
        stop.wanted = False
        np.testing.assert_array_equal(trainer.train(1, models, devices, devices * 0), expected)
    finally:
        trainer.close()


@pytest.mark.parametrize("engine", ["sequential", "workers", "batched"])
def test_a_run_resumed_under_an_engine_ends_the_same_to_the_byte(engine, tmp_path):
    words = [f"training.engine={engine}"]
    whole = tiny(*words).run(tmp_path / "whole")
    answers = iter([False] * 5 + [True] * 100)
    with pytest.raises(Interrupted):
        tiny(*words, stop_requested=lambda: next(answers)).run(tmp_path / "cut")
    tiny(*words).resume(tmp_path / "cut")
    assert outcome(tmp_path / "cut") == outcome(whole.folder)


def test_every_engine_finds_the_same_tree_in_the_same_rounds(tmp_path):
    summaries = [
        tiny(f"training.engine={engine}").run(tmp_path / engine).summary
        for engine in ("sequential", "workers", "batched")
    ]
    for name in ("clusters", "first_split_round", "last_split_round", "adjusted_rand_index"):
        assert len({summary[name] for summary in summaries}) == 1
    accuracies = [summary["accuracy_mean"] for summary in summaries]
    assert max(accuracies) - min(accuracies) <= 1e-3


@pytest.mark.parametrize("room", [True, False])
@pytest.mark.parametrize(("model", "engine"), [("mlp", "batched"), ("cnn", "workers")])
def test_updates_that_are_not_kept_are_digested_by_the_workers(model, engine, room, monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK", 3)
    monkeypatch.setattr(pool, "DIGESTS", 1)
    plan, sizes = settings_of(model), [9, 1, 20, 7, 12, 30, 5, 8, 11, 4, 3, 16, 2]
    population, everyone, found = population_of(sizes), np.arange(len(sizes)), []
    for processes in (1, 2):
        trainer = build_trainer(Engine(engine, processes), plan, population)
        if processes == 2 and not room:
            trainer._alone = True  # as after a training for which there was no room
        models = np.stack([trainer.initial_model(variant) for variant in range(2)])
        signs = sketch_signs(1, trainer.parameters)
        try:
            recipe = Recipe(3, models, everyone, everyone % 2)
            updates = StreamedUpdates(trainer, recipe, population.samples, signs, 16, 1e9)
            halves = updates.sums(everyone, everyone // 7, np.ones(len(sizes)), 2)
        finally:
            trainer.close()
        found.append((updates.norms(everyone), updates.sketched(signs, 16).rows(everyone), updates._sums, halves))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


# -------------------------------------------------------------------------------- the choice


def test_auto_stacks_small_dense_models_and_trains_others_one_by_one():
    small, large = population_of([20, 20]), population_of([20] * 400)
    chosen = {model: choose_engine(settings_of(model), small) for model in ("logistic", "cnn")}
    assert chosen == {"logistic": Engine("batched", 1), "cnn": Engine("workers", 1)}
    wide = config(model={"name": "mlp", "hidden": 200}, training={"epochs": 1})
    assert choose_engine(wide, small).name == "workers"  # too large to stack eight of them
    cores = len(os.sched_getaffinity(0))
    assert choose_engine(settings_of("cnn"), large) == Engine("workers", cores)  # 8,000 images, 2 epochs, 60 rounds


def test_one_process_drives_a_card_with_the_nets_of_many_devices_where_these_can_be_stacked():
    small, coloured = population_of([20, 20]), population_of([20, 20], (3, 32, 32))
    for model in ("logistic", "cnn", "cnn-large"):
        assert choose_engine(settings_of(model, device="cuda"), small) == Engine("batched", 1)
    assert choose_engine(settings_of("cnn", device="cuda", engine="workers"), small) == Engine("sequential", 1)
    assert choose_engine(settings_of("alexnet", device="cuda"), coloured) == Engine("sequential", 1)  # it has dropout


def test_never_more_workers_than_devices():
    assert choose_engine(settings_of("cnn", workers=9), population_of([3, 3])) == Engine("workers", 2)


def test_what_an_engine_cannot_do_is_said_in_one_line():
    population = population_of([3, 3])
    coloured = population_of([3, 3], (3, 32, 32))
    line = error_line(choose_engine, settings_of("alexnet", engine="batched"), coloured)
    assert line == (
        'training.engine = "batched": is for dense and convolutional nets without dropout or batch norm, not alexnet; '
        'use "workers"'
    )
    if not torch.cuda.is_available():
        cuda = settings_of("cnn", device="cuda")
        assert "training.device" in error_line(build_trainer, choose_engine(cuda, population), cuda, population)


def test_a_run_keeps_the_engine_it_was_started_with(tmp_path):
    run = tiny("run.rounds=1").run(tmp_path / "run")
    assert (run.config.training.engine, run.config.training.workers) == ("batched", 1)


# -------------------------------------------------------------------------------- the dual steps


def deep_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(50, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 4))


@pytest.mark.parametrize(
    ("targets", "wanted"), [(Classes(4), torch.arange(11) % 4), (Numbers(), torch.linspace(-2, 3, 44).view(11, 4))]
)
def test_dual_steps_are_sgd_also_through_several_hidden_layers(targets, wanted):
    images = torch.randn(11, 50, generator=torch.Generator().manual_seed(1))
    orders = [np.random.default_rng(epoch).permutation(11) for epoch in range(3)]
    reference, module = deep_net(), deep_net()
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.3)
    for order in orders:
        for batch in torch.split(torch.from_numpy(order), 4):
            optimiser.zero_grad()
            targets.loss(reference(images[batch]), wanted[batch]).backward()
            optimiser.step()
    weights, _, _ = bind(module)
    DualProgram(module, targets).train(images, targets.wanted(wanted).numpy(), orders, 4, 0.3)
    torch.testing.assert_close(weights, nn.utils.parameters_to_vector(reference.parameters()), rtol=1e-4, atol=1e-5)


def test_dual_steps_are_for_few_samples_and_several_epochs():
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 62))
    program = DualProgram(module, Classes(62))
    assert program.pays(samples=240, epochs=10)
    assert not program.pays(samples=2000, epochs=10)
    assert not program.pays(samples=240, epochs=1)


# -------------------------------------------------------------------------------- the lean step


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 9 * 7, 5)],
        [nn.Conv2d(2, 9, (3, 2), padding=(1, 1)), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(9 * 5 * 5, 5)],
        [nn.Conv2d(2, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 8, 2, padding=1), nn.MaxPool2d(2), nn.ReLU(),
         nn.Flatten(), nn.Linear(8 * 2 * 2, 6), nn.ReLU(), nn.Linear(6, 5)],
        [nn.Conv2d(2, 3, (3, 2)), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(3, 9, (2, 3)), nn.MaxPool2d(2), nn.ReLU(),
         nn.Flatten(), nn.Linear(9, 5)],
        [nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 80, 5)],
    ],
    ids=["no pooling", "padding and odd sizes", "two convolutions", "split lines", "two convolutions, no pooling"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("targets", "labels"), [(Classes(5), torch.arange(6) % 5), (Numbers(), torch.linspace(-2, 3, 30).view(6, 5))]
)
def test_the_lean_step_has_autograds_gradients(layers, targets, labels):
    torch.manual_seed(0)
    module = nn.Sequential(*layers)
    _, gradient, _ = bind(module)
    program = compile_lean(module, targets)
    images = torch.randn(6, 2, 11, 9)
    images[:, :, :6] = 0  # equal neighbours: a pooled gradient goes to the first of them
    targets.loss(module(images), labels).backward()
    expected = gradient.clone()
    features = images.flatten(1).t().contiguous()
    wanted = targets.wanted(labels).t().contiguous()
    with torch.no_grad():
        program.gradients(features, wanted, torch.arange(6), images.shape[1:])
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(1, 6, 5, stride=2), nn.Flatten(), nn.Linear(6, 5)),
        nn.Sequential(nn.Conv2d(1, 64, 5), nn.Flatten(), nn.Linear(64, 5)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 5)),
        nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 5)),
        nn.Linear(4, 5),
    ],
)
def test_what_the_lean_step_does_not_know_is_left_to_autograd(module):
    assert compile_lean(module, Classes(5)) is None


def test_only_dense_nets_are_stacked():
    dense = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    assert DenseStack.fits(dense)
    assert not DenseStack.fits(nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False)))
    assert not DenseStack.fits(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 2)))
    assert not DenseStack.fits(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Flatten(), nn.Linear(4, 3)))


def test_only_convolutional_nets_that_keep_and_draw_nothing_are_stacked():
    plain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
    assert ConvolutionStack.fits(plain)
    assert not ConvolutionStack.fits(nn.Sequential(*plain, nn.Dropout(0.5)))
    assert not ConvolutionStack.fits(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), *plain[1:]))
    assert not ConvolutionStack.fits(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(*plain[1:])))
