"""Devices that are given in Python: arrays, tensors, torch data sets, frames, Hugging Face data sets."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from data_builders import config, error_line
from fedclade import Experiment, Interrupted
from fedclade.data import Source
from fedclade.data.given import FORMS, source_of_devices
from fedclade.runs.assign import place
from tiny_runs import fedclade, refusal

RNG = np.random.default_rng(0)
PAIRS = [(RNG.normal(size=(n, 5)).astype(np.float32), np.arange(n) % 3) for n in (20, 30, 40)]
X, Y = (np.concatenate(parts) for parts in zip(*PAIRS, strict=True))
DEVICE = np.repeat([0, 1, 2], [20, 30, 40])
SMALL = {
    "run": {"rounds": 2, "report": False},
    "model": {"name": "logistic"},
    "training": {"epochs": 1},
    "clustering": {"method": "none"},
}


class Doubled(Dataset):
    """A data set that works its samples out when they are asked for."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return 2 * torch.from_numpy(self.x[place]), int(self.y[place])


class HuggingFace:
    """What is used of a data set of the library `datasets`: its features, its format, and a slice of all rows."""

    def __init__(self, columns: dict[str, object], kinds: dict[str, str] | None = None) -> None:
        self.columns = columns
        self.features = {name: type((kinds or {}).get(name, "Value"), (), {})() for name in columns}
        self.format = None

    def with_format(self, kind: str) -> "HuggingFace":
        other = HuggingFace(self.columns)
        other.format = kind
        return other

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, rows: slice) -> dict[str, np.ndarray]:
        assert self.format == "numpy"
        return {name: np.asarray(column)[rows] for name, column in self.columns.items()}


def given(devices: object, **population: object) -> Source:
    return source_of_devices(devices, config(population=population).population)


def frame() -> pd.DataFrame:
    return pd.DataFrame({**{f"c{n}": X[:, n] for n in range(5)}, "y": Y, "device": DEVICE})


# -------------------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    "devices",
    [
        PAIRS,
        tuple(PAIRS),
        iter(PAIRS),
        [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in PAIRS],
        [(torch.from_numpy(x).requires_grad_(), y.tolist()) for x, y in PAIRS],
        [TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in PAIRS],
        [Doubled(x / 2, y) for x, y in PAIRS],
        [pd.DataFrame(x).assign(y=y) for x, y in PAIRS],
        [HuggingFace({"x": x, "y": y}) for x, y in PAIRS],
        frame(),
        HuggingFace({"x": X, "y": Y, "device": DEVICE}),
        Source(X, Y, device=DEVICE),
    ],
    ids=lambda devices: type(devices[0] if isinstance(devices, list) else devices).__name__,
)
def test_every_form_gives_the_same_devices(devices):
    found = given(devices)
    np.testing.assert_array_equal(found.x[:, 0, 0], X)
    assert (found.y.tolist(), found.device.tolist()) == (Y.tolist(), DEVICE.tolist())


def test_images_of_a_hugging_face_set_come_with_their_channels_first_and_of_8_bits():
    images = RNG.integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    columns = {"image": images, "label": np.arange(6) % 2, "who": ["a", "b", "a", "b", "a", "b"]}
    found = given(HuggingFace(columns, {"image": "Image"}), label_column="label", device_column="who")
    np.testing.assert_array_equal(found.x, np.moveaxis(images, -1, 1))
    assert (found.x.dtype, found.device.tolist()) == (np.uint8, [0, 1] * 3)


def test_a_table_without_devices_is_a_pool_that_is_dealt_out():
    experiment = Experiment(SMALL, {"population.devices": 4}, devices=frame().drop(columns="device"))
    assert (experiment.population.devices, experiment.config.population.devices) == (4, 4)


@pytest.mark.parametrize(
    ("devices", "right"),
    [
        (5, f"devices: is of type int, must be {FORMS}"),
        ({"a": PAIRS[0]}, f"devices: is of type dict, must be {FORMS}"),
        ([], "devices: no devices are given; must be at least one pair (x, y)"),
        ([PAIRS[0], 5], "devices: device 1: must be a pair (x, y), not a int"),
        ([PAIRS[0], X], "devices: device 1: must be a pair (x, y), not a ndarray"),
        ([TensorDataset(torch.zeros(3, 2))], "devices: device 0: its samples must be pairs (x, y) of the same shape"),
        ([pd.DataFrame({"a": [1, 2]})], "devices: device 0: has no column 'y' (population.label_column)"),
        (Source(X, Y[:3]), "devices: y has shape (3,), must be (90,)"),
    ],
)
def test_every_mistake_is_one_line(devices, right):
    assert right in error_line(given, devices)


# -------------------------------------------------------------------------------- experiments


def test_an_experiment_with_given_devices_runs_without_a_truth(tmp_path):
    experiment = Experiment(SMALL, devices=PAIRS)
    run = experiment.run(tmp_path / "run")
    assert run.summary["adjusted_rand_index"] is None
    assert (run.devices["train_samples"] + run.devices["test_samples"]).tolist() == [20, 30, 40]
    assert run.config.population.devices == 3
    assert run.config.population.source == experiment.config.population.source


def test_from_arrays_takes_whose_each_sample_is_and_what_else_is_known(tmp_path):
    experiment = Experiment.from_arrays(SMALL, X, Y, DEVICE, {"run.seed": 5}, group=[0, 1, 0], classes=4)
    assert experiment.groups(1).tolist() == [0, 1, 0]
    assert (experiment.population.task.outputs, experiment.config.run.seed) == (4, 5)
    assert experiment.run(tmp_path / "run").summary["adjusted_rand_index"] is not None


def test_an_interrupted_run_goes_on_with_the_same_data_and_with_no_others(tmp_path):
    whole = Experiment(SMALL, devices=PAIRS).run(tmp_path / "whole")
    done: list[object] = []
    begun = Experiment(SMALL, devices=PAIRS, stop_requested=lambda: bool(done))
    with pytest.raises(Interrupted):
        begun.run(tmp_path / "run", on_round=done.append)
    changed = [(PAIRS[0][0] + 1, PAIRS[0][1]), *PAIRS[1:]]
    line = error_line(lambda: Experiment(SMALL, devices=changed).resume(tmp_path / "run"))
    assert "was started with population.source = 'arrays-" in line
    assert "these data were given in Python; give them again" in refusal("run", "--resume", tmp_path / "run")
    resumed = Experiment(SMALL, devices=PAIRS).resume(tmp_path / "run")
    np.testing.assert_array_equal(resumed.model("0")["1.weight"], whole.model("0")["1.weight"])


def test_a_device_finds_its_place_in_a_run_of_given_devices(tmp_path):
    experiment = Experiment(SMALL, devices=PAIRS)
    experiment.run(tmp_path / "run")
    np.savez(tmp_path / "mine.npz", x=PAIRS[0][0], y=PAIRS[0][1])
    found = place(tmp_path / "run", data=tmp_path / "mine.npz", population=experiment.population)
    assert (found.leaf, found.images) == ("0", 20)


def test_a_group_that_the_config_plants_must_still_fit_the_number_of_devices():
    line = error_line(lambda: Experiment("quickstart", devices=PAIRS[:2]))
    assert line == "config: incongruence.groups = [7, 7, 6]: more groups than devices (2)"


def test_assign_reads_a_table_as_the_run_does(tmp_path):
    frame().to_csv(tmp_path / "all.csv", index=False)
    run = Experiment(SMALL, {"population.source": str(tmp_path / "all.csv"), "population.devices": 3})
    run.run(tmp_path / "run")
    frame()[DEVICE == 1].to_csv(tmp_path / "mine.csv", index=False)
    answer = fedclade("assign", tmp_path / "run", "--data", tmp_path / "mine.csv", "--json")
    assert json.loads(answer.out)["images"] == 30
