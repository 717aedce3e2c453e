"""The devices' traits, drawn once per run or traced: where they stand, how loud they send, how fast they compute."""

from dataclasses import dataclass, replace

import numpy as np

from fedclade.config import EdgeConfig
from fedclade.core.arrays import Bools, Floats
from fedclade.core.random import generator
from fedclade.edge.traces import Trace


@dataclass(frozen=True)
class Devices:
    """One entry per device."""

    distance_m: Floats
    power_w: Floats
    cpu_hz: Floats


class TracedDevices:
    """Devices of which a trace tells, round by round, how fast they compute, whether they are there, or both.

    Parameters
    ----------
    drawn : Devices
        The traits that the trace does not tell.
    trace : Trace
        With the columns ``cpu_hz`` or ``seconds_per_sample``, ``available``, or several of them.
    cycles_per_sample : float
        What training on one sample once takes: turns seconds per sample into a clock.
    """

    def __init__(self, drawn: Devices, trace: Trace, cycles_per_sample: float) -> None:
        self._drawn, self._trace, columns = drawn, trace, trace.columns
        self._available = columns.get("available")
        self._cpu_hz = columns.get("cpu_hz")
        if "seconds_per_sample" in columns:
            self._cpu_hz = cycles_per_sample / columns["seconds_per_sample"]
        self.tells_speed = self._cpu_hz is not None

    def at(self, round_: int) -> Devices:
        """The traits in one round."""
        if self._cpu_hz is None:
            return self._drawn
        return replace(self._drawn, cpu_hz=self._cpu_hz[self._trace.rows(round_)])

    def absent(self, round_: int) -> Bools:
        """Who is not there in one round; nobody where the trace does not tell."""
        if self._available is None:
            return np.zeros(len(self._drawn.cpu_hz), dtype=bool)
        return np.asarray(self._available[self._trace.rows(round_)] == 0)


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
