"""Where a round's updates lie: in memory that worker processes share, or in a mapped file where that is too small."""

import mmap
import os
import shutil
import sys
import tempfile
from typing import Any

import numpy as np

SHARED_MEMORY = "/dev/shm"
SHARE_OF_MEMORY = 0.25  # an array larger than this share of the machine's memory is mapped from a file on disk
SHARE_OF_ROOM = 0.8  # and so is one that would take more than this share of what is free in shared memory


class SharedArray:
    """An array that other processes of this user can open by its address.

    Where the system lets one process open another's files, the file behind it has no name, so that nothing is left
    behind whatever happens. The memory lives as long as an array does, here or there; ``forget`` only ends that others
    can open it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str = "float32") -> None:
        count = int(np.prod(shape))
        size, by_number = max(1, count) * np.dtype(dtype).itemsize, os.path.isdir("/proc/self/fd")
        make = tempfile.TemporaryFile if by_number else tempfile.NamedTemporaryFile
        self._file = make(dir=_folder_for(size))
        self._file.truncate(size)
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


def _folder_for(size: int) -> str | None:
    """Shared memory, or None for the folder of temporary files where there is too little of it."""
    if not os.path.isdir(SHARED_MEMORY) or size > SHARE_OF_ROOM * shutil.disk_usage(SHARED_MEMORY).free:
        return None
    return SHARED_MEMORY if size <= SHARE_OF_MEMORY * _memory_bytes() else None


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return sys.maxsize
