"""Data that are already in memory, in any of the forms in which people have them."""

import hashlib
from collections.abc import Iterable, Mapping, Sized
from typing import Any

import numpy as np

from fedclade.config import PopulationConfig
from fedclade.core.errors import UserError
from fedclade.data.checks import as_array
from fedclade.data.hugging_face import has_splits, source_of_splits
from fedclade.data.source import Source
from fedclade.data.tables import columns_of, source_of_table

GIVEN = "arrays-"  # how the name of a source begins that was given in Python; a digest of the data follows
FORMS = "a Source, (x, y), (x, y, device), a list of devices, a pandas frame or a Hugging Face data set"


def source_of(given: object, population: PopulationConfig, where: str) -> Source:
    """Anything that is listed in FORMS as a source; a device of a list is (x, y), a torch Dataset or a table."""
    if isinstance(given, Source):
        return given
    if (columns := columns_of(given)) is not None:
        return source_of_table(columns, population, where)
    if has_splits(given):
        return source_of_splits(given, population, where)
    if isinstance(given, tuple) and len(given) in (2, 3):
        return Source(given[0], given[1], device=given[2] if len(given) == 3 else None)
    if isinstance(given, list):
        pairs = [_pair(device, population, f"{where}: device {number}") for number, device in enumerate(given)]
        try:
            return Source.of_devices(pairs, targets=population.targets)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
    kind = f"tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__
    raise UserError(f"{where}: is of type {kind}, must be {FORMS}")


def source_of_devices(devices: object, population: PopulationConfig) -> Source:
    """The checked source of what ``Experiment`` is given as its devices."""
    by_itself = isinstance(devices, Source | Mapping) or columns_of(devices) is not None
    given = list(devices) if isinstance(devices, Iterable) and not by_itself else devices
    return source_of(given, population, "devices").checked("devices", population.targets)


def given_name(source: Source) -> str:
    """What a checked source is called in a config: other data have another name."""
    digest = hashlib.sha256(repr((source.classes, source.mean, source.std, source.y_mean, source.y_std)).encode())
    for name in ("x", "y", "device", "group", "split", "writer"):
        array = getattr(source, name)
        if array is not None:
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return f"{GIVEN}{digest.hexdigest()[:12]}"


def _pair(device: Any, population: PopulationConfig, where: str) -> Any:
    """One device's (x, y)."""
    if isinstance(device, tuple | list | np.ndarray):
        return device
    if (columns := columns_of(device)) is not None:
        table = source_of_table(columns, population, where)
        return table.x, table.y
    if isinstance(device, Sized) and hasattr(device, "__getitem__") and not isinstance(device, Mapping):
        samples = [device[place] for place in range(len(device))]
        try:
            x, y = zip(*samples, strict=True)
            arrays = {"x": x, "y": y}
            return tuple(np.stack([as_array(where, name, one) for one in each]) for name, each in arrays.items())
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{where}: its samples must be pairs (x, y) of the same shape: {error}") from error
    return device
