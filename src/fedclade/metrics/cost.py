"""What a run cost on the air and in the devices."""

from fedclade.metrics.metric import metric
from fedclade.metrics.outcome import Outcome


@metric("simulated_seconds", "simulated time (s)", decimals=None, table="cost", figure="fairness")
def simulated_seconds(outcome: Outcome) -> float:
    """Seconds that all rounds took on the simulated clock."""
    return outcome.seconds


@metric("energy_joules", "energy (J)", decimals=None, table="cost", figure="fairness")
def energy_joules(outcome: Outcome) -> float:
    """What all devices spent on computing and uploading."""
    return float(outcome.energy_joules.sum())


@metric("uploads", "uploads", table=None, figure=None)
def uploads(outcome: Outcome) -> int:
    """Models that devices uploaded."""
    return int(outcome.participation.sum())


@metric("upload_bits", "uploaded (Mbit)", factor=1e-6, decimals=None, table="cost", figure="fairness")
def upload_bits(outcome: Outcome) -> float:
    """Bits that all devices sent: updates, also those that were lost, and answers that are no smaller than models."""
    return outcome.uplink_bits


@metric("downlink_bits", "multicast (Mbit)", factor=1e-6, decimals=None, table="cost", figure=None)
def downlink_bits(outcome: Outcome) -> float:
    """Bits that were sent to devices: every model multicast, to train it or to be asked about it."""
    return outcome.downlink_bits
