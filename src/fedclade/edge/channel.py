"""The uplink: path gain, fading, noise, and the rate of eq. (7).

The paper calls α = g0 (d0/d)^4 a path loss and then writes |h|²; here g is a *power* gain and |h|² = g × fading,
never g².
"""

import math

import numpy as np
from scipy.special import exp1

from fedclade.config import EdgeConfig
from fedclade.core.arrays import Floats
from fedclade.core.random import generator

THERMAL_DBM_PER_HZ = -174.0


def path_gain(config: EdgeConfig, distance_m: Floats) -> Floats:
    """g = g0 (d0/d)^exponent, as a power ratio."""
    g0: float = 10.0 ** (config.path_gain_db / 10.0)
    return np.asarray(g0 * (config.reference_distance_m / distance_m) ** config.path_exponent)


def fading_power(config: EdgeConfig, count: int, round_: int, seed: int) -> Floats:
    """Rayleigh block fading: the power of the channel is exponential with mean 1, new each round."""
    if config.fading == "none":
        return np.ones(count)
    return generator(seed, "fading", round_).exponential(1.0, count)


def noise_watts(config: EdgeConfig) -> float:
    """N0 over one sub-channel: thermal, or one of the two values the paper gives."""
    if config.noise == "paper-text":
        return 1e-6
    if config.noise == "paper-table":
        return 1e-4  # -10 dBm
    dbm = THERMAL_DBM_PER_HZ + 10.0 * math.log10(config.subchannel_hz) + config.noise_figure_db
    return float(1e-3 * 10.0 ** (dbm / 10.0))


def noise_by_bandwidth(config: EdgeConfig) -> tuple[float, float]:
    """The noise in two parts: watts over any bandwidth, and watts per hertz of it.

    Thermal noise has the second part alone. The paper gives a number of watts and no bandwidth that it is for.
    """
    if config.noise == "thermal":
        return 0.0, float(1e-3 * 10.0 ** ((THERMAL_DBM_PER_HZ + config.noise_figure_db) / 10.0))
    return noise_watts(config), 0.0


def signal_to_noise(power_w: Floats, gain: Floats, noise_w: float) -> Floats:
    """P |h|² / N0."""
    return power_w * gain / noise_w


def rate_bps(config: EdgeConfig, snr: Floats) -> Floats:
    """Eq. (7): B_sub · log2(1 + SNR), or ln as the paper writes."""
    nats = np.log1p(snr)
    return config.subchannel_hz * (nats / math.log(2.0) if config.logarithm == "log2" else nats)


def mean_rate_bps(config: EdgeConfig, mean_snr: Floats) -> Floats:
    """Eq. (7) averaged over the fading: E[ln(1 + s·X)] = e^(1/s) E1(1/s) for X ~ Exp(1)."""
    if config.fading == "none":
        return rate_bps(config, mean_snr)
    inverse = np.divide(1.0, mean_snr, out=np.full_like(mean_snr, np.inf), where=mean_snr > 0)
    near = np.minimum(inverse, 500.0)
    nats = np.where(inverse < 500.0, np.exp(near) * exp1(near), 1.0 / (inverse + 1.0))
    return rate_bps(config, np.expm1(nats))
