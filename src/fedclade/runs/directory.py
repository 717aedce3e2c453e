"""The directory of a run as files: whose it is, locking it, and writing into it so that no crash leaves half a file.

``.fedclade`` marks a directory as one that fedclade made. Only in such a one anything is ever deleted, and there only
what fedclade writes itself: what somebody else has put beside it stays.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from fedclade import config as configuration
from fedclade.config import Config
from fedclade.core import machine
from fedclade.core.errors import UserError, cannot

MARK = ".fedclade"
LOCK = ".lock"
CONFIG = "config.toml"
MACHINE = "machine.json"
INPUTS = "inputs.json"
DATABASE = "run.db"
STATE = "state"
MODELS = "models"
TREE = "models/tree.json"
MANIFEST = "manifest.json"
SUMMARY = "summary.json"
REPORT = "report.html"
REAL_DEVICES = "devices.json"  # only in runs of real devices
# All that fedclade writes into a run's directory, but for the mark and the lock.
OWN_FILES = (
    *(CONFIG, MACHINE, INPUTS, MANIFEST, SUMMARY, REPORT, "failure.txt"),
    *(DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal"),
    *(REAL_DEVICES, "messages.jsonl", "latencies.csv"),
    *(f"{STATE}/state.json", f"{STATE}/round-*.safetensors"),
    *(TREE, f"{MODELS}/*.safetensors", f"{MODELS}/best/*.safetensors"),
    "tensorboard/events.out.tfevents.*",
)
OWN_FOLDERS = (STATE, f"{MODELS}/best", MODELS, "tensorboard")
TABLES_FOLDER = "tables"  # of a comparison

Kind = Literal["run", "comparison"]
_SEAL = "# sha256 of all above: "
_BESIDE = re.compile(r"\..+\.(\d+)\.new")


# -------------------------------------------------------------------------------- whose a directory is


def make_directory(
    folder: Path, config: Config, overwrite: bool = False, more: Mapping[str, bytes] | None = None
) -> TextIO:
    """Make a run's directory with its ``config.toml`` and ``more`` files, and lock it; gives the lock.

    An existing run is replaced only if ``overwrite``; a folder that is no run is never touched. ``machine.json`` comes
    last: where it is missing, a run died before it had begun.
    """
    with cannot("be made", folder):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file: choose another --out")
        existing = folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir())
        if existing:
            _check_replaceable(folder, overwrite)
        folder.mkdir(parents=True, exist_ok=True)
    lock = take_lock(folder)
    try:
        if existing:
            delete_own_files(folder)
        remove_leftovers(folder)
        write_mark(folder, "run")
        for name, content in {CONFIG: sealed_text(configuration.to_toml(config)), **(more or {})}.items():
            write_beside(folder / name, content)
        write_machine(folder)
    except BaseException:
        lock.close()
        raise
    return lock


def _check_replaceable(folder: Path, overwrite: bool) -> None:
    if not (folder / CONFIG).is_file() and not is_marked(folder, "run"):
        raise UserError(f"{folder} exists and is no run: choose another --out")
    if not overwrite:
        raise UserError(f"{folder} exists: resume it with --resume {folder}, or give --overwrite or another --out")
    if not is_marked(folder, "run"):
        raise UserError(
            f"{folder}: --overwrite deletes only what fedclade has marked as its own run (by a file {MARK}), and this "
            "is not: choose another --out"
        )


def write_mark(folder: Path, kind: Kind) -> None:
    """Mark a directory as made by fedclade."""
    write_json(folder / MARK, {"made_by": "fedclade", "kind": kind})


def write_machine(folder: Path) -> None:
    """Write down the processor and the libraries that a run is begun with."""
    write_json(folder / MACHINE, sealed_json(dict(machine.facts())))


def is_marked(folder: Path, kind: Kind) -> bool:
    """Whether fedclade made a directory, for something of this kind."""
    path = folder / MARK
    if not path.is_file():
        return False
    with contextlib.suppress(ValueError, OSError):
        return bool(json.loads(path.read_text("utf-8")) == {"made_by": "fedclade", "kind": kind})
    return False


def delete_own_files(folder: Path) -> None:
    """Delete what fedclade wrote into a run's directory but its lock and mark; what somebody else put there stays.

    Killed in between, this can be done again. A link is deleted, never what it points to.
    """
    with cannot("be deleted", folder):
        for path in [path for pattern in OWN_FILES for path in folder.glob(pattern)]:
            if path.is_symlink() or path.is_file():
                path.unlink()
        for name in OWN_FOLDERS:
            with contextlib.suppress(OSError):  # something of somebody else's is in it
                (folder / name).rmdir()


def take_lock(folder: Path, kind: Kind = "run") -> TextIO:
    """The right to write into a directory, until the file that is given is closed.

    The lock's file is never emptied, and never one that a link points to.
    """
    path = folder / LOCK
    if path.is_symlink():
        raise UserError(f"{path}: is a link, must be a file of its own: remove it")
    with cannot("be locked", folder):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        lock = os.fdopen(descriptor, "r+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise UserError(f"{folder}: another process is writing this {kind}") from error
        except OSError:
            lock.close()
            raise
    return lock


def free_folder(parent: Path, name: str) -> Path:
    """``parent/name``, or with the first number behind it that is free."""
    candidates = (parent / (name if n == 1 else f"{name}-{n}") for n in range(1, 1_000_000))
    return next(folder for folder in candidates if not folder.exists())


# -------------------------------------------------------------------------------- files, whole or not at all


def write_beside(path: Path, content: bytes) -> None:
    """Write beside and rename: the file is there whole or not at all, and nothing is left beside it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    with cannot("be written", path):
        try:
            beside.unlink(missing_ok=True)  # left behind by a process that had the same number
            with open(beside, "xb") as file:  # never through a link
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)  # a full disk needs the room
            raise
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """The new name shall outlive a power cut, too, where the system can promise that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove half-written files of processes that are no more."""
    for place in (folder, *(folder / name for name in (*OWN_FOLDERS, TABLES_FOLDER))):
        with contextlib.suppress(OSError):
            for path in place.glob(".*.new"):
                if (match := _BESIDE.fullmatch(path.name)) and not _is_running(int(match[1])):
                    path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return process != os.getpid()  # nobody here is writing just now


def append(path: Path, text: str) -> None:
    """Add whole lines to a text file, which is made where it is missing."""
    with cannot("be written", path), path.open("a", encoding="utf-8") as file:
        file.write(text)


def cut_unfinished_line(path: Path) -> None:
    """Cut off what a killed process or a full disk left of the last line of a text file."""
    content = read_bytes(path) if path.is_file() else b""
    if not content.endswith(b"\n") and content:
        write_beside(path, content[: content.rfind(b"\n") + 1])


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    write_beside(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """A value as JSON."""
    return json.dumps(value, indent=1).encode()


def read_bytes(path: Path) -> bytes:
    """A file's content; one that cannot be read is the user's to know."""
    with cannot("be read", path):
        return path.read_bytes()


def read_json(path: Path, content: bytes | None = None) -> Any:
    """The value in a JSON file; a damaged file is the user's to know."""
    try:
        return json.loads(read_bytes(path) if content is None else content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged: {error}") from error


# -------------------------------------------------------------------------------- checksums


def checksum(content: bytes) -> str:
    """SHA-256, as text."""
    return hashlib.sha256(content).hexdigest()


def sealed_text(text: str) -> bytes:
    """A text with its checksum in a comment on the last line."""
    return f"{text}{_SEAL}{checksum(text.encode())}\n".encode()


def check_seal(path: Path) -> None:
    """Refuse a text that is not as fedclade wrote it; outside of its own directories it may be somebody else's."""
    before, mark, after = read_bytes(path).rpartition(_SEAL.encode())
    if not mark and (path.parent / MARK).is_file():
        raise UserError(f"{path}: damaged, or changed by hand: the checksum on its last line is missing")
    if mark and after.strip().decode("utf-8", "replace") != checksum(before):
        raise UserError(f"{path}: damaged, or changed by hand: does not match the checksum on its last line")


def sealed_json(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts with their own checksum."""
    return {**facts, "seal": _seal_of(facts)}


def opened_json(path: Path) -> dict[str, Any]:
    """The facts of a file written with ``sealed_json``; refuses what does not match its checksum."""
    facts = read_json(path)
    if not isinstance(facts, dict) or facts.pop("seal", None) != _seal_of(facts):
        raise UserError(f"{path}: damaged: does not match its checksum")
    return facts


def _seal_of(facts: dict[str, Any]) -> str:
    return checksum(json.dumps(facts, sort_keys=True).encode())


class Manifest:
    """The checksums of a finished run's models, tree and summary: ``manifest.json``."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._sums = folder, dict[str, str]()

    def write(self, name: str, content: bytes) -> None:
        """Write one of the run's files, and note its checksum."""
        self.note(name, content)
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_beside(self._folder / name, content)

    def note(self, name: str, content: bytes) -> None:
        """Note the checksum of a file."""
        self._sums[name] = checksum(content)

    def save(self) -> None:
        """Write the manifest itself."""
        write_json(self._folder / MANIFEST, sealed_json({"sha256": self._sums}))


def read_checked(folder: Path, name: str) -> bytes:
    """One of a run's files, held against the manifest where there is one.

    A run that is not finished has none, and a run that is has lost it, if the directory is marked.
    """
    path, content = folder / MANIFEST, read_bytes(folder / name)
    if not path.is_file():
        if (folder / SUMMARY).is_file() and (folder / MARK).is_file():
            raise UserError(f"{path}: is missing, so nobody can tell whether {name} is as it was written")
        return content
    if opened_json(path)["sha256"].get(name) != checksum(content):
        raise UserError(f"{folder / name}: damaged: does not match its checksum in {MANIFEST}")
    return content
