"""Devices whose transmit power and CPU speed are not the same in every round: the paper's P_r^k has an r.

A battery saver, other apps or heat change what a device can give. Each round is drawn by itself, uniformly from the
range of ``draw_devices``: there is no memory from one round to the next.
"""

from dataclasses import replace

import numpy as np

from fedclade.config import EdgeConfig
from fedclade.core.arrays import Floats
from fedclade.core.random import generator
from fedclade.edge import channel
from fedclade.edge.devices import Devices, dbm_to_watts

NODES = 16  # of the quadrature over the powers: exact to 1e-6 of the rate over 30 dB


def varied(config: EdgeConfig, devices: Devices, round_: int, seed: int) -> Devices:
    """The devices as they are in one round; ``devices`` themselves where nothing varies."""
    count = len(devices.power_w)
    if config.vary in ("power", "both"):
        dbm = generator(seed, "power", round_).uniform(config.power_min_dbm, config.power_max_dbm, count)
        devices = replace(devices, power_w=dbm_to_watts(dbm))
    if config.vary in ("cpu", "both"):
        hz = generator(seed, "cpu", round_).uniform(config.cpu_min_hz, config.cpu_max_hz, count)
        devices = replace(devices, cpu_hz=hz)
    return devices


def mean_rate_bps(config: EdgeConfig, devices: Devices, gain: Floats) -> Floats:
    """What each device's link carries on average over rounds: over the fading and, where it varies, the power."""
    noise = channel.noise_watts(config)
    if config.vary not in ("power", "both"):
        return channel.mean_rate_bps(config, channel.signal_to_noise(devices.power_w, gain, noise))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    middle, half = (config.power_max_dbm + config.power_min_dbm) / 2, (config.power_max_dbm - config.power_min_dbm) / 2
    powers = dbm_to_watts(middle + half * nodes)
    rates = [channel.mean_rate_bps(config, channel.signal_to_noise(power, gain, noise)) for power in powers]
    return np.asarray(weights @ np.array(rates) / 2.0)
