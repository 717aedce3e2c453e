"""The uplink: path gain, fading, noise, and the rate of eq. (7).

The paper calls α = g0 (d0/d)^4 a path loss and then writes |h|²; here g is a *power* gain and |h|² = g × fading,
never g².
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import exp1

from fedclade.config import EdgeConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.random import generator
from fedclade.edge.places import Places, Serving, Shadowing
from fedclade.edge.traces import Trace

THERMAL_DBM_PER_HZ = -174.0
MOST_NATS = 700.0  # of a rate per hertz: e to the power of more is no number


@dataclass(frozen=True)
class Gains:
    """What every link is worth in one round: |h|² = ``gain`` × ``fading``."""

    gain: Floats
    fading: Floats
    faded_to: Floats  # share of its usual gain that a link has this round: what an outage is told by
    mean_rate_bps: Floats | None = None  # what the link carries on average over rounds; None: over the fading
    stations: tuple[Ints, Ints] | None = None  # that served each device the round before, and serve it; None: one


class Channel(Protocol):
    """Where the gains come from: drawn, or a trace."""

    def gains(self, round_: int, power_w: Floats) -> Gains:
        """The gains of one round, for devices that send with these powers."""
        ...


class DrawnChannel:
    """Gains that fall with the distance and behind obstacles, and fading drawn anew each round.

    ``distance_m`` is how far each device is from the base station in the middle at first.
    """

    def __init__(self, config: EdgeConfig, distance_m: Floats, seed: int) -> None:
        self._config, self._seed = config, seed
        self.places = Places(config, distance_m, seed)
        self._shadowing = [
            Shadowing(config, self.places, len(distance_m), seed, station)
            for station in range(config.stations if config.shadowing_db else 0)
        ]
        self._serving = Serving(config, self._by_station) if config.stations > 1 else None

    def gains(self, round_: int, power_w: Floats) -> Gains:
        """A function of seed and round."""
        by_station = self._by_station(round_)
        fading = fading_power(self._config, len(by_station), round_, self._seed)
        if self._serving is None:
            return Gains(by_station[:, 0], fading, fading)
        before, now = self._serving.station(max(1, round_ - 1)), self._serving.station(round_)
        gain = by_station[np.arange(len(now)), now]
        return Gains(gain, fading, fading, stations=(before, now))

    def _by_station(self, round_: int) -> Floats:
        """The gains of a round to every base station, K×S, without fading."""
        config, places = self._config, self.places
        gains = [path_gain(config, places.distance_m(round_, station)) for station in range(config.stations)]
        shadowed = zip(gains, self._shadowing, strict=True) if self._shadowing else ()
        return np.stack([gain * shadow.gain(round_) for gain, shadow in shadowed] or gains, axis=1)


class TracedChannel:
    """Gains as a trace has them, with whatever fading is in them; nothing is drawn.

    A rate is what a device's own power carries over one sub-channel. It is turned into the gain that gives this rate,
    so that rules that change power and bandwidth know what that would do.
    """

    def __init__(self, config: EdgeConfig, trace: Trace) -> None:
        self._config, self._trace = config, trace
        ((self._kind, self._values),) = trace.columns.items()
        if self._kind == "rate_bps" and self._nats(self._values).max() > MOST_NATS:
            raise UserError(
                f"{trace.path}: column rate_bps: {self._values.max():g} bit/s is too much for one sub-channel of "
                f"edge.subchannel_hz = {config.subchannel_hz:g}; must be at most "
                f"{config.subchannel_hz * MOST_NATS / math.log(2.0):.3g}, or the sub-channel wider"
            )

    def gains(self, round_: int, power_w: Floats) -> Gains:
        """The round of the trace that is played in a round of the run."""
        noise, trace = noise_watts(self._config), self._trace
        gain = self._gain(power_w[trace.device], noise)
        mean = trace.mean(gain)
        mean_rate = trace.mean(rate_bps(self._config, signal_to_noise(power_w[trace.device], gain, noise)))
        now = gain[trace.rows(round_)]
        faded_to = np.divide(now, mean, out=np.ones_like(now), where=mean > 0)
        return Gains(now, np.ones_like(now), faded_to, mean_rate)

    def _gain(self, power_w: Floats, noise_w: float) -> Floats:
        """Of every row of the trace, whose devices send with these powers."""
        if self._kind == "gain":
            return self._values
        if self._kind == "gain_db":
            return 10.0 ** (self._values / 10.0)
        return np.expm1(self._nats(self._values)) * noise_w / power_w

    def _nats(self, rate: Floats) -> Floats:
        """The inverse of ``rate_bps``: ln(1 + SNR)."""
        per_hertz = rate / self._config.subchannel_hz
        return per_hertz * math.log(2.0) if self._config.logarithm == "log2" else per_hertz


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
    """Eq. (7) averaged over the fading."""
    return rate_bps(config, mean_snr if config.fading == "none" else np.expm1(mean_nats(mean_snr)))


def mean_nats(mean_snr: Floats) -> Floats:
    """E[ln(1 + s·X)] = e^(1/s) E1(1/s) for X ~ Exp(1): what a link under Rayleigh fading carries in a symbol."""
    inverse = np.divide(1.0, mean_snr, out=np.full_like(mean_snr, np.inf), where=mean_snr > 0)
    near = np.minimum(inverse, 500.0)
    return np.where(inverse < 500.0, np.exp(near) * exp1(near), 1.0 / (inverse + 1.0))
