"""Path gain, fading, noise and rate, against numbers worked out by hand."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from fedclade.config import EdgeConfig
from fedclade.edge import channel
from fedclade.edge.devices import draw_devices

DEFAULTS = EdgeConfig()
DRAWS = 20_000


def test_path_gain_falls_with_the_fourth_power_of_the_distance():
    # g0 = -35 dB = 10^-3.5 = 3.16228e-4 at d0 = 2 m
    # 20 m: (2/20)^4 = 1e-4, so 3.16228e-8;  100 m: (2/100)^4 = 1.6e-7, so 5.05964e-11
    gain = channel.path_gain(DEFAULTS, np.array([2.0, 20.0, 100.0]))
    assert gain == pytest.approx([3.16228e-4, 3.16228e-8, 5.05964e-11], rel=1e-5, abs=0.0)


@pytest.mark.parametrize(
    ("settings", "watts"),
    [
        ({}, 10**-14.4),  # -174 dBm/Hz + 60 dB (1 MHz) = -114 dBm = -144 dBW
        ({"subchannel_hz": 2e6}, 2 * 10**-14.4),
        ({"noise_figure_db": 10.0}, 10**-13.4),
        ({"noise": "paper-text"}, 1e-6),
        ({"noise": "paper-table"}, 1e-4),  # -10 dBm = 0.1 mW
    ],
)
def test_noise_over_one_subchannel(settings, watts):
    assert channel.noise_watts(EdgeConfig(**settings)) == pytest.approx(watts, abs=0.0)


def test_signal_to_noise_is_power_times_gain_over_noise():
    # 0.1 W x 2e-9 / 1e-12 W = 200: the gain counts once, not squared
    assert channel.signal_to_noise(np.array([0.1]), np.array([2e-9]), 1e-12) == pytest.approx([200.0])


def test_rate_is_subchannel_times_log2_or_ln_of_one_plus_snr():
    # log2(1 + 3) = 2, log2(1 + 0) = 0; ln(1 + (e - 1)) = 1
    assert channel.rate_bps(DEFAULTS, np.array([3.0, 0.0])) == pytest.approx([2e6, 0.0])
    natural = EdgeConfig(logarithm="ln", subchannel_hz=5e5)
    assert channel.rate_bps(natural, np.array([math.e - 1.0])) == pytest.approx([5e5])


def test_rate_of_a_very_weak_link_is_not_rounded_away():
    # log2(1 + x) = x / ln 2 for small x; 1e6 x 1e-18 / 0.693147 = 1.442695e-12
    assert channel.rate_bps(DEFAULTS, np.array([1e-18])) == pytest.approx([1.442695e-12], rel=1e-6, abs=0.0)


def test_rayleigh_fading_power_is_exponential_with_mean_one():
    power = channel.fading_power(DEFAULTS, DRAWS, 1, seed=1)
    assert power.mean() == pytest.approx(1.0, abs=0.03)
    assert kstest(power, "expon").statistic < 0.02


def test_fading_none_leaves_the_gain_alone():
    assert channel.fading_power(EdgeConfig(fading="none"), 3, 1, seed=1).tolist() == [1.0, 1.0, 1.0]


def test_device_traits_are_uniform_within_their_limits_and_powers_in_dbm():
    devices = draw_devices(DEFAULTS, DRAWS, seed=1)
    dbm = 10.0 * np.log10(devices.power_w / 1e-3)
    for values, low, high in (
        (dbm, -10.0, 20.0),
        (devices.distance_m, 20.0, 100.0),
        (devices.cpu_hz, 1e9, 9e9),
    ):
        assert kstest((values - low) / (high - low), "uniform").statistic < 0.02
        assert values.min() >= low - 1e-9
        assert values.max() <= high + 1e-9


def test_device_traits_are_drawn_independently_of_each_other():
    devices = draw_devices(DEFAULTS, DRAWS, seed=1)
    correlation = np.corrcoef([devices.distance_m, np.log(devices.power_w), devices.cpu_hz])
    assert np.abs(correlation - np.eye(3)).max() < 0.03
