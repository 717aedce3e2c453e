"""Where a round's updates lie: in memory that worker processes share, or in a mapped file where that is too small."""

import errno
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

SHARED_MEMORY = "/dev/shm"
SHARE_OF_MEMORY = 0.25  # an array larger than this share of the machine's memory is mapped from a file on disk
SHARE_OF_ROOM = 0.8  # and so is one that would take more than this share of what is free in shared memory


class SharedArray:
    """An array that other processes of this user can open by its address.

    Where the system lets one process open another's files, the file behind it has no name, so that nothing is left
    behind whatever happens. The memory lives as long as an array does, here or there; ``forget`` only ends that others
    can open it. ``lacked_room``: there is shared memory, but too little of it, so that the array lies on the disk.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str = "float32") -> None:
        count = int(np.prod(shape))
        size, by_number = max(1, count) * np.dtype(dtype).itemsize, os.path.isdir("/proc/self/fd")
        make = tempfile.TemporaryFile if by_number else tempfile.NamedTemporaryFile
        self._file, self.lacked_room = _reserved(make, size)
        self._path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}" if by_number else self._file.name
        self.array = np.frombuffer(mmap.mmap(self._file.fileno(), size), dtype=dtype)[:count].reshape(shape)

    @property
    def address(self) -> dict[str, Any]:
        """What another process needs to open it: see ``attach``."""
        return {"path": self._path, "shape": self.array.shape, "dtype": str(self.array.dtype)}

    def forget(self) -> None:
        """Close the file."""
        self._file.close()


def shared_copy(array: np.ndarray) -> SharedArray:
    """An array's copy in shared memory."""
    shared = SharedArray(array.shape, str(array.dtype))
    shared.array[...] = array
    return shared


def attach(address: dict[str, Any]) -> np.ndarray:
    """The array of an address, as another process made it."""
    file = os.open(address["path"], os.O_RDWR)
    try:
        whole = np.frombuffer(mmap.mmap(file, 0), dtype=address["dtype"])
    finally:
        os.close(file)
    return whole[: int(np.prod(address["shape"]))].reshape(address["shape"])


def _reserved(make: Callable[..., IO[bytes]], size: int) -> tuple[IO[bytes], bool]:
    """A file of so many bytes in shared memory, or else on the disk, and whether memory lacked the room for it.

    The room is taken at once: a process that writes to memory that is not there is killed without a word (SIGBUS).
    """
    wanted = os.path.isdir(SHARED_MEMORY) and size <= SHARE_OF_MEMORY * _memory_bytes()
    if wanted and size <= SHARE_OF_ROOM * shutil.disk_usage(SHARED_MEMORY).free:
        try:
            return _filled(make(dir=SHARED_MEMORY), size), False
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return _filled(make(), size), wanted


def _filled(file: IO[bytes], size: int) -> IO[bytes]:
    """The file, with room for so many bytes; ENOSPC where there is none."""
    try:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            file.truncate(size)  # this system cannot promise the room
        return file
    except OSError:
        file.close()
        raise


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return sys.maxsize
