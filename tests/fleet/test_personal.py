"""Tensors that stay on their device (FedPer, FedBN), buffers, and models with several heads."""

import sys

import numpy as np
import pytest
import torch

from data_builders import error_line
from fedclade import Experiment
from fedclade.fleet.simulated.personal import local_positions
from tiny_runs import TINY

NETS = """
import torch
from torch import nn

def normed(shape, classes):
    return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, classes))

class TwoHeads(nn.Module):
    def __init__(self, pixels, classes):
        super().__init__()
        self.body = nn.Linear(pixels, 8)
        self.low, self.high = nn.Linear(8, classes // 2), nn.Linear(8, classes - classes // 2)

    def forward(self, x):
        h = torch.relu(self.body(x.flatten(1)))
        return self.low(h), self.high(h)

def heads(shape, classes):
    return TwoHeads(shape[0] * shape[1] * shape[2], classes)
"""
MLP = {"model.name": "mlp", "model.hidden": 8, "clustering.method": "none", "norm_thresholds.warmup_rounds": 1}


@pytest.fixture(autouse=True)
def nets(tmp_path, monkeypatch):
    (tmp_path / "nets_of_mine.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets_of_mine", raising=False)


def tiny(**changes: object) -> Experiment:
    return Experiment(TINY, {**MLP, **{name.replace("__", "."): value for name, value in changes.items()}})


# -------------------------------------------------------------------------------- which tensors


def test_patterns_choose_tensors_by_name():
    tensors = {"0.weight": np.zeros((2, 3)), "0.bias": np.zeros(2), "2.weight": np.zeros((1, 2))}
    assert local_positions(tensors, ["0.bias"]).tolist() == [6, 7]
    assert local_positions(tensors, ["*.weight"]).tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
    assert "matches none of the model's tensors: 0.weight, 0.bias" in error_line(local_positions, tensors, ["head.*"])
    assert "nothing would be left to share" in error_line(local_positions, tensors, ["*"])


def test_what_stays_does_not_travel_and_costs_no_upload():
    whole, headless = tiny(), tiny(model__local=["3.*"])
    assert headless.edge.model_bits == whole.edge.model_bits - 32 * (8 * 10 + 10)


# -------------------------------------------------------------------------------- training


def test_a_round_is_the_usual_one_but_for_what_stays(tmp_path):
    """Everybody starts from w0 in round 1: the shared part moves as ever, each head as its device alone trained it."""
    usual, mine = tiny(run__rounds=1), tiny(run__rounds=1, model__local=["3.*"])
    (after, _), (kept, _) = (each.server.step(each.server.initial_state()) for each in (usual, mine))
    local = local_positions(mine.trainer.named_tensors(kept.models["0"]), ["3.*"])
    shared = np.setdiff1d(np.arange(len(kept.models["0"])), local)
    np.testing.assert_allclose(kept.models["0"][shared], after.models["0"][shared], rtol=1e-5, atol=1e-7)
    first = mine.trainer.initial_model()
    np.testing.assert_array_equal(kept.models["0"][local], first[local])
    everyone = np.arange(6)
    alone = usual.trainer.train(1, first[None], everyone, np.zeros_like(everyone))
    np.testing.assert_allclose(kept.kept, first[local] + alone[:, local], rtol=1e-5, atol=1e-7)


def test_devices_are_asked_about_models_with_their_own_tensors_in_them(tmp_path):
    run = tiny(run__rounds=3, model__local=["3.*"], run__checkpoint_every=1).run(tmp_path / "run")
    population = Experiment(run.config).population
    told = run.models.set_index(["model", "device"])["accuracy"]
    for device in range(6):
        samples = torch.from_numpy(population.images[population.test[device]])
        with torch.no_grad():
            right = run.module("0", device)(samples).argmax(1).numpy() == population.labels[population.test[device]]
        assert told["0", device] == pytest.approx(right.mean())
    heads = run.model("local")["3.weight"]
    assert heads.shape == (6, 10, 8)
    np.testing.assert_allclose(run.model("0")["3.weight"], heads.mean(axis=0), atol=1e-6)


def test_own_heads_serve_devices_that_name_the_classes_differently(tmp_path):
    """Which is what FedPer is for: one model cannot serve both groups, one body with a head for each device can."""
    changes = {"run__rounds": 8, "training__epochs": 6, "model__hidden": 16}
    whole, own = (tiny(model__local=local, **changes).run(tmp_path / f"{len(local)}") for local in ([], ["3.*"]))
    assert own.summary["accuracy_mean"] > whole.summary["accuracy_mean"] + 0.1


@pytest.mark.parametrize("local", [["3.*"], []])
def test_a_resumed_run_ends_as_if_it_had_not_stopped(local, tmp_path):
    class Enough(Exception):
        pass

    def stop(progress):
        if progress.record.round == 2:
            raise Enough

    changes = {"model__local": local, "run__rounds": 3, "run__checkpoint_every": 1}
    if not local:
        changes["model__name"] = "nets_of_mine:normed"
    whole = tiny(**changes).run(tmp_path / "whole")
    with pytest.raises(Enough):
        tiny(**changes).run(tmp_path / "again", on_round=stop)
    again = tiny(**changes).resume(tmp_path / "again")
    for name in ("0", *(["local"] if local else [])):
        for tensor, values in whole.model(name).items():
            np.testing.assert_array_equal(values, again.model(name)[tensor])


# -------------------------------------------------------------------------------- buffers and heads


def test_statistics_of_batch_norm_are_averaged_or_stay_on_the_device(tmp_path):
    shared = tiny(model__name="nets_of_mine:normed", run__rounds=2).run(tmp_path / "shared")
    assert {"1.running_mean", "1.running_var"} <= set(shared.model("0"))
    assert np.abs(shared.model("0")["1.running_mean"]).max() > 0
    own = tiny(model__name="nets_of_mine:normed", model__local=["1.*"], run__rounds=2).run(tmp_path / "own")
    means = own.model("local")["1.running_mean"]
    assert len(np.unique(means.round(6), axis=0)) == 6
    with torch.no_grad():
        assert own.module("0", 3)(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape == (2, 10)


def test_several_heads_are_put_side_by_side(tmp_path):
    run = tiny(model__name="nets_of_mine:heads", model__local=["low.*"], run__rounds=2).run(tmp_path / "run")
    assert run.model("local")["low.weight"].shape == (6, 5, 8)
    with torch.no_grad():
        assert run.module("0", 1)(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape == (2, 10)


def test_devices_that_share_images_cannot_keep_tensors():
    line = error_line(lambda: tiny(model__local=["3.*"], population__redraw=True))
    assert line.endswith("is not for devices that share images (redraw)")
