"""What each device's link is worth in one round, and what computing costs it."""

from dataclasses import dataclass

from fedclade.core.arrays import Bools, Floats


@dataclass(frozen=True)
class Limits:
    """Each device's times at the ends of its CPU and power ranges."""

    compute_shortest: Floats
    compute_longest: Floats
    upload_shortest: Floats
    upload_longest: Floats


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
    lost: Bools | None = None  # would upload in vain; None: nobody

    @property
    def total_seconds(self) -> Floats:
        """Eq. (10): T_tot = T_cmp + T_trans."""
        return self.compute_seconds + self.upload_seconds
