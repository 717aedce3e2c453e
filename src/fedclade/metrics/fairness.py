"""How well, and how evenly, devices are served."""

import numpy as np

from fedclade.core.arrays import Floats
from fedclade.core.task import ACCURACY
from fedclade.metrics.metric import metric
from fedclade.metrics.outcome import Outcome

# -------------------------------------------------------------------------------- formulas


def gap(values: Floats) -> float:
    """Best minus worst."""
    return float(values.max() - values.min())


def worst_tenth(values: Floats) -> float:
    """Mean of the worst-served 10 % (at least one device)."""
    return float(np.sort(values)[: max(1, len(values) // 10)].mean())


def jain(values: Floats) -> float:
    """Jain's index (Σx)² / (n Σx²): 1 when all are equal, 1/n when one has everything; 1 for all zeros."""
    squares = float((values**2).sum())
    return 1.0 if squares == 0 else float(values.sum() ** 2 / (len(values) * squares))


# -------------------------------------------------------------------------------- metrics


@metric(
    "accuracy_min",
    "worst device (%)",
    scored="accuracy",
    factor=100,
    table="accuracy",
    figure="accuracy",
    every_round=True,
    curve="accuracy/min",
)
def accuracy_min(outcome: Outcome) -> float:
    """Test accuracy of the worst-served device under its cluster's model."""
    return float(outcome.known_accuracy.min())


@metric(
    "accuracy_mean",
    "mean device (%)",
    scored="accuracy",
    factor=100,
    table="accuracy",
    figure="accuracy",
    every_round=True,
    curve="accuracy/mean",
)
def accuracy_mean(outcome: Outcome) -> float:
    """Mean test accuracy of the devices under their clusters' models."""
    return float(outcome.known_accuracy.mean())


@metric("accuracy_tuned_mean", "mean device, tuned (%)", scored="accuracy", factor=100, table="accuracy", figure=None)
def accuracy_tuned_mean(outcome: Outcome) -> float | None:
    """Mean test accuracy after every device has trained its model on by itself (run.fine_tune); none if none did."""
    return None if outcome.tuned_score is None else float(outcome.known_score(which="tuned_score").mean())


@metric("accuracy_tuned_min", "worst device, tuned (%)", scored="accuracy", factor=100, table="accuracy", figure=None)
def accuracy_tuned_min(outcome: Outcome) -> float | None:
    """Test accuracy of the worst-served device after all have trained their models on by themselves (run.fine_tune)."""
    return None if outcome.tuned_score is None else float(outcome.known_score(which="tuned_score").min())


@metric(
    "accuracy_personal_mean", "mean device, own model (%)", scored="accuracy", factor=100, table="accuracy", figure=None
)
def accuracy_personal_mean(outcome: Outcome) -> float | None:
    """Mean test accuracy of the devices under their personal models (training.ditto); none if they have none."""
    return None if outcome.personal_score is None else float(outcome.known_score(which="personal_score").mean())


@metric(
    "accuracy_personal_min", "worst device, own model (%)", scored="accuracy", factor=100, table="accuracy", figure=None
)
def accuracy_personal_min(outcome: Outcome) -> float | None:
    """Test accuracy of the worst-served device under their personal models (training.ditto)."""
    return None if outcome.personal_score is None else float(outcome.known_score(which="personal_score").min())


@metric("accuracy_error", "error of the mean (%)", scored="accuracy", factor=100, decimals=2, table=None, figure=None)
def accuracy_error(outcome: Outcome) -> float | None:
    """Standard error of the mean accuracy, where only a sample of every cluster's devices was evaluated."""
    if outcome.asked is None or outcome.scored != ACCURACY:
        return None
    variance = 0.0
    for leaf in outcome.tree.leaves():
        members = np.array(leaf.devices, dtype=np.int64)
        seen = outcome.score[np.intersect1d(members, outcome.asked)]
        if len(seen) > 1:
            weight, left = len(members) / len(outcome.score), 1.0 - len(seen) / len(members)
            variance += weight**2 * left * float(seen.var(ddof=1)) / len(seen)
    return float(np.sqrt(variance))


@metric(
    "accuracy_max",
    "best device (%)",
    scored="accuracy",
    factor=100,
    table="accuracy",
    figure="accuracy",
    every_round=True,
    curve="accuracy/max",
)
def accuracy_max(outcome: Outcome) -> float:
    """Test accuracy of the best-served device under its cluster's model."""
    return float(outcome.known_accuracy.max())


@metric(
    "accuracy_gap",
    "gap (points)",
    scored="accuracy",
    factor=100,
    table="fairness",
    figure="fairness",
    every_round=True,
    curve="accuracy/gap",
)
def accuracy_gap(outcome: Outcome) -> float:
    """Accuracy of the best-served device minus that of the worst-served."""
    return gap(outcome.known_accuracy)


@metric("accuracy_std", "std (points)", scored="accuracy", factor=100, table="fairness", figure="fairness")
def accuracy_std(outcome: Outcome) -> float:
    """Standard deviation of the devices' accuracies."""
    return float(outcome.known_accuracy.std())


@metric("accuracy_worst_tenth", "worst 10 % (%)", scored="accuracy", factor=100, table="fairness", figure="fairness")
def accuracy_worst_tenth(outcome: Outcome) -> float:
    """Mean accuracy of the worst-served tenth of the devices, at least one."""
    return worst_tenth(outcome.known_accuracy)


@metric("jain_accuracy", "Jain, accuracy", scored="accuracy", decimals=3, table="fairness", figure="fairness")
def jain_accuracy(outcome: Outcome) -> float:
    """Jain's index of the devices' accuracies: 1 when all are equal."""
    return jain(outcome.known_accuracy)


@metric("jain_participation", "Jain, participation", decimals=3, table="fairness", figure="fairness")
def jain_participation(outcome: Outcome) -> float:
    """Jain's index of how often devices uploaded, as a share of the rounds in which they were there."""
    there = outcome.present_rounds > 0
    return jain(outcome.participation[there] / outcome.present_rounds[there])


@metric(
    "conventional_accuracy_min", "worst device, one model (%)", scored="accuracy", factor=100, table=None, figure=None
)
def conventional_accuracy_min(outcome: Outcome) -> float:
    """Test accuracy of the worst-served device under one model for all."""
    return float(outcome.known_score(which="conventional_score").min())


@metric(
    "conventional_accuracy_mean",
    "mean device, one model (%)",
    scored="accuracy",
    factor=100,
    table=None,
    figure=None,
    every_round=True,
    curve="accuracy/one_model_mean",
)
def conventional_accuracy_mean(outcome: Outcome) -> float:
    """Mean test accuracy of the devices under one model for all."""
    return float(outcome.known_score(which="conventional_score").mean())
