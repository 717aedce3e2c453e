"""CIFAR-10, from the official Python batches.

They are pickles: they are read only after their MD5 was checked, with an unpickler that knows nothing but NumPy arrays.
"""

import hashlib
import io
import pickle

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.data.source import Source
from fedclade.data.sources._folders import folders, missing

MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def read(config: Config) -> Source:
    """All 60,000 images, 3×32×32."""
    looked_in = folders(config, "cifar10")
    candidates = [path for folder in looked_in for path in (folder / "cifar-10-batches-py", folder)]
    found = next((folder for folder in candidates if (folder / "data_batch_1").is_file()), None)
    if found is None:
        how = "unpack cifar-10-python.tar.gz of its home page"
        raise missing("cifar10", "cifar-10-batches-py/data_batch_1", looked_in, how)
    images, labels = [], []
    for name, md5 in MD5.items():
        path = found / name
        if not path.is_file():
            raise UserError(f"{path}: missing; unpack cifar-10-python.tar.gz again")
        raw = path.read_bytes()
        if hashlib.md5(raw, usedforsecurity=False).hexdigest() != md5:
            raise UserError(f"{path}: not the official file (its MD5 must be {md5})")
        batch = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
        images.append(batch[b"data"].reshape(-1, 3, 32, 32))
        labels.append(np.asarray(batch[b"labels"], dtype=np.int64))
    return Source(
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
