"""Transmit power and CPU speed that are drawn anew in every round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.config import Config, EdgeConfig, RunConfig
from fedclade.edge import SimulatedEdge, draw_devices
from fedclade.edge.vary import varied

kinds = st.sampled_from(["power", "cpu", "both"])
rounds, seeds = st.integers(1, 500), st.integers(0, 1000)


def edge_of(seed=1, devices=12, **settings):
    config = Config(run=RunConfig(seed=seed), edge=EdgeConfig(**settings))
    return SimulatedEdge(config, np.full(devices, 100), 28 * 28 * 8, 1_000_000)


def test_devices_keep_what_they_have_by_default():
    config = EdgeConfig()
    devices = draw_devices(config, 5, 1)
    assert config.vary == "none"
    assert varied(config, devices, 7, 1) is devices


@given(kinds, rounds, seeds)
def test_only_what_varies_is_drawn_anew_and_within_its_range(kind, round_, seed):
    config = EdgeConfig(vary=kind)
    devices = draw_devices(config, 30, seed)
    now = varied(config, devices, round_, seed)
    assert (now.distance_m == devices.distance_m).all()
    assert (now.power_w == devices.power_w).all() == (kind == "cpu")
    assert (now.cpu_hz == devices.cpu_hz).all() == (kind == "power")
    assert (now.power_w >= 1e-4 * (1 - 1e-12)).all()  # -10 dBm
    assert (now.power_w <= 0.1 * (1 + 1e-12)).all()  # 20 dBm
    assert ((now.cpu_hz >= 1e9) & (now.cpu_hz <= 9e9)).all()


@given(kinds, st.lists(rounds, min_size=2, max_size=4, unique=True), seeds)
def test_a_round_depends_on_seed_and_number_alone(kind, visited, seed):
    edge = edge_of(seed, vary=kind)
    seen = {round_: edge.observe(round_) for round_ in visited}
    for round_ in reversed(visited):
        again = edge_of(seed, vary=kind).observe(round_)
        for name in ("rate_bps", "compute_seconds", "upload_seconds", "compute_joules", "upload_joules"):
            assert (getattr(again, name) == getattr(seen[round_], name)).all(), name
    one, other = (seen[round_] for round_ in visited[:2])
    assert (one.compute_seconds == other.compute_seconds).all() == (kind == "power")


@given(kinds, rounds, seeds)
def test_times_stay_between_those_at_the_ends_of_the_ranges(kind, round_, seed):
    links = edge_of(seed, vary=kind).observe(round_)
    limits, slack = links.limits, 1 + 1e-9
    assert (limits.compute_shortest <= links.compute_seconds * slack).all()
    assert (links.compute_seconds <= limits.compute_longest * slack).all()
    assert (limits.upload_shortest <= links.upload_seconds * slack).all()
    assert (links.upload_seconds <= limits.upload_longest * slack).all()
    uplink = links.uplink
    np.testing.assert_allclose(uplink.seconds(uplink.subchannel_hz, uplink.power_w), links.upload_seconds, rtol=1e-9)


@pytest.mark.parametrize("fading", ["none", "rayleigh"])
def test_what_a_link_carries_on_average_is_the_mean_of_many_rounds(fading):
    edge = edge_of(devices=3, vary="power", fading=fading)
    expected = edge.observe(1).mean_rate_bps
    seen = np.mean([edge.observe(round_).rate_bps for round_ in range(1, 4001)], axis=0)
    np.testing.assert_allclose(seen, expected, rtol=0.03)
