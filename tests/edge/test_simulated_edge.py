"""The simulated radio network as the server sees it."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.config import Config, EdgeConfig, RunConfig, TrainingConfig
from fedclade.edge import SimulatedEdge, duration, plausibility

PARAMETERS = 1_000_000  # 32 Mbit
IDENTICAL = {  # every device at 20 m, 20 dBm, 1 GHz, without fading
    "distance_max_m": 20.0,
    "power_min_dbm": 20.0,
    "cpu_max_hz": 1e9,
    "fading": "none",
}


def edge_of(devices=20, seed=1, **settings):
    config = Config(run=RunConfig(seed=seed), training=TrainingConfig(epochs=10), edge=EdgeConfig(**settings))
    return SimulatedEdge(config, np.full(devices, 100), 28 * 28 * 8, PARAMETERS)


def warnings_of(**settings):
    edge = edge_of(**settings)
    return plausibility(edge.observe(1), edge.model_bits)


def test_a_round_of_identical_devices_by_hand():
    # SNR: 20 dBm - 75 dB (20 m) + 114 dBm (noise) = 59 dB; rate: 1e6 x log2(1 + 10^5.9) = 19.5994 Mbit/s
    # upload: 32 Mbit / rate = 1.632705 s, x 0.1 W = 0.1632705 J
    # computing: 125,440 x 10 x 100 cycles at 1 GHz = 0.12544 s, x 1e-28 x (1e9)^2 = 0.012544 J
    links = edge_of(devices=1, **IDENTICAL).observe(1)
    assert links.snr == pytest.approx([10**5.9])
    assert links.rate_bps == pytest.approx([19.5994e6], rel=1e-5)
    assert links.upload_seconds == pytest.approx([1.632705], rel=1e-5)
    assert links.upload_joules == pytest.approx([0.1632705], rel=1e-5)
    assert links.compute_seconds == pytest.approx([0.12544])
    assert links.compute_joules == pytest.approx([0.012544])
    assert links.total_seconds == pytest.approx([1.632705 + 0.12544], rel=1e-5)


def test_limits_are_the_times_at_the_ends_of_the_cpu_and_power_ranges():
    # one device of 12,544,000 x 10 cycles: 0.12544 s at 1 GHz, a fourth at 4 GHz; SNR 59 dB at 20 dBm, 29 dB at -10 dBm
    edge = edge_of(devices=1, **{**IDENTICAL, "power_min_dbm": -10.0, "cpu_max_hz": 4e9})
    limits = edge.observe(1).limits
    assert limits.compute_shortest == pytest.approx([0.12544 / 4])
    assert limits.compute_longest == pytest.approx([0.12544])
    assert limits.upload_shortest == pytest.approx([1.632705], rel=1e-5)
    assert limits.upload_longest == pytest.approx([32 / math.log2(1 + 10**2.9)], rel=1e-5)


edges = st.fixed_dictionaries(
    {
        "subchannel_hz": st.floats(1e4, 1e7),
        "noise": st.sampled_from(["thermal", "paper-text", "paper-table"]),
        "noise_figure_db": st.floats(0.0, 20.0),
        "logarithm": st.sampled_from(["log2", "ln"]),
        "fading": st.sampled_from(["rayleigh", "none"]),
        "availability": st.sampled_from(["always", "bernoulli"]),
    }
)


@given(edges, st.integers(1, 5))
def test_upload_time_as_a_function_of_bandwidth_and_power_agrees_with_the_links(settings, round_):
    links = edge_of(round_, **settings).observe(round_)
    uplink, limits = links.uplink, links.limits
    width = settings["subchannel_hz"]
    assert uplink.seconds(width, uplink.power_w) == pytest.approx(links.upload_seconds, rel=1e-6)
    assert uplink.seconds(width, uplink.power_max_w) == pytest.approx(limits.upload_shortest, rel=1e-6)
    assert uplink.seconds(width, uplink.power_min_w) == pytest.approx(limits.upload_longest, rel=1e-6)
    few = np.arange(0, round_, 2)
    assert np.array_equal(uplink.of(few).seconds(width, 0.01), uplink.seconds(width, 0.01)[few])


@given(edges, st.floats(1.1, 100.0))
def test_an_edge_with_wider_sub_channels_says_what_this_one_says_of_a_larger_bandwidth(settings, wider):
    changed = {**settings, "subchannel_hz": wider * settings["subchannel_hz"]}
    changed["bandwidth_hz"] = 10 * changed["subchannel_hz"]
    uplink, other = edge_of(**settings).observe(1).uplink, edge_of(**changed).observe(1)
    found = uplink.seconds(changed["subchannel_hz"], uplink.power_w)
    assert found == pytest.approx(other.upload_seconds, rel=1e-6)
    # more bandwidth at the same power never takes longer, and gains at most in proportion
    before = uplink.seconds(settings["subchannel_hz"], uplink.power_w)
    there = np.isfinite(before)
    assert (found[there] <= before[there] * (1 + 1e-9)).all()
    assert (found[there] >= before[there] / wider * (1 - 1e-9)).all()


@pytest.mark.parametrize(("threshold_db", "within_reach"), [(58.9, True), (59.1, False)])
def test_within_reach_means_at_or_above_the_snr_threshold(threshold_db, within_reach):
    links = edge_of(reachable_snr_db=threshold_db, **IDENTICAL).observe(1)  # 59 dB, as above
    assert (links.reachable == within_reach).all()


@pytest.mark.parametrize(
    ("bandwidth_hz", "subchannel_hz", "count"), [(10e6, 1e6, 10), (10e6, 3e6, 3), (0.3, 0.1, 3), (1e6, 1e6, 1)]
)
def test_subchannels_are_the_whole_ones_that_fit(bandwidth_hz, subchannel_hz, count):
    assert edge_of(bandwidth_hz=bandwidth_hz, subchannel_hz=subchannel_hz).subchannels == count


def test_links_of_a_device_do_not_depend_on_how_many_devices_there_are():
    few, many = (vars(edge_of(devices=count).observe(3)) for count in (5, 50))
    few, many = ({**vars(links.pop("limits")), **vars(links.pop("uplink")), **links} for links in (few, many))
    for name in ("noise_w", "noise_w_per_hz", "model_bits", "bits_per_nat", "power_min_w", "power_max_w"):
        assert few.pop(name) == many[name]
    assert (few.pop("subchannel_hz"), few.pop("bandwidth_hz")) == (1e6, 10e6)
    for name, values in few.items():
        assert np.array_equal(values, many[name][:5]), name


def test_links_change_from_round_to_round_and_repeat_for_the_same_round():
    edge = edge_of()
    second, first = edge.observe(2), edge.observe(1)
    assert (first.snr != second.snr).all()
    assert np.array_equal(second.snr, edge_of().observe(2).snr)
    assert np.array_equal(first.compute_seconds, second.compute_seconds)


def test_another_seed_gives_other_devices_and_other_fading():
    one, other = edge_of(seed=1), edge_of(seed=2)
    assert (one.devices.distance_m != other.devices.distance_m).all()
    fading = [(edge.observe(1).snr / edge.observe(2).snr) for edge in (one, other)]
    assert (fading[0] != fading[1]).all()


def test_broadcast_is_free_or_one_model_after_the_other_at_the_downlink_rate():
    assert edge_of().broadcast_seconds(3) == 0.0
    assert edge_of(downlink_bps=8e6).broadcast_seconds(3) == pytest.approx(12.0)  # 3 x 32 Mbit / 8 Mbit/s


def test_the_mean_rate_is_the_rate_averaged_over_the_fading():
    edge = edge_of(devices=8)
    drawn = np.mean([edge.observe(round_).rate_bps for round_ in range(1, 3001)], axis=0)
    assert edge.observe(1).mean_rate_bps == pytest.approx(drawn, rel=0.05)
    still = edge_of(fading="none").observe(1)
    assert np.array_equal(still.mean_rate_bps, still.rate_bps)
    faint = edge_of(path_gain_db=-200.0).observe(1)  # SNR s ~ 0: E[ln(1 + sX)] is s, and so is ln(1 + s)
    assert faint.mean_rate_bps == pytest.approx(
        edge_of(path_gain_db=-200.0, fading="none").observe(1).rate_bps, rel=1e-6
    )


def test_a_device_that_is_away_carries_nothing():
    links = edge_of(availability="bernoulli", availability_share=0.5).observe(1)
    assert 0 < links.away.sum() < 20
    assert np.array_equal(np.isinf(links.upload_seconds), links.away)
    assert not links.reachable[links.away].any()


def test_uploads_are_lost_in_fades_deeper_than_the_outage():
    # P(X < 0.1) = 1 - e^-0.1 = 9.5 %; 100 rounds of 20: standard deviation 0.7 %
    lost = [edge_of(outage_db=10.0).observe(round_).lost for round_ in range(1, 101)]
    assert np.mean(lost) == pytest.approx(0.095, abs=0.025)
    assert not edge_of().observe(1).lost.any()


def test_defaults_raise_no_eyebrow():
    assert warnings_of() == []


def test_the_papers_noise_is_called_out_with_its_snr_and_its_days():
    # 20 dBm - 75 dB + 10 dBm = -45 dB; 1e6 x log2(1 + 10^-4.5) = 45.62 bit/s; 32 Mbit / 45.62 = 701,400 s = 8.1 days
    (warning,) = warnings_of(noise="paper-table", **IDENTICAL)
    assert warning.startswith("median SNR -45 dB: a 32 Mbit upload takes 8 days")
    assert 'edge.noise = "thermal"' in warning


@pytest.mark.parametrize(("noise", "noise_dbm"), [("paper-text", -30.0), ("paper-table", -10.0)])
def test_the_papers_noise_is_called_out_for_a_usual_population(noise, noise_dbm):
    (warning,) = warnings_of(noise=noise)
    snr_db = float(re.search(r"median SNR (-\d+) dB", warning)[1])
    # a middling device: 5 dBm at 60 m (-35 - 40 log10(30) = -94 dB), fading ln 2 = -1.6 dB
    assert snr_db == pytest.approx(5.0 - 94.1 - 1.6 - noise_dbm, abs=6.0)
    assert "days" in warning


def test_cycles_per_sample_are_called_out():
    (warning,) = warnings_of(cycles_per="sample", **IDENTICAL)
    assert warning.startswith("median computing time 20 µs")  # 20 x 10 x 100 / 1 GHz
    assert 'edge.cycles_per = "bit"' in warning


def test_links_that_carry_nothing_are_counted():
    nothing = EdgeConfig().model_copy(update={"path_gain_db": -4000.0})  # 10^-400 is 0 in floating point
    edge = SimulatedEdge(Config().model_copy(update={"edge": nothing}), np.full(3, 100), 28 * 28 * 8, PARAMETERS)
    links = edge.observe(1)
    assert np.isinf(links.upload_seconds).all()
    assert not links.reachable.any()
    assert "3 of 3 links carry nothing at all" in plausibility(links, edge.model_bits)[-1]
    away = replace(links, absent=np.array([True, False, True]))
    assert "1 of 1 links carry nothing at all" in plausibility(away, edge.model_bits)[-1]
    assert plausibility(replace(links, absent=np.full(3, True)), edge.model_bits) == [
        "no device is there in this round"
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (math.inf, "forever"),
        (214 * 86400.0, "214 days"),
        (3 * 86400.0, "3 days"),
        (2 * 86400.0, "48.0 h"),
        (3 * 3600.0, "3.0 h"),
        (2 * 3600.0, "120.0 min"),
        (180.0, "3.0 min"),
        (179.0, "179 s"),
        (39.6, "39.6 s"),
        (1.0, "1 s"),
        (0.9997, "1 s"),
        (0.999, "999 ms"),
        (0.012, "12 ms"),
        (0.0009997, "1 ms"),
        (3e-6, "3 µs"),
    ],
)
def test_durations_a_person_can_read(seconds, text):
    assert duration(seconds) == text
