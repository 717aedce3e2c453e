"""Where a round's updates lie: other processes find them, and nothing is left behind."""

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from fedclade.fleet import updates as place
from fedclade.fleet.updates import SharedArray, attach, shared_copy
from tiny_runs import executable, outcome, tiny, tiny_file

LINUX = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc and /dev/shm")
OTHER = """
import json, sys
from fedclade.fleet.updates import attach
array = attach(json.loads(sys.argv[1]))
print(array.shape, array.dtype, array.sum())
array += 1
"""


def in_another_process(shared: SharedArray) -> str:
    """What another process finds there; it adds 1 to everything."""
    words = [sys.executable, "-c", OTHER, json.dumps(shared.address)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def memory_of(array: np.ndarray) -> object:
    """What an array's numbers lie in."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
def test_another_process_reads_and_writes_the_same_memory(dtype):
    shared = shared_copy(np.arange(6, dtype=dtype).reshape(2, 3))
    assert in_another_process(shared).split(")")[0] == "(2, 3"
    np.testing.assert_array_equal(shared.array, np.arange(1, 7).reshape(2, 3))
    assert shared.array.dtype == dtype


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,)])
def test_an_array_may_be_empty(shape):
    """Nobody may be trained in a round."""
    shared = SharedArray(shape)
    assert shared.array.shape == attach(shared.address).shape == shape


def test_a_copy_leaves_what_it_was_made_from_alone():
    original = np.ones(4)
    shared_copy(original).array[:] = 7
    assert original.tolist() == [1] * 4


@LINUX
def test_a_small_array_lies_in_shared_memory_and_has_no_name_there(tmp_path):
    before = os.listdir(place.SHARED_MEMORY)
    shared = SharedArray((5, 7))
    assert os.readlink(shared.address["path"]).startswith(place.SHARED_MEMORY)
    assert os.listdir(place.SHARED_MEMORY) == before


@LINUX
@pytest.mark.parametrize("short_of", ["room", "memory", "folder"])
def test_where_shared_memory_is_too_small_the_array_is_mapped_from_a_file(short_of, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    needed = 10 * 10 * 4
    if short_of == "room":
        free = SimpleNamespace(free=int(needed / place.SHARE_OF_ROOM) - 1)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    elif short_of == "memory":
        monkeypatch.setattr(place, "_memory_bytes", lambda: int(needed / place.SHARE_OF_MEMORY) - 1)
    else:
        monkeypatch.setattr(place, "SHARED_MEMORY", str(tmp_path / "nowhere"))
    shared = SharedArray((10, 10))
    assert os.readlink(shared.address["path"]).startswith(str(tmp_path))
    shared.array[:] = 2
    assert in_another_process(shared) == "(10, 10) float32 200.0"
    assert (shared.array == 3).all()
    assert list(tmp_path.iterdir()) == []  # the file has no name


@LINUX
def test_with_just_enough_room_the_array_lies_in_shared_memory(monkeypatch):
    free = SimpleNamespace(free=int(400 / place.SHARE_OF_ROOM) + 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    shared = SharedArray((10, 10))
    assert os.readlink(shared.address["path"]).startswith(place.SHARED_MEMORY)


def test_where_a_process_cannot_open_anothers_files_the_file_has_a_name_until_it_is_forgotten(monkeypatch):
    isdir = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: path != "/proc/self/fd" and isdir(path))
    shared = shared_copy(np.arange(4, dtype=np.float32))
    path = shared.address["path"]
    assert os.path.isfile(path)
    assert in_another_process(shared) == "(4,) float32 6.0"
    shared.forget()
    assert not os.path.exists(path)
    assert shared.array.tolist() == [1, 2, 3, 4]


def test_the_array_outlives_the_file_and_its_memory_is_let_go_with_the_last_view():
    shared = shared_copy(np.arange(12, dtype=np.float32).reshape(3, 4))
    address, view, memory = shared.address, shared.array[1:], weakref.ref(memory_of(shared.array))
    shared.forget()
    with pytest.raises(OSError, match="No such file"):
        attach(address)
    del shared
    gc.collect()
    assert view.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert memory() is not None
    del view
    gc.collect()
    assert memory() is None


@LINUX
def test_no_open_file_is_left_when_arrays_are_let_go():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        shared = SharedArray((4, 4))
        copy = attach(shared.address)
        shared.forget()
    del shared, copy
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


# -------------------------------------------------------------------------------- shared memory that is too small

WORKERS = ("training.engine=workers", "training.workers=2", "run.rounds=1")


def no_room(*places: str):
    """In place of os.posix_fallocate: these folders are full."""

    def fallocate(file: int, offset: int, size: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}").startswith(places):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(file, size)

    return fallocate


@LINUX
@pytest.mark.slow
def test_where_dev_shm_is_small_workers_share_files_and_say_so(tmp_path, monkeypatch):
    whole = outcome(tiny(*WORKERS, "training.workers=1").run(tmp_path / "whole").folder)
    monkeypatch.setattr(os, "posix_fallocate", no_room(place.SHARED_MEMORY))
    with pytest.warns(UserWarning, match="/dev/shm has too little room: worker processes share files in"):
        assert outcome(tiny(*WORKERS).run(tmp_path / "run").folder) == whole


@LINUX
def test_where_there_is_no_room_at_all_this_process_trains_and_says_so(tmp_path, monkeypatch):
    whole = outcome(tiny(*WORKERS, "training.workers=1").run(tmp_path / "whole").folder)
    monkeypatch.setattr(os, "posix_fallocate", no_room("/"))
    with pytest.warns(UserWarning, match="all devices are trained in this process"):
        assert outcome(tiny(*WORKERS).run(tmp_path / "run").folder) == whole


@LINUX
@pytest.mark.slow
def test_a_run_with_a_dev_shm_of_1_megabyte_ends_without_sigbus(tmp_path):
    """In a mount namespace of its own, which needs the right to make one."""
    large = tiny_file(tmp_path, *WORKERS, "population.source=mnist5k", "population.samples=3000", "model.name=mlp")
    command = f"mount -t tmpfs -o size=1m tmpfs /dev/shm && exec '{executable()}' run {large} --out {tmp_path}/run -q"
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True).returncode:
        pytest.skip("needs the right to mount in a namespace of its own")
    ended = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"{tmp_path}/run\n")
    assert "/dev/shm has too little room" in ended.stderr
