"""Whether devices whose data changed were followed; without a drift there are no such numbers."""

import numpy as np

from fedclade.core.task import ACCURACY, R2
from fedclade.metrics.metric import metric
from fedclade.metrics.outcome import Outcome


@metric("drift_devices", "devices that drifted", table=None, figure=None)
def drift_devices(outcome: Outcome) -> int | None:
    """Devices whose data changed during the run."""
    return None if outcome.drift is None else len(outcome.drift.rounds)


@metric("drift_followed", "drift followed (%)", factor=100, table=None, figure=None)
def drift_followed(outcome: Outcome) -> float | None:
    """Share of them that are in a cluster of their new group at the end: most others in it are of that group.

    None where nobody knows the groups.
    """
    return None if outcome.drift is None or not outcome.drift.known else float(outcome.drift.at_home.mean())


@metric("drift_rounds", "drift followed after (rounds)", table=None, figure=None)
def drift_rounds(outcome: Outcome) -> float | None:
    """Rounds from the change until a device was first in such a cluster, on average over those that ever were."""
    if outcome.drift is None or np.isnan(outcome.drift.rounds).all():
        return None
    return float(np.nanmean(outcome.drift.rounds))


@metric("drift_accuracy_lost", "lost by drift (points)", scored="accuracy", factor=100, table=None, figure=None)
def drift_accuracy_lost(outcome: Outcome) -> float | None:
    """Accuracy that they were short of until then, against the round before the change, on average."""
    lost = None if outcome.drift is None or outcome.scored != ACCURACY else outcome.drift.lost
    return None if lost is None else float(lost.mean())


@metric("drift_r2_lost", "R² lost by drift", scored="r2", decimals=3, table=None, figure=None)
def drift_r2_lost(outcome: Outcome) -> float | None:
    """R² that they were short of until then, against the round before the change, on average."""
    lost = None if outcome.drift is None or outcome.scored != R2 else outcome.drift.lost
    return None if lost is None else float(lost.mean())
