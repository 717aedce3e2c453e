"""Traces: a row holds until the next one, the trace repeats, and every mistake of a file is one line."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import error_line
from fedclade import UserError
from fedclade.config import load
from fedclade.edge import SimulatedEdge
from fedclade.edge.traces import CHANNEL, DEVICE, Trace, read_trace

PARAMETERS = 1_000_000  # 32 Mbit


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "trace.csv") -> str:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return str(path)

    return write


def read(path, wanted=CHANNEL, devices=2, end="repeat", rounds=1):
    return read_trace("edge.trace", path, wanted, devices, end, rounds)


def edge_of(devices=2, **settings):
    config = load({"edge": settings})
    return SimulatedEdge(config, np.full(devices, 100), 28 * 28 * 8, PARAMETERS)


# -------------------------------------------------------------------------------- what a trace says


def test_a_row_holds_until_the_next_one_of_its_device(write):
    trace = read(write("round,device,gain\n1,1,0.5\n1,0,0.1\n3,0,0.3\n4,1,0.2\n"))
    assert trace.rounds == 4
    gain = [trace.columns["gain"][trace.rows(round_)].tolist() for round_ in (1, 2, 3, 4)]
    assert gain == [[0.1, 0.5], [0.1, 0.5], [0.3, 0.5], [0.3, 0.2]]
    # over the four rounds: (0.1 + 0.1 + 0.3 + 0.3) / 4 and (3 x 0.5 + 0.2) / 4
    assert trace.mean(trace.columns["gain"]) == pytest.approx([0.2, 0.425])


rows = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(1, 12)), st.floats(0.0, 10.0), max_size=20)


@given(rows, st.lists(st.floats(0.0, 10.0), min_size=4, max_size=4), st.sampled_from(["repeat", "hold"]), st.data())
def test_a_trace_is_the_table_that_its_rows_fill_downwards(tmp_path_factory, rows, first, end, data):
    rows = {**rows, **{(device, 1): gain for device, gain in enumerate(first)}}
    shuffled = data.draw(st.permutations(sorted(rows)))
    path = tmp_path_factory.getbasetemp() / "any.csv"
    lines = [f"{device},{rows[device, round_]!r},{round_}" for device, round_ in shuffled]
    path.write_text("\n".join(["device,gain,round", *lines]))
    trace = read(str(path), devices=4, end=end)
    rounds = max(round_ for _, round_ in rows)
    table = np.zeros((rounds, 4))
    for device, round_ in sorted(rows, key=lambda pair: pair[1]):
        table[round_ - 1 :, device] = rows[device, round_]
    for round_ in range(1, 30):
        row = (round_ - 1) % rounds if end == "repeat" else min(round_, rounds) - 1
        assert np.array_equal(trace.columns["gain"][trace.rows(round_)], table[row])
    assert trace.mean(trace.columns["gain"]) == pytest.approx(table.mean(axis=0))


def test_without_a_column_of_rounds_every_row_holds_always(write):
    trace = read(write("\ufeffdevice, name ,rate_bps\n0,a,1e6\n\n1,b,2e6\n"))
    assert trace.columns["rate_bps"][trace.rows(7)].tolist() == [1e6, 2e6]


def test_further_devices_of_a_trace_are_not_looked_at_but_their_rounds_count(write):
    text = "device,round,gain\n0,1,0.1\n1,1,0.2\n99999999999999999999,5,0.3\n"
    trace = read(write(text))
    assert (trace.rounds, trace.device.tolist()) == (5, [0, 1])


# -------------------------------------------------------------------------------- what the edge makes of it


def test_gains_and_decibels_are_power_gains_and_nothing_is_drawn_on_top(write):
    # 20 dBm - 75 dB + 114 dBm = 59 dB: the same device by hand as without a trace at 20 m
    loud = {"power_min_dbm": 20.0}
    by_db = edge_of(trace=write("device,round,gain_db\n0,1,-75\n1,1,-75\n1,2,-3000\n"), **loud)
    by_gain = edge_of(trace=write(f"device,round,gain\n0,1,{10**-7.5}\n1,1,{10**-7.5}\n1,2,0\n", "b.csv"), **loud)
    for edge in (by_db, by_gain):
        assert edge.observe(1).snr == pytest.approx([10**5.9] * 2)
        assert edge.observe(2).snr == pytest.approx([10**5.9, 0.0])
        assert edge.observe(3).snr == pytest.approx([10**5.9] * 2)  # from the start again
        assert edge.observe(1).uplink.gain == pytest.approx([10**-7.5] * 2)
    assert np.isinf(by_gain.observe(2).upload_seconds[1])


@given(
    st.lists(st.just(0.0) | st.floats(1e-6, 3e8), min_size=3, max_size=3),
    st.sampled_from(["log2", "ln"]),
    st.sampled_from(["thermal", "paper-text"]),
)
def test_a_rate_is_what_the_link_carries_at_the_devices_own_power(tmp_path_factory, rates, logarithm, noise):
    path = tmp_path_factory.getbasetemp() / "rates.csv"
    path.write_text("device,rate_bps\n" + "".join(f"{device},{rate!r}\n" for device, rate in enumerate(rates)))
    edge = edge_of(3, trace=str(path), logarithm=logarithm, noise=noise)
    links = edge.observe(4)
    assert links.rate_bps == pytest.approx(rates, rel=1e-9)
    assert links.mean_rate_bps == pytest.approx(rates, rel=1e-9)
    uplink = links.uplink
    assert uplink.seconds(1e6, uplink.power_w) == pytest.approx(links.upload_seconds, rel=1e-6)


def test_a_link_that_carries_next_to_nothing_carries_nothing(write):
    links = edge_of(trace=write("device,gain\n0,5e-324\n1,0\n"), noise="paper-table").observe(1)
    assert np.isinf(links.upload_seconds).all()
    assert np.isinf(links.uplink.seconds(1e6, 1.0)).all()
    assert not links.lost.any()


def test_the_mean_rate_is_that_of_the_trace_and_an_outage_is_told_by_the_mean_gain(write):
    edge = edge_of(1, trace=write("device,round,rate_bps\n0,1,1e6\n0,2,3e6\n"), outage_db=3.0)
    assert edge.observe(1).mean_rate_bps == pytest.approx([2e6])
    # gains in proportion to 2^1 - 1 = 1 and 2^3 - 1 = 7, mean 4: the first is 6 dB below
    assert (edge.observe(1).lost.tolist(), edge.observe(2).lost.tolist()) == ([True], [False])


def test_a_trace_does_not_say_where_a_device_stands(write):
    assert np.isnan(edge_of(trace=write("device,gain\n0,1\n1,1\n")).devices.distance_m).all()


def test_links_depend_on_the_round_alone(write):
    path = write("device,round,gain\n" + "".join(f"{k},{r},{k + r}\n" for k in range(2) for r in range(1, 6)))
    forward = edge_of(trace=path)
    seen = {round_: forward.observe(round_).snr for round_ in range(1, 12)}
    for round_ in (11, 3, 7):
        assert np.array_equal(edge_of(trace=path).observe(round_).snr, seen[round_])


# -------------------------------------------------------------------------------- devices


def test_a_device_trace_tells_the_clock_of_each_round(write):
    edge = edge_of(device_trace=write("device,round,cpu_hz\n0,1,1e9\n1,1,5e8\n0,2,2e9\n"))
    # 125,440 cycles a sample x 10 epochs x 100 samples: 0.12544 s at 1 GHz, and 0.012544 J, which grow with f^2
    first, second = edge.observe(1), edge.observe(2)
    assert first.compute_seconds == pytest.approx([0.12544, 0.25088])
    assert second.compute_seconds == pytest.approx([0.06272, 0.25088])
    assert first.compute_joules == pytest.approx([0.012544, 0.012544 / 4])
    assert edge.devices.cpu_hz.tolist() == [1e9, 5e8]
    assert not first.absent.any()
    # nobody is faster than traced; whoever is faster than edge.cpu_min_hz may slow down to it
    assert second.limits.compute_shortest == pytest.approx([0.06272, 0.25088])
    assert second.limits.compute_longest == pytest.approx([0.12544, 0.25088])


def test_seconds_per_sample_are_those_that_training_takes(write):
    edge = edge_of(device_trace=write("device,seconds_per_sample\n0,0.01\n1,0.002\n"))
    assert edge.observe(3).compute_seconds == pytest.approx([10 * 100 * 0.01, 10 * 100 * 0.002])


def test_a_device_trace_tells_who_is_there(write):
    edge = edge_of(device_trace=write("device,round,available\n0,1,1\n1,1,0\n1,2,1\n0,3,0\n"))
    absent = [edge.observe(round_).absent.tolist() for round_ in (1, 2, 3, 4)]
    assert absent == [[False, True], [False, False], [True, False], [False, True]]
    links = edge.observe(1)
    assert np.array_equal(links.away, links.absent)
    assert np.isinf(links.upload_seconds).tolist() == [False, True]


def test_who_is_away_by_chance_is_not_known_to_be(write):
    edge = edge_of(20, device_trace=write("device,available\n0,0\n" + "".join(f"{k},1\n" for k in range(1, 20))))
    assert edge.observe(1).absent.tolist() == [True] + 19 * [False]
    both = edge_of(
        20,
        device_trace=write("device,available\n0,0\n" + "".join(f"{k},1\n" for k in range(1, 20))),
        availability="bernoulli",
        availability_share=0.5,
    ).observe(1)
    assert both.absent.tolist() == [True] + 19 * [False]
    assert both.away[0]
    assert 1 < both.away.sum() < 20


def test_of_columns_that_say_the_same_the_first_of_the_list_counts(write):
    path = write("rate_bps,gain_db,device,seconds_per_sample,cpu_hz\nx,-75,0,,1e9\nx,-75,1,,1e9\n")
    edge = edge_of(trace=path, device_trace=path, power_min_dbm=20.0)
    assert edge.observe(1).snr == pytest.approx([10**5.9] * 2)
    assert edge.observe(1).compute_seconds == pytest.approx([0.12544] * 2)


def test_one_file_may_be_both_traces(write):
    path = write("device,rate_bps,cpu_hz,available\n0,1e6,1e9,1\n1,2e6,2e9,0\n")
    links = edge_of(trace=path, device_trace=path).observe(1)
    assert links.rate_bps == pytest.approx([1e6, 0.0])
    assert links.mean_rate_bps == pytest.approx([1e6, 2e6])
    assert links.compute_seconds == pytest.approx([0.12544, 0.06272])


# -------------------------------------------------------------------------------- what users get wrong

mistakes = [
    ("", "line 1: must name the columns device, round and gain or gain_db or rate_bps; it names: none"),
    (
        "device,round,gian\n0,1,1\n",
        "line 1: must name the columns device, round and gain or gain_db or rate_bps; it names: device, round, gian",
    ),
    (
        "round,gain\n1,1\n",
        "line 1: must name the columns device, round and gain or gain_db or rate_bps; it names: round, gain",
    ),
    ("device,gain,gain\n0,1,1\n", "line 1: names column gain twice"),
    ("device,gain\n0,1\n1\n", "line 3: has 1 cells, must have 2 as line 1 has"),
    ("device,gain\n0,1,\n", "line 2: has 3 cells, must have 2 as line 1 has"),
    ("device,gain\n-1,1\n", "line 2, column device: '-1' must be a whole number from 0"),
    ("device,gain\nphone,1\n", "line 2, column device: 'phone' must be a whole number from 0"),
    ("device,round,gain\n0,1.0,1\n", "line 2, column round: '1.0' must be a whole number from 1"),
    ("device,round,gain\n0,0,1\n", "line 2, column round: '0' must be a whole number from 1"),
    ("device,gain\n0,1\n1,\n", "line 3, column gain: '' must be a power gain of at least 0"),
    ("device,gain\n0,nan\n", "line 2, column gain: 'nan' must be a power gain of at least 0"),
    ("device,gain\n0,inf\n", "line 2, column gain: 'inf' must be a power gain of at least 0"),
    ("device,gain_db\n0,1e9\n", "line 2, column gain_db: '1e9' must be a power gain in dB, from -3000 to 300"),
    ("device,rate_bps\n0,fast\n", "line 2, column rate_bps: 'fast' must be a rate of at least 0 bit/s"),
    (
        "device,round,gain\n0,1,1\n1,1,1\n0,1,2\n",
        "line 4: device 0 has a row for round 1 already, in line 2",
    ),
    (
        "device,round,gain\n0,1,1\n1,2,1\n",
        "device 1 has no row for round 1; each of the 2 devices, 0 to 1, needs one",
    ),
    ("device,gain\n", "device 0 has no row for round 1; each of the 2 devices, 0 to 1, needs one"),
    ('device,gain\n0,"1\n', "not a CSV file: unexpected end of data"),
]


@pytest.mark.parametrize(("text", "right"), mistakes)
def test_a_mistake_is_one_line_with_file_line_column_and_what_would_be_right(write, text, right):
    path = write(text)
    assert error_line(read, path) == f"{path}: {right}"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("device,cpu_hz\n0,0\n", "line 2, column cpu_hz: '0' must be a clock above 0 Hz"),
        ("device,seconds_per_sample\n0,-1\n", "line 2, column seconds_per_sample: '-1' must be a time above 0 s"),
        ("device,available\n0,yes\n", "line 2, column available: 'yes' must be 1 where the device is there, else 0"),
    ],
)
def test_a_mistake_in_a_device_trace_is_one_line_too(write, text, right):
    path = write(text)
    assert error_line(read, path, DEVICE) == f"{path}: {right}"


def test_a_file_that_cannot_be_read_is_named_with_its_field(tmp_path):
    assert error_line(read, "none.csv") == 'edge.trace = "none.csv": cannot be read: No such file or directory'
    (tmp_path / "x").write_bytes(b"\x80\x04\x95device")
    assert error_line(read, str(tmp_path / "x")).endswith(": must be a CSV or .parquet file, and is not UTF-8 text")


def test_a_rate_beyond_all_numbers_says_how_wide_a_sub_channel_it_would_take(write):
    path = write("device,rate_bps\n0,1e10\n1,1\n")
    assert error_line(lambda: edge_of(trace=path)).startswith(
        f"{path}: column rate_bps: 1e+10 bit/s is too much for one sub-channel of edge.subchannel_hz = 1e+06"
    )


def test_a_run_longer_than_its_trace_is_refused_where_that_is_asked_for(write):
    path = write("device,round,gain\n0,1,1\n0,3,1\n1,1,1\n")
    with pytest.raises(UserError, match=r'edge.trace_end = "refuse": .*trace.csv has 3 rounds, run.rounds is 4'):
        read(path, end="refuse", rounds=4)
    assert read(path, end="refuse", rounds=3).rounds == 3


texts = st.text(st.sampled_from('device,round,gain\n"01.-e9 \x00é'), max_size=80)


@given(texts, st.binary(max_size=20))
def test_whatever_is_in_the_file_it_is_read_or_refused_in_one_line(tmp_path_factory, text, more):
    path = tmp_path_factory.getbasetemp() / "fuzzed.csv"
    path.write_bytes(b"device,round,gain\n" + text.encode() + more)
    with contextlib.suppress(UserError):  # error_line sees to it that it is one line
        assert isinstance(read(str(path)), Trace)
        return
    assert error_line(read, str(path))
