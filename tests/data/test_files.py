"""Data on disk: one file for all devices, a folder with one for each, and the line that every mistake gets."""

from pathlib import Path

import numpy as np
import pytest

from data_builders import config, error_line
from fedclade import UserError
from fedclade.data import Population, Source, build_population, read_source

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3
DEVICE = np.array(["b", "a", "c"] * 4)
SPLIT = np.array(["train"] * 6 + ["validation"] * 3 + ["test"] * 3)


def read(path: Path, **population: object) -> Source:
    return read_source(config(population={"source": str(path), **population}))


def populated(path: Path, devices: int, **sections: dict[str, object]) -> Population:
    return build_population(config(population={"source": str(path), "devices": devices}, **sections))


def refused(path: Path, **population: object) -> str:
    line = error_line(lambda: read(path, **population))
    beginning = f'population.source = "{path}": '
    assert line.startswith(beginning)
    return line.removeprefix(beginning)


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


# -------------------------------------------------------------------------------- one archive for all


def test_an_archive_says_whose_each_sample_is_with_or_without_the_rest(tmp_path):
    np.savez(tmp_path / "all.npz", x=X, y=Y, device=DEVICE)
    plain = read(tmp_path / "all.npz")
    np.testing.assert_array_equal(plain.x[:, 0, 0], X)
    assert (plain.device.tolist(), plain.group, plain.split) == ([1, 0, 2] * 4, None, None)
    more = {"group": ["n", "s", "s"] * 4, "split": SPLIT, "classes": 7, "mean": 1.0, "std": 2.0}
    np.savez_compressed(tmp_path / "all.npz", x=X, y=Y, device=DEVICE, **more)
    full = read(tmp_path / "all.npz")
    assert (full.group.tolist(), full.classes, full.mean, full.std) == ([1, 0, 1], 7, (1.0,), (2.0,))


def test_pixels_stay_pixels_and_an_archive_without_devices_is_a_pool(tmp_path):
    np.savez(tmp_path / "pool.npz", images=np.zeros((60, 4, 4), np.uint8), labels=np.arange(60) % 3)
    population = populated(tmp_path / "pool.npz", 4)
    assert (population.images.dtype, population.images.shape[1:], population.devices) == (np.uint8, (1, 4, 4), 4)


def test_the_split_of_a_file_is_kept_and_validation_is_held_out_only_where_it_has_none(tmp_path):
    np.savez(tmp_path / "all.npz", x=X, y=Y, device=DEVICE, split=SPLIT)
    found = populated(tmp_path / "all.npz", 3)
    shares = [(len(a), len(b), len(c)) for a, b, c in zip(found.train, found.validation, found.test, strict=True)]
    assert shares == [(2, 1, 1)] * 3
    for device, name in enumerate("abc"):
        own = X[(name == DEVICE) & (SPLIT == "test")]
        np.testing.assert_array_equal(found.images[found.test[device], 0, 0], own)
    without = np.where(SPLIT == "validation", "train", SPLIT)
    np.savez(tmp_path / "all.npz", x=X, y=Y, device=DEVICE, split=without)
    asked = populated(tmp_path / "all.npz", 3)
    assert [len(share) for share in asked.validation] == [1, 1, 1]
    none = populated(tmp_path / "all.npz", 3, clustering={"method": "none"})
    assert [len(share) for share in none.validation] == [0, 0, 0]
    assert [len(share) for share in none.train] == [3, 3, 3]


@pytest.mark.parametrize(
    ("arrays", "right"),
    [
        ({"devices": DEVICE}, "has an array 'devices', which means nothing; did you mean 'device'?"),
        ({"x": np.float32(1)}, "x is a single number, must have an entry for every sample"),
        ({"split": SPLIT}, "split is of devices, so that it needs device: whose each sample is"),
        ({"device": DEVICE, "split": SPLIT[:3]}, "split has shape (3,), must be (12,)"),
        ({"device": DEVICE, "split": DEVICE}, "split has 'b', must be 'train', 'validation' or 'test'"),
        ({"device": DEVICE, "split": ["train"] * 12}, "device a has no sample whose split is 'test'"),
        ({"device": DEVICE, "group": Y + np.arange(12) // 6}, "group is not the same for all samples of a device"),
        ({"device": DEVICE, "group": [0, 1]}, "group must be 3 whole numbers from 0"),
        ({"device": DEVICE, "group": [0, 1, 10**9]}, "group must be 3 whole numbers from 0"),
        ({"device": [["a"]] * 12}, "device has shape (12, 1), must be (12,)"),
        ({"device": DEVICE, "classes": 2.5}, "classes = 2.5: must be a whole number"),
        ({"x": np.zeros(12, [("a", "f4")])}, "x must be numbers, not [('a', '<f4')]"),
    ],
)
def test_what_an_archive_may_get_wrong(arrays, right, tmp_path):
    np.savez(tmp_path / "all.npz", **{"x": X, "y": Y, **arrays})
    assert right in refused(tmp_path / "all.npz")


def test_an_archive_without_y_is_told_what_it_lacks(tmp_path):
    np.savez(tmp_path / "all.npz", x=X)
    assert refused(tmp_path / "all.npz") == "has no array 'y'; must have x and y"


# -------------------------------------------------------------------------------- a folder


def test_a_folder_holds_one_archive_table_or_folder_for_each_device(tmp_path):
    np.savez(tmp_path / "10.npz", x=X[:3], y=Y[:3], group=1)
    np.savez(tmp_path / "9.npz", x=X[3:7], y=Y[3:7], group=0)
    rows = [",".join([*map(str, x), str(y), "1"]) for x, y in zip(X[7:], Y[7:], strict=True)]
    table(tmp_path / "8.csv", "a,b,c,d,e,y,group", *rows)
    table(tmp_path / "README.txt", "no data")
    found = read(tmp_path)
    assert np.bincount(found.device).tolist() == [5, 4, 3]  # 8, 9, 10: by their size
    assert found.group.tolist() == [1, 0, 1]
    np.testing.assert_allclose(found.x[found.device == 0, 0, 0], X[7:], rtol=1e-6)
    np.testing.assert_array_equal(found.x[found.device == 2, 0, 0], X[:3])


def test_a_devices_folder_has_a_file_to_train_on_and_one_to_test(tmp_path):
    for name, (first, middle, last) in {"pump": (0, 4, 6), "fan": (6, 9, 12)}.items():
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "train.npz", x=X[first:middle], y=Y[first:middle])
        np.savez(tmp_path / name / "test.npz", x=X[middle:last], y=Y[middle:last])
    found = populated(tmp_path, 2, clustering={"method": "none"})
    assert [len(share) for share in found.train] == [3, 4]  # fan comes before pump
    np.testing.assert_array_equal(found.images[found.test[1], 0, 0], X[4:6])


@pytest.mark.parametrize(
    ("files", "right"),
    [
        ({}, "holds no .npz, .csv or .parquet files; must hold one for each device"),
        ({"train.npz": {}}, "is the folder of one device (train.npz); must hold one file or folder for each"),
        ({"a.npz": {"x": X[:, :3]}, "b.npz": {}}, "device b: x is float32 of C×H×W = 1×1×5, must be float32 of C×H×W"),
        ({"a.npz": {}, "b.npz": {"y": Y[:3]}}, "device b: y has shape (3,), must be (12,)"),
        ({"a.npz": {}, "b.npz": {"mean": 1}}, "b.npz: has an array 'mean', which means nothing; known: device, group"),
        ({"a.npz": {}, "b.npz": {"group": 1}}, "a.npz has no group, though others have; must be in all or in none"),
        ({"a.npz": {"split": SPLIT[:, None]}}, "a.npz: split has shape (12, 1), must be (12,)"),
        ({"a.npz": {"device": DEVICE}}, "a.npz: holds several devices, must hold one"),
        ({"a/train.npz": {}, "a/test.npz": {"x": X[:, 1:]}}, "a: x of train.npz and test.npz differ in shape or type"),
        ({"a/train.npz": {"y": Y[1:]}, "a/test.npz": {}}, "a: train.npz: y has shape (11,), must be (12,)"),
        ({"a.npz": {}, "a/train.npz": {}}, "holds two files for device 'a'"),
    ],
)
def test_what_a_folder_may_get_wrong(files, right, tmp_path):
    for name, arrays in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / name, **{"x": X, "y": Y, **arrays})
    assert right in refused(tmp_path)


def test_a_damaged_file_of_a_folder_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    (tmp_path / "b.npz").write_bytes(b"PK")
    assert "b.npz must be a NumPy archive with x and y: " in refused(tmp_path)


# -------------------------------------------------------------------------------- a table


def test_a_table_has_a_row_for_each_sample_and_its_meaning_by_column(tmp_path):
    path = table(tmp_path / "all.csv", "device,a,y,b", "9,1,3,0.5", "10,2,0,-1", "9,3,1,1e3", '"10",4,0,7')
    found = read(path)
    assert (found.device.tolist(), found.y.tolist(), found.classes) == ([0, 1, 0, 1], [3, 0, 1, 0], 4)
    np.testing.assert_array_equal(found.x[:, 0, 0], np.array([[1, 0.5], [2, -1], [3, 1000], [4, 7]], np.float32))


def test_columns_of_other_names_are_named_in_the_config_and_classes_may_be_words(tmp_path):
    rows = ("north,12:00,20.5,warm", "south,12:00,-3,cold", "north,13:00,21,warm", "south,13:00,25,hot")
    path = table(tmp_path / "all.csv", "station,time,degrees,feels", *rows)
    named = {"device_column": "station", "label_column": "feels", "input_columns": ["degrees"]}
    found = read(path, **named)
    assert (found.device.tolist(), found.y.tolist(), found.classes) == ([0, 1, 0, 1], [2, 0, 2, 1], 3)
    assert found.x.shape == (4, 1, 1, 1)


def test_a_table_may_have_groups_and_a_split_and_needs_no_devices(tmp_path):
    rows = [f"{d},{i},{i % 2},{s},{d}" for d in "ab" for i, s in enumerate(["train", "train", "test"])]
    found = read(table(tmp_path / "all.csv", "device,a,y,split,group", *rows))
    assert (found.group.tolist(), found.split.tolist(), found.x.shape[1:]) == ([0, 1], [0, 0, 2] * 2, (1, 1, 1))
    assert read(table(tmp_path / "pool.csv", "a,y", "1,0", "2,1")).device is None


@pytest.mark.parametrize(
    ("rows", "right"),
    [
        ((), "is empty; must have a first line that names the columns"),
        (("a,y",), "has no rows; must hold at least one sample"),
        (("a,Y", "1,0"), "has no column 'y' (population.label_column); known: Y, a"),
        (("y,device", "1,0"), "has no columns to feed a model with; must have at least one beside 'y'"),
        (("a,a,y", "1,2,0"), "has two columns 'a'; must have one of each name"),
        (("a,y", "1,0", "2,0,9"), "not a table of comma-separated values"),
        (("a,y", "1,0", "dry,0"), "column 'a' is texts, must be numbers; name others in population.input_columns"),
        (("a,y", "1,0", ",0"), "column 'a' has no finite number in sample 1"),
        (("a,y", "1,0", "1e99,0"), "column 'a' has no finite number in sample 1"),
        (("a,y", "1,0", "2,"), "y is not finite in sample 1; must hold no NaN"),
        (("a,y", "1,0", "2,-1"), "y has label -1, must be whole numbers from 0"),
        (("a,y,device", "1,0,p", "2,0,"), "device is object, must be whole numbers or texts"),
        (("a,y,device", "1,0,p", "2,0,q"), "device p has 1 sample, must have at least 2"),
    ],
)
def test_what_a_table_may_get_wrong(rows, right, tmp_path):
    assert right in refused(table(tmp_path / "all.csv", *rows))


def test_a_column_that_the_config_names_must_be_there(tmp_path):
    path = table(tmp_path / "all.csv", "a,y", "1,0", "2,1")
    assert refused(path, device_column="pump") == "has no column 'pump' (population.device_column); known: a, y"
    assert "has no column 'b' (population.input_columns)" in refused(path, input_columns=["b"])


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "all.csv").write_bytes(b"a,y\n\xff\xfe,0\n")
    assert refused(tmp_path / "all.csv").startswith("not a table of comma-separated values: ")


# -------------------------------------------------------------------------------- what there is, and how much


def test_more_memory_than_allowed_is_refused_before_it_is_taken(tmp_path):
    np.savez_compressed(tmp_path / "all.npz", x=np.zeros((1000, 1000)), y=np.zeros(1000, int))
    line = "would take 0.00801 GB of memory, must be at most population.memory_limit_gb = 0.001"
    assert refused(tmp_path / "all.npz", memory_limit_gb=0.001) == line
    for name in "abc":
        np.savez_compressed(tmp_path / f"{name}.npz", x=np.zeros((1000, 100)), y=np.zeros(1000, int))
    (tmp_path / "all.npz").unlink()
    assert "would take 0.00242 GB" in refused(tmp_path, memory_limit_gb=0.001)


def test_a_table_of_few_bytes_that_would_need_much_memory_is_refused(tmp_path):
    """Every row is short, but stands for as many cells as there are columns."""
    path = table(tmp_path / "all.csv", ",".join(["y", *(f"c{n}" for n in range(2000))]), *["0"] * 10_000)
    assert path.stat().st_size < 50_000
    assert "would take 1.28 GB of memory" in refused(path, memory_limit_gb=1.0)


def test_what_is_not_there_or_of_another_kind_is_refused(tmp_path):
    assert refused(tmp_path / "nowhere.npz") == "there is no such file or folder"
    (tmp_path / "data.xls").write_bytes(b"any")
    assert refused(tmp_path / "data.xls") == "must be an .npz, .csv or .parquet file, or a folder of these"


def test_a_name_of_a_built_in_source_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    np.savez(tmp_path / "digits" / "a.npz", x=X, y=Y)
    assert len(read(Path("digits")).y) == 1797
    assert len(read_source(config(population={"source": "./digits"})).y) == 12


def test_a_name_that_no_file_can_have_is_an_unknown_source():
    for name in ("x" * 500, "x\0y"):
        with pytest.raises(UserError, match="no such source"):
            read_source(config(population={"source": name}))
