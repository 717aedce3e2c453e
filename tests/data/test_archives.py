"""NumPy archives of strangers: what they claim is looked at before memory is taken for it."""

import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from data_builders import error_line
from fedclade.data.archives import LARGEST_DIRECTORY, open_archive, read_npz

Y = np.arange(12) % 3


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def archive(path: Path, compression: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def refused(path: Path, **limit: float) -> str:
    """The line with which reading x of an archive is refused, with less than 5 MB of memory taken on the way."""
    tracemalloc.start()
    try:
        line = error_line(lambda: read_npz(path, ("x",), "here", **limit))
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    return line


def test_shapes_and_types_are_known_before_an_array_is_read(tmp_path):
    np.savez_compressed(tmp_path / "mine.npz", x=np.zeros((3, 4), np.float32), name=np.array("text"))
    with open_archive(tmp_path / "mine.npz", "here") as found:
        assert {name: (header.shape, header.nbytes) for name, header in found.headers.items()} == {
            "x": ((3, 4), 48),
            "name": ((), 16),
        }
        np.testing.assert_array_equal(found.read("x"), np.zeros((3, 4), np.float32))


def test_what_needs_more_memory_than_allowed_is_refused_unread(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((40_000_000,), np.uint8))
    assert path.stat().st_size < 50_000
    assert refused(path, limit=39e6) == (
        "here: would take 0.04 GB of memory, must be at most population.memory_limit_gb = 0.039"
    )
    assert len(read_npz(path, ("x",), "here", limit=40e6)[0]) == 40_000_000


def test_a_header_that_claims_more_than_there_is_gets_no_memory(tmp_path):
    raw = npy(np.zeros(1000, np.uint8)).replace(b"(1000,), }", b"(10**9,)} ")
    assert "here: " in refused(archive(tmp_path / "a.npz", x=raw))
    raw = npy(np.zeros(1000, np.uint8)).replace(b"(1000,), }         ", b"(4000000000000,), }")
    assert "x.npy is damaged: an array of shape (4000000000000,)" in refused(archive(tmp_path / "b.npz", x=raw))


def test_a_directory_that_claims_more_than_the_stream_holds_or_less_is_refused(tmp_path):
    path = archive(tmp_path / "mine.npz", x=npy(np.zeros(100_000, np.uint8)))
    size = len(npy(np.zeros(100_000, np.uint8)))
    for claim in (size + 7, size - 7, 2**31):
        raw = path.read_bytes()
        directory = raw.index(b"PK\x01\x02")
        forged = raw[: directory + 24] + claim.to_bytes(4, "little") + raw[directory + 28 :]
        (tmp_path / "forged.npz").write_bytes(forged)
        assert "here: x.npy is damaged" in refused(tmp_path / "forged.npz")


def test_a_list_of_contents_that_is_far_too_long_is_not_read(tmp_path):
    many = {f"{number:0200}": b"" for number in range(LARGEST_DIRECTORY // 200)}
    line = refused(archive(tmp_path / "many.npz", zipfile.ZIP_STORED, **many))
    assert line == "here: its list of contents is too long for an archive of arrays"


@pytest.mark.parametrize(
    ("content", "right"),
    [
        (npy(np.array([{"a": 1}])), "x.npy holds Python objects (pickle), which are never read"),
        (npy(np.zeros(3, [("a", "O")])), "x.npy holds Python objects (pickle), which are never read"),
        (npy(np.zeros(3), (3, 0)), "x.npy is of the format (3, 0); must be a plain array"),
        (npy(np.zeros(9))[:-8], "x.npy is damaged: an array of shape (9,) and type float64 is not 64 bytes long"),
        (npy(np.zeros(9)) + b"more", "x.npy is damaged: an array of shape (9,) and type float64 is not 76 bytes long"),
        (npy(np.zeros(9)).replace(b"(9,)", b"(-9)"), "here: "),
        (npy(np.zeros(0, "U1")).replace(b"<U1", b"<U0").replace(b"(0,)", b"(9,)"), "x.npy is damaged"),
        (b"", "here: "),
        (b"\x93NUMPY", "here: "),
        (b"not an array at all", "here: "),
    ],
)
def test_what_is_no_plain_array_is_refused(content, right, tmp_path):
    assert right in refused(archive(tmp_path / "mine.npz", x=content))


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_packing_that_numpy_does_not_use_is_refused(compression, tmp_path):
    path = archive(tmp_path / "mine.npz", compression, x=npy(Y))
    assert refused(path) == "here: x.npy is packed in a way that numpy.savez does not use"


def test_an_array_that_is_not_there_is_named(tmp_path):
    assert refused(archive(tmp_path / "mine.npz", y=npy(Y))) == "here: has no x"
    assert refused(tmp_path / "nowhere.npz") == "here: No such file or directory"
