"""Data sets of Hugging Face: by name from its hub, or as its own ``save_to_disk`` has written them into a folder.

A set with a column of devices says whose each sample is; any other is a pool, which the population section deals out.
Of a set in several splits all are taken. Where devices are given, those called train, validation and test stay what
they are; a pool is split by the population section, whatever its samples were called before.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedclade.config import PopulationConfig
from fedclade.core.errors import UserError
from fedclade.data.checks import SPLITS
from fedclade.data.source import Source
from fedclade.data.tables import columns_of, source_of_table

PREFIX = "hf:"  # of the name of a source that is a set of the hub
MARKS = ("dataset_dict.json", "state.json")  # what save_to_disk leaves in a folder


def is_saved_set(path: Path) -> bool:
    """Whether a folder was written by ``save_to_disk``."""
    return path.is_dir() and any((path / mark).is_file() for mark in MARKS)


def read_saved_set(path: Path, population: PopulationConfig, where: str) -> Source:
    """What such a folder holds."""
    datasets = _datasets(where)
    return source_of_splits(_loaded(where, datasets.load_from_disk, str(path)), population, where)


def read_named_set(name: str, population: PopulationConfig, where: str) -> Source:
    """What a set of the hub holds; it is downloaded once, and kept where the package keeps such sets."""
    datasets = _datasets(where)
    return source_of_splits(_loaded(where, datasets.load_dataset, name), population, where)


def _loaded(where: str, load: Any, name: str) -> Any:
    try:
        return load(name)
    except Exception as error:  # whatever the package comes upon: no network, no such name, a damaged file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{where}: cannot be read as a Hugging Face data set: {reason}") from error


def has_splits(given: object) -> bool:
    """Whether something is a set in several splits, by name."""
    return isinstance(given, dict) and hasattr(given, "with_format")


def source_of_splits(found: Any, population: PopulationConfig, where: str) -> Source:
    """What a set holds, whether it is in several splits or in none."""
    parts = dict(found) if has_splits(found) else {"": found}
    tables: dict[str, dict[str, Any]] = {}
    for split, part in parts.items():
        columns = columns_of(part)
        if columns is None or not len(part):
            raise UserError(f"{where}: split {split!r} is empty, or no table; must hold samples")
        tables[split] = columns
    names = list(next(iter(tables.values())))
    columns = {name: _joined(where, name, tables) for name in names}
    told = {"train", "test"} <= set(tables) <= set(SPLITS)
    if population.device_column in columns and "split" not in columns and told:
        columns["split"] = np.repeat(list(tables), [len(part[names[0]]) for part in tables.values()])
    return source_of_table(columns, population, where)


def _joined(where: str, name: str, tables: dict[str, dict[str, Any]]) -> np.ndarray:
    """One column of all splits."""
    try:
        return np.concatenate([np.asarray(part[name]) for part in tables.values()])
    except (KeyError, ValueError) as error:
        raise UserError(f"{where}: column {name!r} is not the same kind in all splits: {error}") from None


def _datasets(where: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise UserError(f"{where}: needs the package datasets: pip install 'fedclade[data]'") from None
    datasets.disable_progress_bars()
    return datasets
