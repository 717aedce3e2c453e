"""What a device spends: κ·cycles·f² for computing, P·T_trans for sending."""

from fedclade.core.arrays import Floats


def compute_joules(capacitance: float, cycles: Floats, cpu_hz: Floats) -> Floats:
    """The usual CMOS model: energy per cycle grows with the square of the clock."""
    return capacitance * cycles * cpu_hz**2


def upload_joules(power_w: Floats, seconds: Floats) -> Floats:
    """Transmit power for as long as the upload lasts."""
    return power_w * seconds
