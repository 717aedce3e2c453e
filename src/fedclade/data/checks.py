"""Whether arrays that somebody else made are what they must be. Every finding is one line that says where and what."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedclade.core.arrays import Bytes, Ints, Singles
from fedclade.core.errors import UserError

MOST_CLASSES = 100_000  # a larger label is a mistake: a model with a score for every class would not fit into memory


def read_npz(path: Path, names: Sequence[str], complaint: str) -> list[np.ndarray]:
    """The arrays of these names in a NumPy archive, in this order; nothing is ever unpickled.

    ``complaint`` begins the line that is told when they cannot be read; what NumPy says follows it.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return [archive[name] for name in names]
    except Exception as error:  # a damaged archive raises whatever zipfile, zlib and NumPy come upon
        raise UserError(f"{complaint}: {' '.join(str(error).split())}") from error


def check_inputs(where: str, x: object, name: str = "x") -> Bytes | Singles:
    """What models are fed with: N × C × H × W, 8-bit numbers as they are and all others as float32.

    N×features becomes N×1×1×features, N×H×W becomes N×1×H×W.
    """
    array = as_array(where, name, x)
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        raise UserError(f"{where}: {name} must be of 8 bits or floats, not {array.dtype}")
    if not 2 <= array.ndim <= 4:
        raise UserError(f"{where}: {name} must be N×features, N×H×W or N×C×H×W, not of {array.ndim} dimensions")
    if array.size == 0:
        raise UserError(f"{where}: {name} of shape {array.shape} is empty; must hold at least one sample")
    images = array.reshape(len(array), *(1,) * (4 - array.ndim), *array.shape[1:])
    if array.dtype == np.uint8:
        return images
    with np.errstate(over="ignore"):
        floats = images.astype(np.float32)
    if not np.isfinite(floats).all():
        sample = int(np.flatnonzero(~np.isfinite(floats).all(axis=(1, 2, 3)))[0])
        raise UserError(
            f"{where}: {name} is not finite in sample {sample}; must hold no NaN and nothing beyond float32"
        )
    return floats


def check_labels(where: str, y: object, count: int, classes: int = 0, name: str = "y") -> Ints:
    """The classes of ``count`` samples: whole numbers from 0, below ``classes`` unless that is 0."""
    labels = as_array(where, name, y)
    if labels.shape != (count,):
        raise UserError(f"{where}: {name} has shape {labels.shape}, must be ({count},): one label for every sample")
    if not np.issubdtype(labels.dtype, np.integer):
        raise UserError(f"{where}: {name} is {labels.dtype}, must be whole numbers from 0")
    if count and labels.min() < 0:
        raise UserError(f"{where}: {name} has label {labels.min()}, must be whole numbers from 0")
    if count and labels.max() >= (limit := classes or MOST_CLASSES):
        raise UserError(f"{where}: {name} has label {labels.max()}, must be below {limit}")
    return labels.astype(np.int64)


def check_ids(where: str, ids: object, count: int, name: str) -> tuple[np.ndarray, Ints]:
    """The different ids, ascending, and for each of ``count`` samples which of them is its own."""
    array = as_array(where, name, ids)
    if array.dtype == object and all(isinstance(one, str) for one in array.flat):  # a column of texts of pandas
        array = array.astype(str)
    if array.shape != (count,):
        raise UserError(f"{where}: {name} has shape {array.shape}, must be ({count},): one id for every sample")
    if array.dtype.kind not in "iuU":
        raise UserError(f"{where}: {name} is {array.dtype}, must be whole numbers or texts")
    different, number = np.unique(array, return_inverse=True)
    return different, number.reshape(count).astype(np.int64)


def as_array(where: str, name: str, given: object) -> np.ndarray:
    """Anything that NumPy takes for an array: lists, tensors, columns of a frame."""
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{where}: {name} must be an array of numbers: {' '.join(str(error).split())}") from None
