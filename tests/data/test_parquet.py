"""Tables of samples and traces as Parquet files."""

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from data_builders import config, error_line
from fedclade.core.parquet import read_parquet
from fedclade.data import read_source
from fedclade.data.files import read_device
from fedclade.edge.traces import CHANNEL, DEVICE, read_trace

COLUMNS = {
    "height": np.arange(12) / 4,
    "weight": np.arange(12),
    "y": np.arange(12) % 3,
    "device": ["b", "a"] * 6,
    "group": [1, 0] * 6,
}


def written(path, columns=COLUMNS, **how):
    parquet.write_table(arrow.table({name: arrow.array(values) for name, values in columns.items()}), path, **how)
    return path


def read(path, **population):
    return read_source(config(population={"source": str(path), **population}))


@pytest.mark.parametrize("how", [{}, {"compression": "zstd"}, {"row_group_size": 5}, {"use_dictionary": True}])
def test_a_parquet_file_is_the_same_as_the_table_in_it(how, tmp_path):
    found = read(written(tmp_path / "all.parquet", **how))
    assert found.x[:, 0, 0].tolist() == [[i / 4, float(i)] for i in range(12)]
    assert (found.y.tolist(), found.device.tolist()) == ([0, 1, 2] * 4, [1, 0] * 6)
    assert found.group.tolist() == [0, 1]


def test_a_column_may_hold_lists_and_targets_may_be_numbers(tmp_path):
    rows = [[float(i), i + 0.5, i * 2.0] for i in range(6)]
    columns = {"x": rows, "price": np.arange(6) / 2, "device": [0, 0, 0, 1, 1, 1]}
    found = read(written(tmp_path / "all.parquet", columns), label_column="price")
    assert found.x[:, 0, 0].tolist() == rows
    assert found.numbers


def test_a_folder_may_hold_one_for_each_device(tmp_path):
    for name in ("1", "2"):
        written(tmp_path / f"{name}.parquet", {"a": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    assert read(tmp_path).device.tolist() == [0, 0, 0, 1, 1, 1]
    alone = read_device(tmp_path / "2.parquet", config().population, "test")
    assert alone.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"a": [1.0], "Y": [0]}, "has no column 'y' (population.label_column); known: Y, a"),
        ({"a": [], "y": []}, "has no rows; must hold at least one sample"),
        ({"a": [[1.0], [1.0, 2.0]], "y": [0, 1]}, "not a Parquet file: all input arrays must have the same shape"),
        ({"a": ["dry", "wet"], "y": [0, 1]}, "column 'a' is texts, must be numbers"),
        ({"a": [1.0, None], "y": [0, 1]}, "column 'a' has no finite number in sample 1"),
    ],
)
def test_mistakes_are_told_in_one_line(columns, told, tmp_path):
    assert told in error_line(read, written(tmp_path / "all.parquet", columns))


def test_a_file_that_inflates_beyond_the_limit_is_refused_on_the_way(tmp_path):
    """Ten million equal numbers take a few kilobytes on disk."""
    path = written(tmp_path / "all.parquet", {"a": np.zeros(10_000_000), "y": np.zeros(10_000_000, int)})
    assert path.stat().st_size < 200_000
    with pytest.raises(Exception, match=r"takes more than 0\.005 GB of memory"):
        read_parquet(path, "test", 5e6)


def test_traces_may_be_parquet_files(tmp_path):
    links = written(tmp_path / "links.parquet", {"device": [0, 1, 0], "round": [1, 1, 2], "rate_bps": [1e6, 2e6, 5.5]})
    trace = read_trace("edge.trace", str(links), CHANNEL, 2, "repeat", 5)
    assert (trace.rounds, trace.columns["rate_bps"].tolist()) == (2, [1e6, 5.5, 2e6])
    there = written(tmp_path / "there.parquet", {"device": [0, 1], "available": [True, False]})
    assert read_trace("edge.device_trace", str(there), DEVICE, 2, "hold", 5).columns["available"].tolist() == [1, 0]
    broken = written(tmp_path / "bad.parquet", {"device": [0, 1], "round": [1, 1], "rate_bps": [1.0, None]})
    assert "column rate_bps: 'nan' must be a rate" in error_line(
        read_trace, "edge.trace", str(broken), CHANNEL, 2, "hold", 1
    )
