"""The numbers of a run that a study sets against each other, and the tables they are shown in."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """One number of a run, as tables and figures name and scale it."""

    title: str
    factor: float = 1.0
    decimals: int | None = 1  # None: three digits that matter

    def text(self, value: float, sign: Literal["", "+"] = "") -> str:
        """A value as it is read in a table."""
        scaled = self.factor * value
        decimals = self.decimals
        if decimals is None:
            decimals = 2 if scaled == 0 else max(0, 2 - math.floor(math.log10(abs(scaled))))
        return f"{scaled:{sign}.{decimals}f}"


METRICS = {
    "accuracy_min": Metric("worst device (%)", 100),
    "accuracy_mean": Metric("mean device (%)", 100),
    "accuracy_max": Metric("best device (%)", 100),
    "first_split_round": Metric("first split (round)"),
    "last_split_round": Metric("last split (round)"),
    "rounds_to_target": Metric("target accuracy (round)"),
    "first_split_seconds": Metric("first split (s)", 1, None),
    "last_split_seconds": Metric("last split (s)", 1, None),
    "seconds_to_target": Metric("target accuracy (s)", 1, None),
    "accuracy_gap": Metric("gap (points)", 100),
    "accuracy_std": Metric("std (points)", 100),
    "accuracy_worst_tenth": Metric("worst 10 % (%)", 100),
    "jain_accuracy": Metric("Jain, accuracy", 1, 3),
    "jain_participation": Metric("Jain, participation", 1, 3),
    "energy_joules": Metric("energy (J)", 1, None),
    "upload_bits": Metric("uploaded (Mbit)", 1e-6, None),
    "simulated_seconds": Metric("simulated time (s)", 1, None),
    "clusters": Metric("clusters"),
    "adjusted_rand_index": Metric("adjusted Rand index", 1, 2),
}
TABLES = {
    "accuracy": ("Accuracy over the devices", ("accuracy_min", "accuracy_mean", "accuracy_max")),
    "speed": (
        "Rounds and simulated seconds to the first split, the last split and the target accuracy",
        (
            "first_split_round",
            "last_split_round",
            "rounds_to_target",
            "first_split_seconds",
            "last_split_seconds",
            "seconds_to_target",
        ),
    ),
    "fairness": (
        "Fairness, and whether the groups were found",
        (
            "accuracy_gap",
            "accuracy_std",
            "accuracy_worst_tenth",
            "jain_accuracy",
            "jain_participation",
            "clusters",
            "adjusted_rand_index",
        ),
    ),
    "cost": ("Cost of the whole run", ("simulated_seconds", "energy_joules", "upload_bits")),
}
