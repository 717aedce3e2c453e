"""Whatever bytes a data file holds: it is read, or refused in one line with exit code 2, within the stated memory."""

import io
import json
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pyarrow import parquet

from tiny_runs import fedclade

X, Y = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.arange(12) % 3
LIMIT = 2_000_000  # bytes that the data may take
# On top of the data: up to three copies, the interpreter's own, and what pandas reads at a time.
SPARE = 3 * LIMIT + 8_000_000

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def looked_at(path: Path) -> int:
    """The exit code of check-data, after one line of refusal or an object; never much memory, never a traceback."""
    tracemalloc.start()
    try:
        answer = fedclade("check-data", path, "--json", "--set", f"population.memory_limit_gb={LIMIT / 1e9}")
        assert tracemalloc.get_traced_memory()[1] < SPARE
    finally:
        tracemalloc.stop()
    if answer.code == 0:
        assert json.loads(answer.out)["samples"] > 0
        assert answer.err == ""
    else:
        (line,) = answer.err.splitlines()
        assert (answer.code, answer.out) == (2, "")
        assert line.startswith(f'fedclade: population.source = "{path}": ')
        assert "Traceback" not in line
    return answer.code


# -------------------------------------------------------------------------------- a corpus of broken files


class Bomb:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("executed"),))


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def saved(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def header(text: str, size: int = 0) -> bytes:
    """An array with a header of one's own."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1") + bytes(size)


GOOD = saved(x=X, y=Y)
Y_FILE = npy(Y)
ARCHIVES: dict[str, bytes] = {
    "nothing": b"",
    "text": b"x,y\n1,2\n",
    "only a signature": b"PK\x03\x04",
    "only an end": b"PK\x05\x06" + bytes(18),
    "an empty archive": zipped({}),
    "cut in half": GOOD[: len(GOOD) // 2],
    "without its end": GOOD[:-30],
    "a pickle": pickle.dumps(Bomb()),
    "a pickled member": saved(x=np.array([Bomb()], dtype=object), y=Y),
    "a pickled field": saved(x=np.array([(Bomb(),)], dtype=[("a", object)]), y=Y),
    "a member that is a pickle": zipped({"x.npy": pickle.dumps(Bomb()), "y.npy": Y_FILE}),
    "no arrays": zipped({"x.npy": b"hello", "y.npy": b""}),
    "names like paths": zipped({"../../x.npy": npy(X), "/y.npy": Y_FILE}),
    "a name with a line break": zipped({"x\nfedclade: all is well.npy": npy(X), "y.npy": Y_FILE}),
    "a bomb of zeros": zipped({"x.npy": npy(np.zeros((100_000, 100))), "y.npy": npy(np.zeros(100_000, int))}),
    "a bomb within a bomb": zipped({"x.npy": zipped({"x.npy": npy(np.zeros((100_000, 100)))}), "y.npy": Y_FILE}),
    "a bomb that nobody asks for": zipped({"x.npy": npy(X), "y.npy": Y_FILE, "z.npy": npy(np.zeros(10**7))}),
    "a shape beyond all memory": zipped(
        {"x.npy": header("{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000, 10000000000), }", 64)}
    ),
    "a negative shape": zipped({"x.npy": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -4), }", 64)}),
    "a huge item": zipped({"x.npy": header("{'descr': '<U2000000000', 'fortran_order': False, 'shape': (), }", 64)}),
    "items of no size": zipped({"x.npy": header("{'descr': '|V0', 'fortran_order': False, 'shape': (10**9,), }")}),
    "a header that is code": zipped({"x.npy": header("__import__('pathlib').Path('executed').touch()", 8)}),
    "a header of brackets": zipped({"x.npy": header("(" * 9000, 8)}),
    "a long header": zipped({"x.npy": header("{" + " " * 60_000 + "}", 8)}),
    "an unknown packing": zipped({"x.npy": npy(X), "y.npy": Y_FILE}, zipfile.ZIP_LZMA),
    "an encrypted member": GOOD[: (flags := GOOD.index(b"PK\x01\x02") + 8)] + b"\x01" + GOOD[flags + 1 :],
    "y of dates": saved(x=X, y=Y.astype("M8[D]")),
    "x of complex numbers": saved(x=X.astype(complex), y=Y),
    "x of no dimension": saved(x=np.float32(3), y=Y),
    "y of nothing": saved(x=X[:0], y=Y[:0]),
    "device of numbers with a point": saved(x=X, y=Y, device=Y / 2),
    "device with a line break": saved(x=X, y=Y, device=np.array(["a\nb"] + ["c"] * 11)),
    "group of texts and split of numbers": saved(x=X, y=Y, device=Y, group=["a"] * 12, split=Y),
    "infinite numbers": saved(x=np.full_like(X, np.inf), y=Y),
}
TABLES: dict[str, bytes] = {
    "nothing": b"",
    "a line break": b"\n",
    "only a header": b"a,y\n",
    "bytes": bytes(range(256)),
    "zeros": bytes(1000),
    "half a quotation": b'a,y\n1,0\n"2,1\n',
    "an archive": GOOD,
    "utf-16": "a,y\n1,0\n".encode("utf-16"),
    "rows of all lengths": b"a,b,y\n1\n1,2\n1,2,0\n1,2,0,4\n",
    "many columns, short rows": b"y" + b",".join(b"c%d" % n for n in range(3000)) + b"\n" + b"0\n" * 20_000,
    "a long field": b"a,y\n" + b"1" * 200_000 + b",0\n",
    "a long name": b"a" * 200_000 + b",y\n1,0\n",
    "commas": b"," * 50_000,
    "numbers beyond all": b"a,y\n1e999,0\n1,99999999999999999999999\n",
    "words for numbers": b"a,y\nnan,0\ninf,1\n",
    "no names": b",\n1,0\n",
    "a formula": b"a,y\n=cmd|' /C calc'!A0,0\n",
}


@pytest.fixture
def path(tmp_path, monkeypatch) -> Callable[[str, bytes], Path]:
    monkeypatch.chdir(tmp_path)

    def written(name: str, content: bytes) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return written


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_broken_archive_is_refused_in_one_line(name, path):
    assert looked_at(path("mine.npz", ARCHIVES[name])) == 2
    assert not Path("executed").exists()


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_broken_archive_among_good_ones_in_a_folder_is_refused_in_one_line(name, path):
    path("a.npz", GOOD)
    assert looked_at(path("b.npz", ARCHIVES[name]).parent) == 2
    assert not Path("executed").exists()


@pytest.mark.parametrize("name", TABLES)
def test_a_broken_table_is_refused_in_one_line(name, path):
    assert looked_at(path("mine.csv", TABLES[name])) == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mine.npz", GOOD),
        ("mine.csv", b"a,y\n1,0\n2,1\n"),
        ("mine.csv", b"a,y\r1,0\r2,1\r"),  # the line ends of old machines
        ("mine.csv", b'\xef\xbb\xbf"a\nb","y"\n1,"0"\n\n2,1'),  # as spreadsheets write them
    ],
)
def test_an_unusual_but_good_file_is_read(name, content, path):
    assert looked_at(path(name, content)) == 0


# -------------------------------------------------------------------------------- damage and nonsense of any kind


@st.composite
def damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """A file with some bytes changed, and perhaps a piece cut out, doubled or cut off."""
    raw = bytearray(good)
    for _ in range(draw(st.integers(0, 8))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    first, last = sorted(draw(st.tuples(*[st.integers(0, len(raw))] * 2)))
    middle = draw(st.sampled_from([raw[first:last], raw[first:last] * 2, b"", raw[:0]]))
    return bytes(raw[:first] + middle + raw[draw(st.sampled_from([last, last, len(raw)])) :])


@few
@given(content=damaged(saved(x=X, y=Y, device=np.repeat(["a", "b"], 6), group=[0, 1])))
def test_a_damaged_archive_is_read_or_refused_in_one_line(content, path):
    looked_at(path("mine.npz", content))


@few
@given(content=damaged(b"device,a,b,y,split\n" + b'p,1.5,2,0,train\n"q",3,-4e2,1,test\nq,0,0,1,train\np,1,1,0,test\n'))
def test_a_damaged_table_is_read_or_refused_in_one_line(content, path):
    looked_at(path("mine.csv", content))


def tabled(**columns: object) -> bytes:
    """A Parquet file."""
    file = io.BytesIO()
    parquet.write_table(arrow.table({name: arrow.array(values) for name, values in columns.items()}), file)
    return file.getvalue()


@few
@given(content=damaged(tabled(a=X[:, 0], b=["p", "q"] * 6, y=Y, device=["u", "v"] * 6)))
def test_a_damaged_parquet_file_is_read_or_refused_in_one_line(content, path):
    looked_at(path("mine.parquet", content))


@few
@given(
    y=st.lists(st.floats() | st.integers(-9, 9), min_size=12, max_size=12), told=st.sampled_from(["y_mean", "y_std"])
)
def test_any_numbers_to_be_told_are_read_or_refused_in_one_line(path, y, told):
    looked_at(path("mine.npz", saved(x=X, y=np.array(y), device=np.arange(12) % 2)))
    looked_at(path("mine.npz", saved(x=X, y=Y / 2, device=np.arange(12) % 2, **{told: np.array(y[:2])})))
    looked_at(path("mine.csv", "\n".join(["a,y", *(f"1,{one}" for one in y)]).encode()))
    looked_at(path("mine.parquet", tabled(a=X[:, 0], y=np.array(y, np.float64))))


@few
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_in_one_line(content, path):
    looked_at(path("mine.npz", b"PK\x03\x04" + content))
    looked_at(path("mine.parquet", b"PAR1" + content + b"PAR1"))
    looked_at(path("mine.csv", b"a,y\n" + content))
    looked_at(path("mine.csv", content))


any_array = arrays.arrays(
    dtype=arrays.scalar_dtypes() | arrays.unicode_string_dtypes(max_len=3) | arrays.byte_string_dtypes(max_len=3),
    shape=arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
)
field = st.sampled_from(["x", "y", "device", "group", "split", "writer", "classes", "mean", "std"])


@few
@given(fields=st.dictionaries(field, any_array), known=st.booleans())
def test_any_arrays_are_read_or_refused_in_one_line(fields, known, path):
    good = {"x": X, "y": Y, "device": np.arange(12) % 2} if known else {}
    looked_at(path("mine.npz", saved(**{**good, **fields})))


@few
@given(cells=st.lists(st.lists(st.text(max_size=4) | st.sampled_from(["0", "1", "2.5", "nan", ""]), max_size=5)))
def test_any_cells_are_read_or_refused_in_one_line(cells, path):
    rows = "\n".join(",".join(row) for row in cells)
    looked_at(path("mine.csv", f"device,a,y,split,group\n{rows}\n".encode("utf-8", "surrogatepass")))
