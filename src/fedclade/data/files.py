"""Data on disk: one file for all devices, a folder with one for each, or one device's own.

=================  ====================================================================================================
``NAME.npz``       a NumPy archive with ``x`` and ``y``, and optionally the other parameters of a ``Source`` by name
``NAME.csv``       a table, one row a sample; see ``fedclade.data.tables``. ``NAME.parquet`` is the same
a folder           for each device one such file, called by the device's id, with ``x`` and ``y``, and optionally
                   ``split`` and one ``group``; or a folder of that name with ``train.npz`` and optionally ``test.npz``
a Hugging Face     as its ``save_to_disk`` makes it; see ``fedclade.data.hugging_face``
folder
=================  ====================================================================================================
"""

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedclade.config import PopulationConfig
from fedclade.core.errors import UserError
from fedclade.core.parquet import GIGABYTE
from fedclade.core.plugins import near_miss
from fedclade.data.archives import Archive, check_size, open_archive
from fedclade.data.checks import check_ids, check_targets
from fedclade.data.hugging_face import is_saved_set, read_saved_set
from fedclade.data.source import Source
from fedclade.data.tables import csv_bytes, read_csv, read_parquet_table

ALL_FIELDS = tuple(field.name for field in fields(Source))
DEVICE_FIELDS = ("x", "y", "group", "split", "device")
FORMER = {"images": "x", "labels": "y"}  # what fields of an archive were called before, and still may be
SUFFIXES = (".npz", ".csv", ".parquet")


def read_path(path: Path, population: PopulationConfig, where: str) -> Source:
    """What a file or a folder holds; ``where`` begins the line that tells of a mistake."""
    if is_saved_set(path):
        return read_saved_set(path, population, where)
    if path.is_dir():
        return _read_folder(path, population, where)
    _check_size([path], population, where)
    return _read_file(path, population, where, ALL_FIELDS)


def read_device(path: Path, population: PopulationConfig, where: str) -> Source:
    """What one device's own file or folder holds."""
    _check_size(_parts(path), population, where)
    return _read_device(path, population, where)


def _read_folder(folder: Path, population: PopulationConfig, where: str) -> Source:
    if (folder / "train.npz").is_file():
        raise UserError(f"{where}: is the folder of one device (train.npz); must hold one file or folder for each")
    try:
        places = sorted(place for place in folder.iterdir() if not place.name.startswith(".") and _is_device(place))
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from error
    if not places:
        raise UserError(f"{where}: holds no .npz, .csv or .parquet files; must hold one for each device")
    names = [place.stem if place.suffix in SUFFIXES else place.name for place in places]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"{where}: holds two files for device {twice[0]!r}; must be one for each device")
    _check_size([part for place in places for part in _parts(place)], population, where)
    devices = [_read_device(place, population, f"{where}: {place.name}") for place in places]
    facts: dict[str, Any] = {}
    for field in ("group", "split"):
        given = [getattr(device, field) for device in devices]
        lacking = [place.name for place, value in zip(places, given, strict=True) if value is None]
        if 0 < len(lacking) < len(places):
            raise UserError(f"{where}: {lacking[0]} has no {field}, though others have; must be in all or in none")
        if not lacking:
            facts[field] = np.concatenate(given)
    try:
        return Source.of_devices(
            [(device.x, device.y) for device in devices], names=names, targets=population.targets, **facts
        )
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _is_device(place: Path) -> bool:
    return (place / "train.npz").is_file() if place.is_dir() else place.suffix in SUFFIXES


def _parts(place: Path) -> list[Path]:
    """The files of one device."""
    if not place.is_dir():
        return [place]
    return [place / "train.npz", *(path for path in [place / "test.npz"] if path.is_file())]


def _check_size(files: list[Path], population: PopulationConfig, where: str) -> None:
    """Refuse what would not fit into memory, before any of it is read."""
    needed = 0
    for path in files:
        if not path.is_file():
            raise UserError(f"{where}: there is no file {path}")
        if path.suffix == ".csv":
            needed += csv_bytes(path, where)
        elif path.suffix == ".parquet":
            continue  # which are read piece by piece, and refused on the way
        elif path.suffix == ".npz":
            with open_archive(path, _complaint(where, path)) as archive:
                needed += sum(header.nbytes for header in archive.headers.values())
        else:
            raise UserError(f"{where}: must be an .npz, .csv or .parquet file, or a folder of these")
    check_size(where, needed, population.memory_limit_gb * GIGABYTE)


def _read_device(path: Path, population: PopulationConfig, where: str) -> Source:
    parts = [_read_file(part, population, where, DEVICE_FIELDS) for part in _parts(path)]
    device = parts[0] if len(parts) == 1 else _train_and_test(parts[0], parts[1], population.targets, where)
    count = len(device.y)
    if device.device is not None and len(check_ids(where, device.device, count, "device")[0]) > 1:
        raise UserError(f"{where}: holds several devices, must hold one; give the file as population.source")
    group = device.group
    if group is not None and np.asarray(group).size == 1:
        group = np.full(count, group)
    for name, value in (("group", group), ("split", device.split)):
        if value is not None and (shape := np.asarray(value).shape) != (count,):
            raise UserError(f"{where}: {name} has shape {shape}, must be ({count},): one for every sample")
    return replace(device, device=None, group=group)


def _train_and_test(train: Source, test: Source, targets: str, where: str) -> Source:
    """One device whose data are in two files."""
    for file, part in (("train.npz", train), ("test.npz", test)):
        check_targets(f"{where}: {file}", part.y, len(part.x), targets)
    for name in ("x", "y"):
        first, second = getattr(train, name), getattr(test, name)
        if (first.shape[1:], first.dtype) != (second.shape[1:], second.dtype):
            raise UserError(f"{where}: {name} of train.npz and test.npz differ in shape or type, must be alike")
    split = np.repeat(["train", "test"], [len(train.y), len(test.y)])
    x, y = (np.concatenate([getattr(part, name) for part in (train, test)]) for name in ("x", "y"))
    return Source(x, y, split=split, group=train.group)


def _read_file(path: Path, population: PopulationConfig, where: str, known: tuple[str, ...]) -> Source:
    if path.suffix == ".csv":
        return read_csv(path, population, where)
    if path.suffix == ".parquet":
        return read_parquet_table(path, population, where)
    with open_archive(path, _complaint(where, path)) as archive:
        names = _fields(archive, where, known)
        arrays: dict[str, Any] = {field: archive.read(name) for field, name in names.items()}
    return Source(**{field: array if array.ndim else array[()] for field, array in arrays.items()})


def _complaint(where: str, path: Path) -> str:
    return f"{where}: {path.name} must be a NumPy archive with x and y"


def _fields(archive: Archive, where: str, known: tuple[str, ...]) -> dict[str, str]:
    """For each field that an archive has, the array's name in it."""
    names = {FORMER.get(name, name): name for name in archive.headers}
    for field in names:
        if field not in known:
            raise UserError(f"{where}: has an array {field!r}, which means nothing; {near_miss(field, known)}")
    for field in ("x", "y"):
        if field not in names:
            raise UserError(f"{where}: has no array {field!r}; must have x and y")
        if not archive.headers[names[field]].shape:
            raise UserError(f"{where}: {field} is a single number, must have an entry for every sample")
    return names
