"""Where a device's data comes from."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from fedclade import UserError
from fedclade import config as configuration
from fedclade.data import build_population
from fedclade.deployment.flower.data import device_name, load_data
from tiny_runs import TINY

CONFIG = configuration.load(TINY)
IMAGES, LABELS = np.zeros((10, 8, 8), np.uint8), np.arange(10)
EXAMPLE = Path(__file__).parents[2] / "examples/flower"


def test_a_partition_is_the_device_that_the_simulator_has():
    everybody = build_population(CONFIG)
    mine = load_data(CONFIG, {"partition-id": 4, "num-partitions": 6}, {})
    population = mine.seated(2)
    assert population.devices == 3
    np.testing.assert_array_equal(population.images[population.train[2]], everybody.images[everybody.train[4]])
    np.testing.assert_array_equal(population.labels[population.test[2]], everybody.labels[everybody.test[4]])
    assert (mine.group, mine.task.outputs, mine.mean) == (1, 10, everybody.mean)
    assert population.samples.tolist() == [0, 0, 40]


@pytest.mark.parametrize(
    ("node_config", "said"),
    [
        ({}, "partition-id = None: must be a number from 0"),
        ({"partition-id": 6}, "partition-id = 6: must be below num-partitions = 6"),
        ({"data": "no/such/folder"}, "there is no file no/such/folder"),
        ({"data": "no_such_module:load"}, "cannot import"),
        ({"data": "hf:mnist", "partition-id": 0}, "needs flwr-datasets"),
    ],
)
def test_what_a_node_config_may_get_wrong(node_config, said):
    with pytest.raises(UserError, match=said):
        load_data(CONFIG, node_config, {})


def test_a_folder_of_arrays(tmp_path):
    np.savez(tmp_path / "train.npz", x=IMAGES, y=LABELS)
    kept = load_data(CONFIG, {"data": str(tmp_path)}, {})
    assert {name: len(share) for name, share in kept.shares.items()} == {"train": 8, "validation": 0, "test": 2}
    np.savez(tmp_path / "test.npz", x=IMAGES[:3], y=LABELS[:3])
    both = load_data(CONFIG, {"data": str(tmp_path)}, {"classes": 12})
    assert {name: len(share) for name, share in both.shares.items()} == {"train": 10, "validation": 0, "test": 3}
    assert (both.images.shape, both.task.outputs, both.group) == ((13, 1, 8, 8), 12, -1)


def test_a_file_of_the_devices_own(tmp_path):
    split = np.repeat(["train", "validation", "test"], [5, 2, 3])
    np.savez(tmp_path / "mine.npz", x=IMAGES, y=LABELS, split=split)
    archive = load_data(CONFIG, {"data": str(tmp_path / "mine.npz")}, {})
    assert {name: len(share) for name, share in archive.shares.items()} == {"train": 5, "validation": 2, "test": 3}
    (tmp_path / "mine.csv").write_text("a,b,y\n" + "0.5,1,0\n" * 10)
    table = load_data(CONFIG, {"data": str(tmp_path / "mine.csv")}, {"classes": 4})
    assert (table.images.shape, table.images.dtype, table.task.outputs) == ((10, 1, 1, 2), np.float32, 4)
    assert {name: len(share) for name, share in table.shares.items()} == {"train": 8, "validation": 0, "test": 2}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"device": LABELS}, "holds several devices, must hold one"),
        ({"y": LABELS.astype(str)}, "y is <U21, must be whole numbers from 0"),
        ({"split": ["train"] * 10}, "no sample whose split is 'test'"),
    ],
)
def test_what_a_devices_own_file_may_get_wrong(arrays, said, tmp_path):
    np.savez(tmp_path / "mine.npz", **{"x": IMAGES, "y": LABELS, **arrays})
    with pytest.raises(UserError, match=said):
        load_data(CONFIG, {"data": str(tmp_path / "mine.npz")}, {})


def test_a_device_that_the_population_reads_from_a_file_is_the_same_on_flower(tmp_path):
    device = np.repeat(["a", "b"], 5)
    np.savez(tmp_path / "all.npz", x=IMAGES + np.arange(10, dtype=np.uint8)[:, None, None], y=LABELS, device=device)
    own = configuration.load({"population": {"source": str(tmp_path / "all.npz"), "devices": 2}})
    everybody, mine = build_population(own), load_data(own, {"partition-id": 1}, {})
    np.testing.assert_array_equal(mine.images[mine.shares["train"]], everybody.images[everybody.train[1]])


def given(train, test):
    sys.modules["made_up_data"] = ModuleType("made_up_data")
    sys.modules["made_up_data"].load = lambda node_config: (train, test)
    return load_data(CONFIG, {"data": "made_up_data:load"}, {"classes": 10})


def test_the_node_config_knows_better_than_the_run_config(monkeypatch):
    monkeypatch.chdir(EXAMPLE)
    monkeypatch.syspath_prepend(EXAMPLE)
    mine = load_data(CONFIG, {"data": "my_data:load"}, {"data": "elsewhere"})
    assert (mine.images.shape, mine.images.dtype, len(mine.shares["test"])) == ((100, 1, 1, 16), np.float32, 20)


def test_floats_reach_the_model_as_they_are_and_bytes_between_0_and_1():
    from fedclade.fleet.simulated.sgd import Local

    values = np.linspace(-3, 3, 12, dtype=np.float32).reshape(4, 3)
    floats = given((values, LABELS[:4]), (values, LABELS[:4]))
    local = Local(CONFIG, floats.seated(0), "autograd")
    np.testing.assert_allclose(local.inputs(slice(0, 4)).reshape(4, 3), values, atol=1e-6)
    pixels = np.full((4, 8, 8), 51, np.uint8)
    local = Local(CONFIG, given((pixels, LABELS[:4]), (pixels, LABELS[:4])).seated(0), "autograd")
    np.testing.assert_allclose(local.inputs(slice(0, 1)), 0.2, atol=1e-6)


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ((IMAGES, LABELS[:3]), r"y has shape \(3,\), must be \(10,\)"),
        ((IMAGES[:0], LABELS[:0]), r"x of shape \(0, 8, 8\) is empty"),
        ((IMAGES, LABELS - 1), "y has label -1, must be whole numbers from 0"),
        ((IMAGES, LABELS * 0.5), "training and test y are not both classes or both numbers; set population.targets"),
        ((IMAGES.astype(np.int64) - 1, LABELS), "x has -1; whole numbers are token ids and must be from 0"),
        ((IMAGES.astype(np.int64), LABELS), "differ in shape or type"),
        ((IMAGES[:, 0, 0], LABELS), "differ in shape or type"),
        ((IMAGES[:, :4], LABELS), "differ in shape or type"),
        ((IMAGES, LABELS + 5), "has label 14, but the run config says classes = 10"),
        (5, r"must give \(x_train, y_train\), \(x_test, y_test\)"),
    ],
)
def test_what_a_function_may_get_wrong(train, said):
    with pytest.raises(UserError, match=said):
        given(train, (IMAGES, LABELS))


def test_a_data_set_of_the_hub_through_flwr_datasets(monkeypatch):
    features = {"image": type("Image", (), {})(), "label": type("ClassLabel", (), {})()}
    asked = []

    class Part(dict):
        features = SimpleNamespace(items=lambda: features.items())

        def train_test_split(self, test_size, seed):
            asked.append((test_size, seed))
            return {"train": self, "test": {name: column[:2] for name, column in self.items()}}

    class FederatedDataset:
        def __init__(self, dataset, partitioners):
            asked.append((dataset, partitioners))

        def load_partition(self, partition, split):
            asked.append((partition, split))
            return Part(image=list(np.zeros((5, 32, 32, 3), np.uint8)), label=[0, 1, 2, 3, 4])

    monkeypatch.setitem(sys.modules, "flwr_datasets", SimpleNamespace(FederatedDataset=FederatedDataset))
    mine = load_data(CONFIG, {"partition-id": 3, "num-partitions": 7, "data": "hf:who/what"}, {})
    assert asked == [("who/what", {"train": 7}), (3, "train"), (0.2, 1)]
    assert mine.images.shape == (7, 3, 32, 32)
    del features["label"]
    with pytest.raises(UserError, match="no column of images or none of labels"):
        load_data(CONFIG, {"partition-id": 3, "data": "hf:who/what"}, {})


def test_a_device_is_called_by_its_name_else_by_its_partition_else_by_its_node():
    assert device_name({"device": "pump-3", "partition-id": 1}, 9) == "pump-3"
    assert device_name({"partition-id": 1}, 9) == "1"
    assert device_name({}, 9) == "node-9"
