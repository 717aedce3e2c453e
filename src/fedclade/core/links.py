"""What each device's link is worth in one round, and what computing costs it."""

from dataclasses import dataclass, replace

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Limits:
    """Each device's times at the ends of its CPU and power ranges."""

    compute_shortest: Floats
    compute_longest: Floats
    upload_shortest: Floats
    upload_longest: Floats


@dataclass(frozen=True)
class Uplink:
    """How long each device's upload takes at any bandwidth and power in one round: eqs. (7) and (8).

    A device that sends with ``power`` over ``bandwidth`` has the signal-to-noise ratio power · gain / noise, where the
    noise is ``noise_w`` + ``noise_w_per_hz`` · bandwidth: thermal noise grows with the bandwidth, the paper's literal
    values do not.
    """

    gain: Floats  # |h|² of each device; 0 where it is away
    power_w: Floats  # each device's given transmit power
    noise_w: float
    noise_w_per_hz: float
    model_bits: float  # ξ
    bits_per_nat: float  # 1 / ln 2 where the rate formula is written with log2, 1 where with ln
    power_min_w: float
    power_max_w: float
    subchannel_hz: float  # the bandwidth of one sub-channel, at which uploads are planned
    bandwidth_hz: float  # B: what all uploads that are under way at one moment share

    def of(self, devices: Ints) -> "Uplink":
        """Of these devices alone."""
        return replace(self, gain=self.gain[devices], power_w=self.power_w[devices])

    def seconds(self, bandwidth_hz: Floats | float, power_w: Floats | float) -> Floats:
        """Upload time of each device at these bandwidths and powers; infinite where the link carries nothing."""
        snr = power_w * self.gain / (self.noise_w + self.noise_w_per_hz * bandwidth_hz)
        rate = bandwidth_hz * self.bits_per_nat * np.log1p(snr)
        with np.errstate(over="ignore"):
            return np.divide(self.model_bits, rate, out=np.full_like(rate, np.inf), where=rate > 0)


@dataclass(frozen=True)
class Links:
    """One round's view of every device."""

    snr: Floats
    rate_bps: Floats
    compute_seconds: Floats
    upload_seconds: Floats
    compute_joules: Floats
    upload_joules: Floats
    reachable: Bools
    limits: Limits | None = None  # None: speed and power are what they are
    mean_rate_bps: Floats | None = None  # what the link carries on average over rounds; None: unknown
    away: Bools | None = None  # not there this round; None: everybody is
    absent: Bools | None = None  # away, and known to be before devices are selected; None: nobody
    lost: Bools | None = None  # would upload in vain; None: nobody
    station: Ints | None = None  # base station that serves each device; None: unknown
    station_before: Ints | None = None  # the same in the round before: where they differ, it was handed over
    uplink: Uplink | None = None  # upload time at any bandwidth and power; None: unknown, as where it is measured

    @property
    def total_seconds(self) -> Floats:
        """Eq. (10): T_tot = T_cmp + T_trans."""
        return self.compute_seconds + self.upload_seconds
