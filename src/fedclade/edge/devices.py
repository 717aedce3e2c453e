"""The devices' fixed traits, drawn once per run: where they stand, how loud they send, how fast they compute."""

from dataclasses import dataclass

from fedclade.config import EdgeConfig
from fedclade.core.arrays import Floats
from fedclade.core.random import generator


@dataclass(frozen=True)
class Devices:
    """One entry per device."""

    distance_m: Floats
    power_w: Floats
    cpu_hz: Floats


def draw_devices(config: EdgeConfig, count: int, seed: int) -> Devices:
    """Distances and CPU speeds uniform, transmit powers uniform in dBm."""
    return Devices(
        distance_m=generator(seed, "distance").uniform(config.distance_min_m, config.distance_max_m, count),
        power_w=dbm_to_watts(generator(seed, "power").uniform(config.power_min_dbm, config.power_max_dbm, count)),
        cpu_hz=generator(seed, "cpu").uniform(config.cpu_min_hz, config.cpu_max_hz, count),
    )


def dbm_to_watts(dbm: Floats) -> Floats:
    """0 dBm is 1 mW."""
    return 1e-3 * 10.0 ** (dbm / 10.0)
