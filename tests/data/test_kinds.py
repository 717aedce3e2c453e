"""Samples of other kinds than images: of any shape, and token ids; and the sources that are made here."""

import json

import numpy as np
import pytest
import torch

from data_builders import config, error_line, stand_in_folder_with
from fedclade import Experiment
from fedclade.data import Source, populate, read_source
from fedclade.fleet.simulated.sgd import Local
from fedclade.models import build_model
from tiny_runs import fedclade, files

RNG = np.random.default_rng(0)
SMALL = {"run": {"rounds": 2, "report": False}, "training": {"epochs": 1}, "clustering": {"method": "none"}}
Y = np.arange(40) % 4
TOKENS = RNG.integers(0, 50, (40, 7))
DEVICES = [(TOKENS[:20], Y[:20]), (TOKENS[20:], Y[20:])]
BAG = {"model.name": "embedding-bag", "model.hidden": 8, "model.vocabulary": 50}


# -------------------------------------------------------------------------------- any shape


@pytest.mark.parametrize("shape", [(), (5,), (4, 4), (2, 4, 4), (2, 3, 4, 4), (1, 2, 2, 2, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
@pytest.mark.parametrize("engine", ["batched", "workers", "sequential"])
def test_samples_of_any_shape_are_trained_on(shape, dtype, engine, tmp_path):
    x = RNG.integers(0, 255, (40, *shape)).astype(dtype)
    chosen = {"model.name": "mlp", "population.standardise": True, "training.engine": engine, "training.workers": 1}
    experiment = Experiment(SMALL, chosen, devices=[(x[:20], Y[:20]), (x[20:], Y[20:])])
    run = experiment.run(tmp_path / "run")
    assert run.model("0")["1.weight"].shape == (64, max(1, int(np.prod(shape))))
    seen = experiment.trainer.examiner.inputs(torch.arange(40))
    assert seen.shape == (40, *(1,) * (3 - len(shape)), *shape)
    assert abs(float(seen.mean())) < 1e-4
    assert experiment.population.images.dtype == (np.uint8 if dtype == np.uint8 else np.float32)


@pytest.mark.parametrize("name", ["cnn", "cnn-large", "alexnet"])
def test_a_net_for_images_refuses_what_is_none(name):
    population = populate(
        config(population={"devices": 2}), Source.of_devices([(np.zeros((9, 2, 3, 4, 4)), Y[:9])] * 2).checked("")
    )
    line = error_line(lambda: Local(config(model={"name": name}), population, "autograd"))
    assert line == f'model.name = "{name}": needs images of C×H×W, not samples of 2×3×4×4; use mlp'


# -------------------------------------------------------------------------------- token ids


def test_token_ids_reach_the_model_as_they_are():
    experiment = Experiment(SMALL, BAG, devices=DEVICES)
    population = experiment.population
    assert (population.images.dtype, population.bits_per_sample) == (np.int32, 7 * 32)
    local = Local(experiment.config, population, "autograd")
    seen = local.inputs(torch.arange(40))
    assert (seen.dtype, seen.shape) == (torch.long, (40, 1, 1, 7))
    np.testing.assert_array_equal(seen[:, 0, 0], TOKENS)


def test_a_bag_of_embeddings_learns_and_every_engine_trains_it_alike(tmp_path):
    x, y = np.random.default_rng(1).integers(10, 50, (80, 6)), np.arange(80) % 4
    x[:, 2] = 1 + y  # one word tells the class
    devices = [(x[:40], y[:40]), (x[40:], y[40:])]
    chosen = {**BAG, "training.learning_rate": 2.0, "training.epochs": 5, "run.rounds": 20}
    tables = []
    for engine in ("workers", "sequential"):
        run = Experiment(SMALL, {**chosen, "training.engine": engine}, devices=devices).run(tmp_path / engine)
        assert run.summary["accuracy_mean"] > 0.9
        tables.append(run.model("0")["1.weight"])
    assert tables[0].shape == (50, 8)
    np.testing.assert_array_equal(tables[0][0], 0)  # what fills up short texts stays nothing
    np.testing.assert_allclose(*tables, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_processes_train_on_token_ids_as_this_one_does(tmp_path):
    def models(workers: int) -> dict[str, bytes]:
        chosen = {**BAG, "training.engine": "workers", "training.workers": workers}
        return files(Experiment(SMALL, chosen, devices=DEVICES).run(tmp_path / str(workers)).folder / "models")

    assert models(2) == models(1)


def test_what_fills_up_short_texts_counts_for_nothing():
    module = build_model(config(model={"name": "embedding-bag"}).model, (1, 1, 5), 3, 1, tokens=True)
    short, filled = torch.tensor([[[[4, 7]]]]), torch.tensor([[[[4, 7, 0, 0, 0]]]])
    torch.testing.assert_close(module(short), module(filled))


FACTORIES = """
from torch import nn

def words(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Embedding(50, 3), nn.Flatten(), nn.Linear(3 * shape[-1], classes))

def numbers(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[-1], classes))
"""


def test_a_model_of_ones_own_may_take_token_ids(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "my_text_models", FACTORIES)
    run = Experiment(SMALL, {"model.name": "my_text_models:words"}, devices=DEVICES).run(tmp_path / "run")
    assert run.model("0")["1.weight"].shape == (50, 3)
    line = error_line(lambda: Experiment(SMALL, {"model.name": "my_text_models:numbers"}, devices=DEVICES).trainer)
    assert line.startswith('model.name = "my_text_models:numbers": fails on token ids of C×H×W = 1×1×7: ')


@pytest.mark.parametrize(
    ("chosen", "devices", "right"),
    [
        ({"model.name": "mlp"}, DEVICES, "is for numbers; give floats or 8-bit pixels, or take embedding-bag"),
        (BAG, [(RNG.normal(size=(20, 7)), Y[:20])], "is for token ids; take mlp"),
        (
            {**BAG, "model.vocabulary": 40},
            DEVICES,
            "knows token ids below 40, and the data have 49; set model.vocabulary = 50 if that is right",
        ),
    ],
)
def test_a_model_that_does_not_fit_the_kind_is_refused_in_one_line(chosen, devices, right):
    line = error_line(lambda: Experiment(SMALL, chosen, devices=devices).trainer)
    assert line == f'model.name = "{chosen["model.name"]}": {right}'


def test_check_data_and_assign_take_token_ids(tmp_path):
    for name, rows in (("all", slice(None)), ("mine", slice(20))):
        np.savez(
            tmp_path / f"{name}.npz",
            x=TOKENS[rows],
            y=Y[rows],
            **({"device": np.arange(40) // 20} if name == "all" else {}),
        )
    found = json.loads(fedclade("check-data", tmp_path / "all.npz", "--json").out)
    assert (found["dtype"], found["value_min"], found["value_max"]) == ("int32", 0.0, 49.0)
    chosen = {**BAG, "population.source": str(tmp_path / "all.npz"), "population.devices": 2}
    Experiment(SMALL, chosen).run(tmp_path / "run")
    placed = json.loads(fedclade("assign", tmp_path / "run", "--data", tmp_path / "mine.npz", "--json").out)
    assert placed["images"] == 20


# -------------------------------------------------------------------------------- Synthetic(α, β)


def made(**population: object) -> Source:
    groups = population.pop("groups", [1])
    settings = {"source": "synthetic", "devices": 6, "samples": 12_000, **population}
    return read_source(config(population=settings, incongruence={"groups": groups}))


def least_squares_accuracy(source: Source, train: int, test: int) -> float:
    """How well a linear rule that is fitted to one device tells another's classes."""
    x, y = source.x[:, 0, 0], np.eye(10)[source.y]
    mine, other = source.device == train, source.device == test
    weights = np.linalg.lstsq(np.c_[x[mine], np.ones(mine.sum())], y[mine], rcond=None)[0]
    return float((np.argmax(np.c_[x[other], np.ones(other.sum())] @ weights, 1) == source.y[other]).mean())


def test_inputs_have_the_variances_and_centres_that_the_paper_says():
    source = made(synthetic_beta=0.0)
    by_device = [source.x[source.device == k, 0, 0] for k in range(6)]
    variance = np.mean([x.var(0) for x in by_device], axis=0)
    np.testing.assert_allclose(variance, np.arange(1, 61) ** -1.2, rtol=0.1)
    centres = np.stack([x.mean(0) for x in by_device])
    assert centres.std() == pytest.approx(1.0, rel=0.15)
    far = np.stack([made(synthetic_beta=10.0, devices=6).x[source.device == k, 0, 0].mean(0) for k in range(6)])
    assert far.mean(1).std() > 5 * centres.mean(1).std()


def test_alpha_changes_no_label_as_it_adds_the_same_to_all_scores():
    np.testing.assert_array_equal(made(synthetic_alpha=0.0).y, made(synthetic_alpha=5.0).y)


def test_devices_of_a_group_follow_one_rule_and_other_groups_another():
    source = made(synthetic_models="group", groups=[2, 1])
    assert source.group.tolist() == [0, 0, 0, 0, 1, 1]
    within, between = least_squares_accuracy(source, 0, 1), least_squares_accuracy(source, 0, 4)
    assert within > 0.6 > 0.4 > between
    assert made(synthetic_models="device").group is None


def test_sizes_follow_the_population_section_and_the_same_seed_gives_the_same_data():
    source = made(samples=None)
    assert np.bincount(source.device).tolist() == [200] * 6
    uneven = np.bincount(made(sizes="power-law").device)
    assert len(set(uneven.tolist())) > 1
    again = made(samples=None)
    assert (source.x.tobytes(), source.y.tobytes()) == (again.x.tobytes(), again.y.tobytes())


# -------------------------------------------------------------------------------- topics


def test_texts_have_the_lengths_words_and_topics_that_the_page_says():
    source = read_source(config(population={"source": "topics"}))
    tokens = source.x[:, 0, 0]
    assert (tokens.shape, source.classes, source.device) == ((6000, 40), 8, None)
    lengths = (tokens > 0).sum(1)
    assert (lengths.min(), lengths.max(), tokens.max()) == (10, 40, 999)
    assert (np.sort(tokens > 0, axis=1)[:, ::-1] == (tokens > 0)).all()  # words first, then nothing
    used = np.bincount(tokens[tokens > 0], minlength=1000)
    assert used[1] > 1.5 * used[2] > used[5] > used[50]  # Zipf
    own = [
        set(np.argsort(-np.bincount(tokens[source.y == k].ravel(), minlength=1000)[31:])[:20] + 31) for k in range(8)
    ]
    assert max(len(own[0] & other) for other in own[1:]) <= 5


# -------------------------------------------------------------------------------- groups in them


@pytest.mark.parametrize("preset", ["synthetic", "topics"])
def test_the_groups_of_a_preset_are_found_in_the_first_round(preset, tmp_path):
    few = {"run.rounds": 1, "run.report": False, "run.conventional": "frozen"}
    run = Experiment(preset, few).run(tmp_path / "run")
    assert (run.summary["adjusted_rand_index"], run.summary["clusters"]) == (1.0, 2)
