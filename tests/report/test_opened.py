"""A run as people open it in Python: headlines, charts, models to use, and what is said of a mistake."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import fedclade
from data_builders import error_line, stand_in_folder_with
from fedclade import Run, open_run
from fedclade.data import build_population
from tiny_runs import TINY, refusal, tiny
from tiny_runs import fedclade as command


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return fedclade.run(TINY, tmp_path_factory.mktemp("opened") / "run", overrides={"run.rounds": 3})


# -------------------------------------------------------------------------------- overrides


@pytest.mark.parametrize("overrides", [{"run.rounds": 2}, {"run": {"rounds": 2}}, ["run.rounds=2"]])
@pytest.mark.parametrize("source", [TINY, tiny().config])
def test_overrides_are_dotted_names_nested_or_texts_for_every_source(overrides, source):
    assert fedclade.Experiment(source, overrides).config.run.rounds == 2


def test_a_wrong_override_is_told_by_its_dotted_name():
    assert "run.rounds = 0: must be at least 1" in error_line(fedclade.Experiment, TINY, {"run": {"rounds": 0}})


# -------------------------------------------------------------------------------- tables, headlines, charts


def test_a_table_that_is_not_there_is_told_with_those_that_are(run):
    line = error_line(run.table, "nope")
    assert line.endswith(
        "no table 'nope'; there are: devices, rounds, clusters, uploads, evaluations, objectives, events, splits,"
        " scores, own_metrics, metrics, models"
    )


def test_a_notebook_shows_the_headlines(run):
    html = run._repr_html_()
    assert f"<b>{run.folder}</b>" in html
    assert "<th>Clusters found</th><td><b>2</b></td><td>exactly the planted groups" in html


def test_accuracy_is_plotted_round_by_round(run):
    lines = {trace.name: trace for trace in run.plot_accuracy().data}
    assert list(lines["mean device"].x) == [1, 2, 3]
    assert list(lines["mean device"].y) == run.rounds["accuracy_mean"].tolist()
    assert "markers" in lines["mean device"].mode  # so few points are seen as points


def test_the_timeline_of_a_round_is_plotted_device_by_device(run):
    bars = {trace.name: trace for trace in run.plot_timeline(2).data}
    mine = run.uploads.query("round == 2")
    assert np.max(np.add(bars["uploading"].base, bars["uploading"].x)) == pytest.approx(mine["end_seconds"].max())
    assert len(bars["uploading"].y) == len(mine)
    assert "round 9: must be from 1 to 3" in error_line(run.plot_timeline, 9)


def test_the_tree_is_plotted_with_a_branch_for_each_model(run):
    named = {trace.name: trace for trace in run.plot_tree().data if trace.name}
    assert {name: list(named[name].x) for name in ("0", "0.0", "0.1")} == {"0": [0, 2], "0.0": [2, 3], "0.1": [2, 3]}


def test_figures_of_a_run_are_written_for_column_and_slide(run, tmp_path):
    answer = command("figures", run.folder, "--out", tmp_path / "figures", "--round", 2)
    assert (answer.code, answer.err) == (0, "")
    names = {f"{name}-{form}.{kind}" for name in ("accuracy", "timeline-round-2", "tree", "models")
             for form in ("column", "slide") for kind in ("pdf", "png")}  # fmt: skip
    assert {path.name for path in (tmp_path / "figures").iterdir()} == names
    widths = {form: imread(tmp_path / f"figures/tree-{form}.png").shape[1] for form in ("column", "slide")}
    assert widths == {"column": 700, "slide": 2000}
    assert "--round 9: must be from 1 to 3" in refusal("figures", run.folder, "--round", 9)


# -------------------------------------------------------------------------------- models to use


def samples_of(run: Run, device: int) -> tuple[torch.Tensor, np.ndarray]:
    population = build_population(run.config)
    mine = population.test[device]
    return torch.from_numpy(population.images[mine]), population.labels[mine]


@pytest.mark.parametrize("device", [0, 5])
def test_a_module_names_the_classes_of_samples_as_the_run_did(run, device):
    samples, labels = samples_of(run, device)
    module = run.module(run.read_tree().leaf_of()[device])
    with torch.no_grad():
        right = (module(samples).argmax(1).numpy() == labels).mean()
    told = run.evaluations.query(f"round == 3 and device == {device}")["accuracy"].iloc[0]
    assert right == pytest.approx(told)
    assert not module.training


def test_a_models_file_tells_architecture_shape_classes_and_normalisation(run):
    with safe_open(run.folder / "models/0.1.safetensors", "numpy") as file:
        card = json.loads(file.metadata()["fedclade"])
    assert card["architecture"]["name"] == "logistic"
    assert (card["input_shape"], card["task"]["outputs"], card["full_scale"]) == ([1, 8, 8], 10, 255.0)
    assert len(card["mean"]) == len(card["std"]) == 1


RNG = np.random.default_rng(3)
CLASSES = np.arange(60) % 3
KINDS = {  # samples, the model that takes them, and how many means and standard deviations there are
    "features": (RNG.normal([5.0, -3.0, 100.0, 0.0], [1.0, 2.0, 30.0, 1.0], (60, 4)) + CLASSES[:, None], "mlp", 4),
    "volumes": (RNG.normal(2.0, 3.0, (60, 2, 3, 4, 5)).astype(np.float32), "mlp", 2),
    "tokens": (RNG.integers(0, 20, (60, 7)), "embedding-bag", 1),
}


@pytest.fixture(params=KINDS)
def other_run(request, tmp_path) -> tuple[fedclade.Experiment, Run, int]:
    """A run with other samples than images, and how many means and standard deviations these have."""
    samples, model, moments = KINDS[request.param]
    facts = {"population.standardise": True, "model.name": model, "incongruence.kind": "none", "run.rounds": 1}
    experiment = fedclade.Experiment.from_arrays(TINY, samples, CLASSES, np.arange(60) % 6, facts)
    return experiment, experiment.run(tmp_path / "run"), moments


def used(experiment: fedclade.Experiment, device: int) -> tuple[torch.Tensor, np.ndarray]:
    population = experiment.population
    mine = population.test[device]
    return torch.from_numpy(population.images[mine]), population.labels[mine]


def test_models_of_other_samples_than_images_are_as_ready_to_be_used(other_run):
    experiment, run, moments = other_run
    module, population = run.module("0"), experiment.population
    card = json.loads(run.model_metadata("0")["fedclade"])
    assert card["input_shape"] == list(population.images.shape[1:])
    assert (card["mean"], card["std"]) == (list(population.mean), list(population.std))
    assert (len(card["mean"]), card["full_scale"]) == (moments, 1.0)
    told = run.evaluations.set_index("device")
    for device in range(6):
        samples, labels = used(experiment, device)
        with torch.no_grad():
            scores = module(samples)
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels)).item()
        assert loss == pytest.approx(told.loc[device, "loss"], rel=1e-4)


TIED = """
from torch import nn

def net(shape, classes):
    middle = nn.Linear(4, 4)
    return nn.Sequential(nn.Flatten(), middle, nn.Tanh(), middle, nn.Linear(4, classes))

def other(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(4, classes))
"""


def test_a_model_whose_layers_share_weights_is_ready_and_one_that_was_changed_since_is_told(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "tied_nets", TIED)
    facts = {"model.name": "tied_nets:net", "incongruence.kind": "none", "run.rounds": 1}
    samples = RNG.normal(size=(60, 4))
    experiment = fedclade.Experiment.from_arrays(TINY, samples, CLASSES, np.arange(60) % 6, facts)
    run = experiment.run(tmp_path / "run")
    mine, labels = used(experiment, 0)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(run.module("0")(mine), torch.from_numpy(labels)).item()
    assert loss == pytest.approx(run.evaluations.set_index("device").loc[0, "loss"], rel=1e-4)
    nets = sys.modules["tied_nets"]
    monkeypatch.setattr(nets, "net", nets.other)
    line = error_line(run.module, "0")
    assert line.startswith('model.name = "tied_nets:net": has other tensors than when it was trained: 1.bias')


@pytest.mark.slow
def test_programs_take_other_samples_than_images_too(other_run, tmp_path):
    experiment, run, _ = other_run
    assert command("export", run.folder, "--format", "torch", "--out", tmp_path / "model.pt2").code == 0
    samples, _ = used(experiment, 2)
    with torch.no_grad():
        assert torch.allclose(
            torch.export.load(tmp_path / "model.pt2").module()(samples), run.module("0")(samples), atol=1e-5
        )


def test_the_model_of_a_clusters_best_round_is_as_ready_to_be_used(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run.module("best/0.1").card == run.module("0.1").card
    assert command("export", run.folder, "--cluster", "best/0.1").out == "best-0.1.safetensors\n"
    assert (tmp_path / "best-0.1.safetensors").is_file()


def test_a_file_of_former_days_is_told_to_lack_that(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "old")
    file = tmp_path / "old/models/0.safetensors"
    save_file(load_file(file), file)
    for later in (".fedclade", "manifest.json"):
        (tmp_path / "old" / later).unlink()
    assert "it was made by an older fedclade" in error_line(open_run(tmp_path / "old").module, "0")
    assert "no model '7'; there are: 0, 0.0, 0.1, best/0.0, best/0.1, conventional" in error_line(run.module, "7")


def test_export_writes_the_weights_with_all_that_is_needed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("export", run.folder, "--cluster", "0.1").out == "0.1.safetensors\n"
    assert (tmp_path / "0.1.safetensors").read_bytes() == (run.folder / "models/0.1.safetensors").read_bytes()
    assert "has several; choose one of: 0.0, 0.1" in refusal("export", run.folder)
    assert "no model '0.7'" in refusal("export", run.folder, "--cluster", "0.7")
    assert "cannot be written" in refusal("export", run.folder, "--cluster", "0.1", "--out", "no/where")


@pytest.mark.slow
def test_export_writes_a_program_that_needs_none_of_fedclades_code(run, tmp_path):
    path = tmp_path / "model.pt2"
    answer = command("export", run.folder, "--cluster", "0.1", "--format", "torch", "--out", path)
    assert (answer.code, answer.out) == (0, f"{path}\n")
    samples, _ = samples_of(run, 5)
    program = torch.export.load(path).module()
    with torch.no_grad():
        assert torch.allclose(program(samples), run.module("0.1")(samples), atol=1e-5)


def told_by_onnx(path, samples):
    """What the model in a file says of samples, by ONNX's own evaluator, which knows nothing of torch."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(str(path)).run(None, {"samples": samples.numpy()})[0]


@pytest.mark.slow
def test_export_writes_onnx_which_other_runtimes_read(run, tmp_path):
    path = tmp_path / "model.onnx"
    answer = command("export", run.folder, "--cluster", "0.1", "--format", "onnx", "--out", path)
    assert (answer.code, answer.out, answer.err) == (0, f"{path}\n", "")
    samples, _ = samples_of(run, 5)
    with torch.no_grad():
        expected = run.module("0.1")(samples).numpy()
    np.testing.assert_allclose(told_by_onnx(path, samples), expected, atol=1e-4)


@pytest.mark.slow
def test_onnx_takes_other_samples_than_images_too(other_run, tmp_path):
    experiment, run, _ = other_run
    assert command("export", run.folder, "--format", "onnx", "--out", tmp_path / "model.onnx").code == 0
    samples, _ = used(experiment, 2)
    with torch.no_grad():
        expected = run.module("0")(samples).numpy()
    np.testing.assert_allclose(told_by_onnx(tmp_path / "model.onnx", samples), expected, atol=1e-4)
