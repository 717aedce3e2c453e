"""NumPy archives that somebody else made: looked at before anything is inflated, and never unpickled.

A file of a few kilobytes can claim, or inflate to, terabytes. So the directory of the archive and the header of every
array are read first. What they claim must agree, and be within a limit, before memory is taken for it; and no more is
inflated than was claimed.
"""

import io
import math
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedclade.core.errors import UserError
from fedclade.core.parquet import GIGABYTE

USUAL_LIMIT = 4 * GIGABYTE  # bytes
LARGEST_DIRECTORY = 2**20  # bytes of an archive's list of contents: enough for 10,000 arrays


@dataclass(frozen=True)
class Header:
    """What an archive says of one of its arrays."""

    shape: tuple[int, ...]
    dtype: np.dtype
    entry: zipfile.ZipInfo

    @property
    def nbytes(self) -> int:
        """Of the array in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


class Archive:
    """An open ``.npz`` file. ``headers`` are known by the arrays' names before any array is read."""

    def __init__(self, file: io.FileIO) -> None:
        self._zip = zipfile.ZipFile(file)
        self.headers = {entry.filename.removesuffix(".npy"): self._header(entry) for entry in self._zip.infolist()}

    def _header(self, entry: zipfile.ZipInfo) -> Header:
        name = entry.filename
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is packed in a way that numpy.savez does not use")
        with self._zip.open(entry) as file:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"{name} is of the format {version}; must be a plain array")
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            rest = entry.file_size - file.tell()
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects (pickle), which are never read; must be numbers or texts")
        header = Header(shape, dtype, entry)
        if min(shape, default=0) < 0 or dtype.itemsize == 0 or header.nbytes != rest:
            raise ValueError(f"{name} is damaged: an array of shape {shape} and type {dtype} is not {rest} bytes long")
        return header

    def read(self, name: str) -> np.ndarray:
        """One array, whole."""
        with self._zip.open(self.headers[name].entry) as file:
            return np.lib.format.read_array(file, allow_pickle=False)


@contextmanager
def open_archive(path: Path, complaint: str) -> Iterator[Archive]:
    """The archive at a path. Whatever goes wrong is told as ``complaint``, a colon, and the reason in one line."""
    try:
        with warnings.catch_warnings(), _Careful(path) as file:
            warnings.simplefilter("ignore")
            archive = Archive(file)
            file.careful = False
            yield archive
    except UserError:
        raise
    except Exception as error:  # a damaged archive raises whatever zipfile, zlib and NumPy come upon
        raise UserError(f"{complaint}: {_reason(error)}") from error


def read_npz(path: Path, names: Sequence[str], complaint: str, limit: float = USUAL_LIMIT) -> list[np.ndarray]:
    """The arrays of these names in a NumPy archive, in this order, if they need no more than ``limit`` bytes."""
    with open_archive(path, complaint) as archive:
        missing = [name for name in names if name not in archive.headers]
        if missing:
            raise UserError(f"{complaint}: has no {missing[0]}")
        check_size(complaint, sum(archive.headers[name].nbytes for name in names), limit)
        return [archive.read(name) for name in names]


def check_size(where: str, needed: float, limit: float) -> None:
    """Refuse to take more bytes of memory than the limit."""
    if needed > limit:
        raise UserError(
            f"{where}: would take {needed / GIGABYTE:.3g} GB of memory, must be at most "
            f"population.memory_limit_gb = {limit / GIGABYTE:.3g}"
        )


class _Careful(io.FileIO):
    """A file of which, at first, only small parts are read: a list of contents may claim to be huge."""

    careful = True

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file."""
        if self.careful:
            here = self.tell()
            left = self.seek(0, io.SEEK_END) - here
            self.seek(here)
            if left > LARGEST_DIRECTORY and (size is None or not 0 <= size <= LARGEST_DIRECTORY):
                raise ValueError("its list of contents is too long for an archive of arrays")
        return super().read(size)


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(told.split()) or type(error).__name__
