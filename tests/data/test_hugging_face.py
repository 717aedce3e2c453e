"""Hugging Face data sets: objects of the real package, folders that it wrote, and names."""

import numpy as np
import pytest

from data_builders import config, error_line
from fedclade import Experiment
from fedclade.data import populate, read_source
from fedclade.data.given import source_of, source_of_devices

datasets = pytest.importorskip("datasets")

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
LABELS = np.arange(40) % 4
WHO = np.repeat(["anna", "bert", "carl", "dora"], 10)


@pytest.fixture(scope="module")
def pictures() -> "datasets.Dataset":
    """Images, labels with names, and who took them; as sets of the hub have them."""
    from PIL import Image

    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog", "emu", "fox"]),
            "who": datasets.Value("string"),
        }
    )
    columns = {"image": [Image.fromarray(one) for one in IMAGES], "label": LABELS.tolist(), "who": WHO.tolist()}
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def of(source: object, **population: object):
    return config(population={"source": str(source), "label_column": "label", "device_column": "who", **population})


def test_an_object_is_partitioned_by_its_column(pictures):
    found = source_of_devices(pictures, of("digits").population)
    assert found.x.shape == (40, 1, 8, 8)
    np.testing.assert_array_equal(found.x[:, 0], IMAGES)
    assert (found.y.tolist(), found.device.tolist()) == (LABELS.tolist(), np.repeat(range(4), 10).tolist())


def test_an_object_without_devices_is_dealt_out_by_the_config(pictures):
    pool = pictures.remove_columns("who")
    settings = {"population": {"label_column": "label", "devices": 5, "partition": "iid", "min_samples": 4}}
    population = Experiment(settings, devices=pool).population
    assert population.devices == 5
    assert sum(map(len, population.train)) + sum(map(len, population.test)) <= 40


def test_a_folder_that_it_wrote_is_read_whole(pictures, tmp_path):
    parts = pictures.train_test_split(test_size=0.25, stratify_by_column="label", seed=1)
    parts.save_to_disk(tmp_path / "two")
    found = read_source(of(tmp_path / "two", devices=4))
    given = source_of_devices(parts, of("digits").population)  # the object itself, with its splits
    assert (given.y.tolist(), given.split.tolist()) == (found.y.tolist(), found.split.tolist())
    assert sorted(found.y.tolist()) == sorted(LABELS.tolist())
    population = populate(of(tmp_path / "two", devices=4, validation_share=0.0), found)
    tested = {
        who: parts["test"]["who"].count(who)
        if isinstance(parts["test"]["who"], list)
        else list(parts["test"]["who"]).count(who)
        for who in sorted(set(WHO))
    }
    assert [len(mine) for mine in population.test] == list(tested.values())
    pictures.save_to_disk(tmp_path / "one")
    assert read_source(of(tmp_path / "one")).device.max() == 3


def test_a_name_is_loaded_as_the_package_does(pictures, tmp_path):
    """A folder of Parquet files is a name to it, too."""
    (tmp_path / "mine").mkdir()
    pictures.to_parquet(tmp_path / "mine/train.parquet")
    found = read_source(of(f"hf:{tmp_path / 'mine'}"))
    np.testing.assert_array_equal(found.x[:, 0], IMAGES)
    assert found.device.max() == 3


def test_numbers_and_tokens_keep_their_kinds():
    table = datasets.Dataset.from_dict({"ids": [[1, 2, 0], [3, 4, 5]] * 4, "label": [0.5, 1.5] * 4, "who": [0, 1] * 4})
    found = source_of_devices(table, of("digits").population)
    assert (found.x.dtype, found.x.shape, found.numbers) == (np.int32, (8, 1, 1, 3), True)


def test_mistakes_are_told_in_one_line(pictures, tmp_path):
    assert "has no column 'y' (population.label_column)" in error_line(source_of_devices, pictures, config().population)
    assert "cannot be read as a Hugging Face data set" in error_line(read_source, of("hf:nobody/nothing-of-the-kind"))
    streamed = pictures.to_iterable_dataset()
    assert "is of type IterableDataset, must be" in error_line(source_of, streamed, config().population, "devices")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/state.json").write_text("{}")
    assert "cannot be read as a Hugging Face data set" in error_line(read_source, of(tmp_path / "broken"))
