"""How well, and how evenly, devices are served that have numbers instead of classes: by R²."""

from fedclade.core.task import R2
from fedclade.metrics.fairness import gap, worst_tenth
from fedclade.metrics.metric import metric
from fedclade.metrics.outcome import Outcome


@metric(
    "r2_min",
    "worst device (R²)",
    scored="r2",
    decimals=3,
    table="accuracy",
    figure="accuracy",
    every_round=True,
    curve="r2/min",
)
def r2_min(outcome: Outcome) -> float:
    """R² of the worst-served device under its cluster's model: 1 is perfect, 0 as good as the mean of all targets."""
    return float(outcome.known_score(R2).min())


@metric(
    "r2_mean",
    "mean device (R²)",
    scored="r2",
    decimals=3,
    table="accuracy",
    figure="accuracy",
    every_round=True,
    curve="r2/mean",
)
def r2_mean(outcome: Outcome) -> float:
    """Mean R² of the devices under their clusters' models."""
    return float(outcome.known_score(R2).mean())


@metric(
    "r2_max",
    "best device (R²)",
    scored="r2",
    decimals=3,
    table="accuracy",
    figure="accuracy",
    every_round=True,
    curve="r2/max",
)
def r2_max(outcome: Outcome) -> float:
    """R² of the best-served device under its cluster's model."""
    return float(outcome.known_score(R2).max())


@metric("r2_gap", "gap (R²)", scored="r2", decimals=3, table="fairness", figure="fairness")
def r2_gap(outcome: Outcome) -> float:
    """R² of the best-served device minus that of the worst-served."""
    return gap(outcome.known_score(R2))


@metric("r2_worst_tenth", "worst 10 % (R²)", scored="r2", decimals=3, table="fairness", figure="fairness")
def r2_worst_tenth(outcome: Outcome) -> float:
    """Mean R² of the worst-served tenth of the devices, at least one."""
    return worst_tenth(outcome.known_score(R2))


@metric("conventional_r2_min", "worst device, one model (R²)", scored="r2", decimals=3, table=None, figure=None)
def conventional_r2_min(outcome: Outcome) -> float:
    """R² of the worst-served device under one model for all."""
    return float(outcome.known_score(R2, "conventional_score").min())


@metric(
    "conventional_r2_mean",
    "mean device, one model (R²)",
    scored="r2",
    decimals=3,
    table=None,
    figure=None,
    every_round=True,
    curve="r2/one_model_mean",
)
def conventional_r2_mean(outcome: Outcome) -> float:
    """Mean R² of the devices under one model for all."""
    return float(outcome.known_score(R2, "conventional_score").mean())
