"""How far the models have come in the paper's terms: F of eq. (4) and the objective of its problem P1."""

import math
from typing import Literal

from fedclade.metrics.metric import metric
from fedclade.metrics.outcome import Outcome


def _told(outcome: Outcome, name: Literal["loss", "now", "least"]) -> float | None:
    """One number of the objective; None where nobody answered, or where a loss has grown beyond all numbers."""
    value = math.nan if outcome.objective is None else float(getattr(outcome.objective, name))
    return value if math.isfinite(value) else None


@metric("loss", "loss F", decimals=3, table=None, figure=None, every_round=True, curve="loss/mean")
def loss(outcome: Outcome) -> float | None:
    """F (eq. 4): the devices' test losses under their clusters' models, each weighted by its training data."""
    return _told(outcome, "loss")


@metric("objective", "ΣF", decimals=3, table=None, figure=None)
def objective(outcome: Outcome) -> float | None:
    """F of every cluster's model, added up over the clusters; grows with their number."""
    return _told(outcome, "now")


@metric("objective_best", "P1: ΣF, best rounds", decimals=3, table=None, figure=None, every_round=True, curve="loss/P1")
def objective_best(outcome: Outcome) -> float | None:
    """P1's objective: the same with the best model that each cluster has had (eq. 16)."""
    return _told(outcome, "least")
