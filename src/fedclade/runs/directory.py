"""The directory of a run as files: making it, locking it, writing into it so that no crash leaves half a file."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from fedclade import config as configuration
from fedclade.config import Config
from fedclade.core import machine
from fedclade.core.errors import UserError

CONFIG = "config.toml"
MACHINE = "machine.json"
DATABASE = "run.db"
STATE = "state"
MODELS = "models"
TREE = "models/tree.json"
SUMMARY = "summary.json"
REAL_DEVICES = "devices.json"  # only in runs of real devices


def make_directory(folder: Path, config: Config, overwrite: bool = False) -> TextIO:
    """Make a run's directory with its ``config.toml``, and lock it; gives the lock.

    An existing run is replaced only if ``overwrite``; a folder that is no run is never touched.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose another --out")
    if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        if not (folder / CONFIG).is_file():
            raise UserError(f"{folder} exists and is no run: choose another --out")
        if not overwrite:
            raise UserError(f"{folder} exists: resume it with --resume {folder}, or give --overwrite or another --out")
        with _locked(folder):
            pass  # nobody is writing it
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror}") from error
    lock = take_lock(folder)
    write_beside(folder / CONFIG, configuration.to_toml(config).encode())
    write_beside(folder / MACHINE, json.dumps(machine.facts(), indent=1).encode())
    return lock


def take_lock(folder: Path) -> TextIO:
    """The right to write into a run's directory, until the file that is given is closed."""
    lock = open(folder / ".lock", "w")  # noqa: SIM115 - held as long as the run is written
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise UserError(f"{folder}: another process is writing this run") from error
    return lock


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = take_lock(folder)
    try:
        yield
    finally:
        lock.close()


def free_folder(parent: Path, name: str) -> Path:
    """``parent/name``, or with the first number behind it that is free."""
    candidates = (parent / (name if n == 1 else f"{name}-{n}") for n in range(1, 1_000_000))
    return next(folder for folder in candidates if not folder.exists())


def write_beside(path: Path, content: bytes) -> None:
    """Write beside and rename: the file is there whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_beside(path, json.dumps(value, indent=1).encode())


def read_json(path: Path) -> Any:
    """The value in a JSON file; a damaged file is the user's to know."""
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: damaged: {error}") from error
