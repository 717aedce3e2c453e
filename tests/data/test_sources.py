import hashlib
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from data_builders import config, error_line
from fedclade.data import Source, read_source
from fedclade.data.sources import cifar10


def read(source: str, root: Path | None = None) -> Source:
    return read_source(config(population={"source": source, **({} if root is None else {"root": str(root)})}))


# -------------------------------------------------------------------------------- embedded


def test_mnist5k_is_500_images_of_each_digit():
    digits = read("mnist5k")
    assert (digits.x.shape, digits.x.dtype) == ((5000, 1, 28, 28), np.uint8)
    assert np.bincount(digits.y).tolist() == [500] * digits.classes
    assert digits.x.max() == 255


def test_digits_are_1797_images_whose_17_grey_levels_fill_a_byte():
    digits = read("digits")
    assert (digits.x.shape, digits.x.dtype) == ((1797, 1, 8, 8), np.uint8)
    assert np.unique(digits.y).tolist() == list(range(digits.classes)) == list(range(10))
    levels = np.unique(digits.x)
    assert (len(levels), levels.min(), levels.max()) == (17, 0, 255)


@pytest.mark.parametrize("source", ["mnist5k", "digits"])
def test_embedded_ink_is_bright_on_dark(source):
    images = read(source).x
    assert images[:, :, 0, 0].mean() < 10 < images.mean() < 128


# -------------------------------------------------------------------------------- FEMNIST

# Two writers of LEAF's dark ink on white: ada drew 3 images, bob 2, a black dot at the n-th pixel of the n-th image.
LABELS, WRITERS = [0, 61, 5, 7, 5], [0, 0, 0, 1, 1]


def dots() -> np.ndarray:
    x = np.full((5, 28, 28), 255, np.uint8)
    x[range(5), 0, range(5)] = 0
    return x


def write_npz(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"x": dots(), "y": np.array(LABELS, np.uint8), "writer": np.array(WRITERS, np.int32), **changes}
    np.savez(folder / "femnist_mine.npz", **{name: array for name, array in arrays.items() if array is not None})
    return folder / "femnist_mine.npz"


def write_leaf(folder: Path) -> None:
    """Ada's first two images and Bob's are for training, Ada's third is for testing."""
    x = (dots() / 255.0).reshape(5, 784).tolist()
    shards = {"train": {"ada": [0, 1], "bob": [3, 4]}, "test": {"ada": [2]}}
    for share, users in shards.items():
        (folder / share).mkdir(parents=True)
        data = {user: {"x": [x[i] for i in own], "y": [LABELS[i] for i in own]} for user, own in users.items()}
        shard = {"users": list(users), "num_samples": [len(own) for own in users.values()], "user_data": data}
        (folder / share / f"all_data_0_{share}.json").write_text(json.dumps(shard))


@pytest.mark.parametrize("place", ["femnist", "."])
def test_femnist_is_read_from_an_archive(tmp_path, place):
    write_npz(tmp_path / place)
    femnist = read("femnist", tmp_path)
    assert femnist.classes == 62
    assert femnist.y.tolist() == LABELS
    assert femnist.writer.tolist() == WRITERS
    np.testing.assert_array_equal(femnist.x[:, 0], 255 - dots())  # ink is bright


@pytest.mark.parametrize("place", ["femnist/leaf", "femnist", "leaf", "."])
def test_femnist_is_read_from_leaf_shards_and_a_writer_keeps_one_number(tmp_path, place):
    write_leaf(tmp_path / place)
    femnist = read("femnist", tmp_path)
    assert femnist.classes == 62
    order = [0, 1, 3, 4, 2]  # the training shards come first
    assert femnist.y.tolist() == [LABELS[i] for i in order]
    assert femnist.writer.tolist() == [WRITERS[i] for i in order]
    np.testing.assert_array_equal(femnist.x[:, 0], 255 - dots()[order])


@pytest.mark.parametrize(
    "changes",
    [
        {"writer": None},
        {"y": np.array([62] * 5)},
        {"y": np.array([-1] * 5)},
        {"y": np.arange(4)},
        {"x": dots().reshape(5, 784)},
        {"x": dots() / 255.0},
        {"x": dots()[:0], "y": np.arange(0), "writer": np.arange(0)},
        {"writer": np.array([{"a": 1}] * 5)},  # would need unpickling
    ],
)
def test_an_archive_of_something_else_is_refused_by_name(tmp_path, changes):
    path = write_npz(tmp_path, **changes)
    assert error_line(read, "femnist", tmp_path).startswith(f"{path}: not ")


@pytest.mark.parametrize("keep", [0, 3, 400, -30])
def test_a_damaged_archive_is_refused_by_name(tmp_path, keep):
    path = write_npz(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    assert error_line(read, "femnist", tmp_path).startswith(f"{path}: not a FEMNIST archive")


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"users": ["ada"], "user_data": {"ada": {"x": [[0.5]], "y": [1]}}}']
)
def test_a_shard_of_something_else_is_refused_by_name(tmp_path, text):
    write_leaf(tmp_path)
    path = tmp_path / "train" / "broken.json"
    path.write_text(text)
    assert error_line(read, "femnist", tmp_path).startswith(f"{path}: not a LEAF shard")


def test_shards_without_anybody_are_refused(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "empty.json").write_text('{"users": [], "user_data": {}}')
    assert error_line(read, "femnist", tmp_path).startswith(f"{tmp_path}: not FEMNIST")


def test_the_real_archive_has_300_writers(real_data):
    femnist = read("femnist", real_data)
    assert femnist.x.shape == (45_958, 1, 28, 28)
    assert np.unique(femnist.y).tolist() == list(range(62))
    written = np.unique(femnist.writer, return_counts=True)[1]
    assert (len(written), written.min(), written.max()) == (300, 2, 355)
    assert femnist.x[:, 0, 0, 0].mean() < 10 < femnist.x.max()  # ink is bright


def labelled(images: np.ndarray, labels: np.ndarray) -> set[bytes]:
    return {image.tobytes() + bytes([label]) for image, label in zip(images, labels, strict=True)}


def test_the_real_shards_hold_what_the_archive_holds_of_their_writers(real_data):
    """The archive was made of the same public writers, less a dozen images, so the two readers must agree."""
    folder = real_data / "femnist" / "leaf"
    raw = [json.loads(path.read_text()) for path in folder.glob("*/*.json")]
    users = {user for shard in raw for user in shard["users"]}
    shards = read("femnist", folder)
    assert len(users) == len(np.unique(shards.writer)) == 12
    assert len(shards.y) == sum(sum(shard["num_samples"]) for shard in raw) == 1483
    with np.load(real_data / "femnist" / "femnist_leaf300.npz") as archive:
        mine = np.isin(archive["writers"][archive["writer"]], sorted(users))
        expected = labelled(255 - archive["x"][mine], archive["y"][mine])
    assert len(expected) > 1400
    assert expected <= labelled(shards.x, shards.y)


# -------------------------------------------------------------------------------- CIFAR-10


@pytest.fixture(scope="module")
def real_cifar10(real_data):
    return read("cifar10", real_data)


def test_cifar10_is_6000_images_of_each_class(real_cifar10):
    assert (real_cifar10.x.shape, real_cifar10.x.dtype) == ((60_000, 3, 32, 32), np.uint8)
    assert np.bincount(real_cifar10.y).tolist() == [6000] * real_cifar10.classes


def test_cifar10_is_standardised_by_its_own_mean_and_deviation(real_cifar10):
    pixels = real_cifar10.x[::10] / np.float32(255)
    np.testing.assert_allclose(pixels.mean(axis=(0, 2, 3)), real_cifar10.mean, atol=0.01)
    np.testing.assert_allclose(pixels.std(axis=(0, 2, 3)), real_cifar10.std, atol=0.01)


class Runs:
    """Unpickled by anything careless, calls the function."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "argument"), [(os.system, "touch '{}'"), (os.mkdir, "{}"), (eval, "open('{}', 'w')"), (open, "{}")]
)
def test_a_malicious_batch_runs_nothing(tmp_path, monkeypatch, function, argument):
    witness = tmp_path / "witness"
    raw = pickle.dumps({b"data": Runs(function, argument.format(witness))})
    (tmp_path / "data_batch_1").write_bytes(raw)
    passing = {"data_batch_1": hashlib.md5(raw).hexdigest()}  # so that it reaches the unpickler
    monkeypatch.setattr(cifar10, "MD5", passing)
    with pytest.raises(pickle.UnpicklingError, match="is not allowed in a CIFAR-10 batch"):
        read("cifar10", tmp_path)
    assert not witness.exists()


def test_a_batch_that_is_not_the_official_file_is_refused_before_unpickling(tmp_path):
    path = tmp_path / "data_batch_1"
    path.write_bytes(b"not even a pickle")
    official = "c99cafc152244af753f735de768cd75f"
    assert error_line(read, "cifar10", tmp_path) == f"{path}: not the official file (its MD5 must be {official})"


def test_a_missing_batch_is_named(real_data, tmp_path):
    first = real_data / "cifar10" / "cifar-10-batches-py" / "data_batch_1"
    (tmp_path / "data_batch_1").symlink_to(first)
    assert error_line(read, "cifar10", tmp_path).startswith(f"{tmp_path / 'data_batch_2'}: missing; unpack ")


# -------------------------------------------------------------------------------- absent


@pytest.mark.parametrize(
    ("source", "what", "how"),
    [("femnist", "train/*.json", "LEAF"), ("cifar10", "cifar-10-batches-py/data_batch_1", "cifar-10-python.tar.gz")],
)
def test_a_missing_data_set_says_what_where_and_how(tmp_path, source, what, how):
    line = error_line(read, source, tmp_path)
    for part in (f'population.source = "{source}"', what, str(tmp_path / source), how, "population.root"):
        assert part in line


def test_the_root_is_the_configs_else_the_environments_else_data(tmp_path, monkeypatch):
    write_npz(tmp_path / "given")
    write_npz(tmp_path / "environment", y=np.full(5, 1))
    write_npz(tmp_path / "data", y=np.full(5, 2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCLADE_DATA", str(tmp_path / "environment"))
    assert read("femnist", tmp_path / "given").y.tolist() == LABELS
    assert set(read("femnist").y) == {1}
    monkeypatch.delenv("FEDCLADE_DATA")
    assert set(read("femnist").y) == {2}
