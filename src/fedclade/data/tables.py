"""Tables of samples, one row each: comma-separated values, Parquet, pandas frames, Hugging Face data sets.

The columns that the population section names (``label_column``, ``device_column``) and those called ``group`` and
``split`` have a meaning of their own; all others are what a model is fed with, unless ``input_columns`` names some.
"""

import csv
import warnings
from collections import Counter
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedclade.config import PopulationConfig
from fedclade.core.errors import UserError
from fedclade.core.parquet import GIGABYTE, read_parquet
from fedclade.core.plugins import near_miss
from fedclade.data.checks import as_array
from fedclade.data.source import Source

BYTES_A_CELL = 64  # at most, while a table is read: a short text takes as much


def columns_of(given: object) -> dict[str, Any] | None:
    """The columns of a pandas frame or of a Hugging Face data set, by name; None of anything else."""
    import pandas as pd

    if isinstance(given, pd.DataFrame):
        return {str(name): given.iloc[:, place].to_numpy() for place, name in enumerate(given.columns)}
    if isinstance(given, Sized) and hasattr(given, "with_format") and hasattr(given, "features"):
        kinds = {name: type(feature).__name__ for name, feature in given.features.items()}
        found = given.with_format("numpy")[:]
        return {name: _channels_first(found[name]) if kinds[name] == "Image" else found[name] for name in kinds}
    return None


def _channels_first(images: Any) -> np.ndarray:
    array = np.asarray(images)
    return np.moveaxis(array, -1, 1) if array.ndim == 4 else array


def source_of_table(columns: Mapping[str, Any], population: PopulationConfig, where: str) -> Source:
    """What a table of samples holds; a pool if it has no column of devices."""
    label, device = population.label_column, population.device_column
    _check_column("label_column", label, columns, where)
    if device != PopulationConfig.model_fields["device_column"].default:
        _check_column("device_column", device, columns, where)
    meant = {"y": label, "device": device, "group": "group", "split": "split"}
    facts = {field: columns[name] for field, name in meant.items() if name in columns}
    inputs = population.input_columns or tuple(name for name in columns if name not in meant.values())
    for name in inputs:
        _check_column("input_columns", name, columns, where)
    if not inputs:
        raise UserError(f"{where}: has no columns to feed a model with; must have at least one beside {label!r}")
    return Source(_joined(columns, inputs, where), **facts)


def _check_column(field: str, name: str, columns: Mapping[str, Any], where: str) -> None:
    if name not in columns:
        raise UserError(f"{where}: has no column {name!r} (population.{field}); {near_miss(name, columns)}")


def _joined(columns: Mapping[str, Any], inputs: tuple[str, ...], where: str) -> np.ndarray:
    """The inputs as one array: a single column of images or the like as it is, numbers side by side."""
    arrays = [as_array(where, f"column {name!r}", columns[name]) for name in inputs]
    if len(arrays) == 1 and arrays[0].ndim > 1:
        return arrays[0]
    for name, array in zip(inputs, arrays, strict=True):
        if array.dtype.kind not in "biuf" or array.ndim != 1:
            raise UserError(
                f"{where}: column {name!r} is {_kind(array)}, must be numbers; name others in population.input_columns"
            )
        with np.errstate(over="ignore"):
            missing = np.flatnonzero(~np.isfinite(array.astype(np.float32)))
        if len(missing):
            raise UserError(f"{where}: column {name!r} has no finite number in sample {missing[0]}")
    return np.stack(arrays, axis=1).astype(np.float32)


def _kind(array: np.ndarray) -> str:
    return "texts" if array.dtype.kind in "OUT" else f"{array.dtype} of shape {array.shape}"


def read_csv(path: Path, population: PopulationConfig, where: str) -> Source:
    """What a file of comma-separated values holds; its first line names the columns."""
    import pandas as pd

    try:
        with path.open(encoding="utf-8-sig", newline="") as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # pandas warns where rows are longer than the first line
            names = _header(file, where)
            frame = pd.read_csv(
                file, header=None, names=names, index_col=False, keep_default_na=False, na_values=[""], low_memory=False
            )
    except UserError:
        raise
    except Exception as error:  # whatever pandas comes upon
        reason = "not UTF-8 text" if isinstance(error, UnicodeError) else str(error) or type(error).__name__
        raise UserError(f"{where}: not a table of comma-separated values: {reason}") from error
    if frame.empty:
        raise UserError(f"{where}: has no rows; must hold at least one sample")
    columns = columns_of(frame)
    assert columns is not None
    return source_of_table(columns, population, where)


def read_parquet_table(path: Path, population: PopulationConfig, where: str) -> Source:
    """What a Parquet file holds."""
    columns = read_parquet(path, where, population.memory_limit_gb * GIGABYTE)
    if not columns or not len(next(iter(columns.values()))):
        raise UserError(f"{where}: has no rows; must hold at least one sample")
    return source_of_table(columns, population, where)


def csv_bytes(path: Path, where: str) -> int:
    """The memory that reading such a file takes at most."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            columns = len(_header(file, where))
        with path.open("rb") as raw:
            rows = sum(part.count(b"\n") + part.count(b"\r") for part in iter(lambda: raw.read(2**20), b""))
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{where}: not a table of comma-separated values: {reason}") from error
    return path.stat().st_size + (rows + 1) * columns * BYTES_A_CELL


def _header(file: IO[str], where: str) -> list[str]:
    """The names of the columns; the file is left at the line after them."""
    names = next(csv.reader(iter(file.readline, "")), [])
    names = [name.strip() for name in names]
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UserError(f"{where}: has two columns {twice!r}; must have one of each name")
    if not names:
        raise UserError(f"{where}: is empty; must have a first line that names the columns")
    return names
