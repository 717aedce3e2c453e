"""Whether arrays that somebody else made are what they must be. Every finding is one line that says where and what."""

import numpy as np

from fedclade.core.arrays import Floats, Inputs, Ints, Targets
from fedclade.core.errors import UserError

TARGETS = ("auto", "classes", "numbers")
SPLITS = ("train", "validation", "test")
MOST_TOKENS = 2**31 - 1
MOST_CLASSES = 100_000  # a larger label is a mistake: a model with a score for every class would not fit into memory


def check_inputs(where: str, x: object, name: str = "x") -> Inputs:
    """What models are fed with: 8-bit numbers as they are, token ids as int32, all others as float32.

    A sample has at least three axes: N×features becomes N×1×1×features, N×H×W becomes N×1×H×W.
    """
    array = as_array(where, name, x)
    if array.dtype.kind not in "biuf":
        raise UserError(f"{where}: {name} must be numbers, not {array.dtype}")
    if array.ndim == 0:
        raise UserError(f"{where}: {name} is a single number, must have an entry for every sample")
    if array.size == 0:
        raise UserError(f"{where}: {name} of shape {array.shape} is empty; must hold at least one sample")
    samples = array.reshape(len(array), *(1,) * (4 - array.ndim), *array.shape[1:])
    if array.dtype == np.uint8:
        return samples
    if array.dtype.kind in "iu":
        least, most = int(array.min()), int(array.max())
        if least < 0 or most > MOST_TOKENS:
            odd = least if least < 0 else most
            raise UserError(
                f"{where}: {name} has {odd}; whole numbers are token ids and must be from 0 to {MOST_TOKENS}; "
                "give other numbers as floats"
            )
        return samples.astype(np.int32)
    with np.errstate(over="ignore"):
        floats = samples.astype(np.float32)
    if not np.isfinite(floats).all():
        sample = int(np.flatnonzero(~np.isfinite(floats.reshape(len(floats), -1)).all(axis=1))[0])
        raise UserError(
            f"{where}: {name} is not finite in sample {sample}; must hold no NaN and nothing beyond float32"
        )
    return floats


def check_labels(where: str, y: object, count: int, classes: int = 0, name: str = "y") -> Ints:
    """The classes of ``count`` samples: whole numbers from 0, below ``classes`` unless that is 0."""
    labels = as_array(where, name, y)
    if labels.shape != (count,):
        raise UserError(f"{where}: {name} has shape {labels.shape}, must be ({count},): one label for every sample")
    if labels.dtype.kind not in "biu":
        raise UserError(f"{where}: {name} is {labels.dtype}, must be whole numbers from 0")
    if count and labels.min() < 0:
        raise UserError(f"{where}: {name} has label {labels.min()}, must be whole numbers from 0")
    if count and labels.max() >= (limit := classes or MOST_CLASSES):
        raise UserError(f"{where}: {name} has label {labels.max()}, must be below {limit}")
    return labels.astype(np.int64)


def check_targets(where: str, y: object, count: int, targets: str = "auto", classes: int = 0) -> Targets:
    """What models are to tell of ``count`` samples: their classes, or one row of numbers for each.

    With ``targets = "auto"`` whole numbers are classes, and floats are numbers.
    """
    array = as_array(where, "y", y)
    if array.dtype.kind == "f" and targets == "classes" and array.size and (array == np.floor(array)).all():
        array = array.astype(np.int64)
    if targets == "numbers" or (targets == "auto" and array.dtype.kind == "f"):
        return _check_numbers(where, array, count)
    return check_labels(where, array, count, classes)


def _check_numbers(where: str, array: np.ndarray, count: int) -> Floats:
    if array.dtype.kind not in "biuf":
        raise UserError(f"{where}: y is {array.dtype}, must be numbers")
    rows = array.reshape(len(array), -1) if array.ndim else array
    if array.ndim not in (1, 2) or len(array) != count or not rows.size:
        raise UserError(
            f"{where}: y has shape {array.shape}, must be ({count},): one number for every sample, or a row"
        )
    with np.errstate(over="ignore"):
        missing = np.flatnonzero(~np.isfinite(rows.astype(np.float32)).all(axis=1))
    if len(missing):
        raise UserError(f"{where}: y is not finite in sample {missing[0]}; must hold no NaN and nothing beyond float32")
    return rows.astype(np.float64)


def check_all_targets(where: str, y: object, count: int, targets: str, classes: int) -> Targets:
    """The same of all samples there are; so texts may name the classes, which are numbered in the texts' order."""
    if targets not in TARGETS:
        raise UserError(f"{where}: targets = {targets!r}: must be one of {', '.join(TARGETS)}")
    labels = _texts(as_array(where, "y", y))
    if labels.dtype.kind == "U":
        labels = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
    return check_targets(where, labels, count, targets, classes)


def check_groups(where: str, group: object, device: Ints, devices: int) -> Ints:
    """The group of each device, from one for each device or one for each sample; texts are numbered in their order.

    ``device`` says of each sample which device it belongs to.
    """
    array = _texts(as_array(where, "group", group))
    right = f"{where}: group must be {devices} whole numbers from 0: one for each device, or one for each sample"
    if array.dtype.kind == "U":
        array = np.unique(array, return_inverse=True)[1].reshape(array.shape)
    if array.shape not in ((devices,), device.shape) or not np.issubdtype(array.dtype, np.integer):
        raise UserError(right)
    if array.min() < 0 or array.max() >= MOST_CLASSES:
        raise UserError(right)
    if array.shape == (devices,):
        return array.astype(np.int64)
    groups = np.zeros(devices, dtype=np.int64)
    groups[device] = array
    if (groups[device] != array).any():
        odd = int(np.flatnonzero(groups[device] != array)[0])
        raise UserError(f"{where}: group is not the same for all samples of a device (sample {odd}); must be")
    return groups


def check_split(where: str, split: object, device: Ints, names: np.ndarray) -> Ints:
    """For each sample the place in SPLITS of the share that it is said to be in; each device trains and tests."""
    array = _texts(as_array(where, "split", split))
    if array.shape != device.shape:
        raise UserError(f"{where}: split has shape {array.shape}, must be {device.shape}: one text for every sample")
    parts = np.full(len(array), -1)
    for number, name in enumerate(SPLITS):
        parts[array == name] = number
    if (parts < 0).any():
        first = array[np.flatnonzero(parts < 0)[0]]
        raise UserError(f"{where}: split has {str(first)!r}, must be 'train', 'validation' or 'test'")
    for name in ("train", "test"):
        without = np.setdiff1d(np.arange(len(names)), device[parts == SPLITS.index(name)])
        if len(without):
            raise UserError(
                f"{where}: device {names[without[0]]} has no sample whose split is {name!r}, must have at least one"
            )
    return parts


def check_ids(where: str, ids: object, count: int, name: str) -> tuple[np.ndarray, Ints]:
    """The different ids, ascending, and for each of ``count`` samples which of them is its own."""
    array = _texts(as_array(where, name, ids))
    if array.shape != (count,):
        raise UserError(f"{where}: {name} has shape {array.shape}, must be ({count},): one id for every sample")
    if array.dtype.kind not in "iuU":
        raise UserError(f"{where}: {name} is {array.dtype}, must be whole numbers or texts")
    different, number = np.unique(array, return_inverse=True)
    return different, number.reshape(count).astype(np.int64)


def as_array(where: str, name: str, given: object) -> np.ndarray:
    """Anything that NumPy takes for an array: lists, tensors, columns of a frame."""
    try:
        return np.asarray(given.cpu().detach() if hasattr(given, "cpu") else given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(f"{where}: {name} must be an array of numbers: {' '.join(str(error).split())}") from None


def _texts(array: np.ndarray) -> np.ndarray:
    """A column of texts of pandas or of NumPy's StringDType as an array of texts; any other array as it is."""
    if array.dtype.kind in "OT" and all(isinstance(one, str) for one in array.flat):
        return array.astype(str)
    return array
