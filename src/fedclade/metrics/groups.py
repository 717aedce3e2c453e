"""When devices were told apart, and whether the planted groups were found."""

import numpy as np

from fedclade.core.arrays import Ints
from fedclade.metrics.metric import Metric, metric
from fedclade.metrics.outcome import Outcome


def adjusted_rand_index(planted: Ints, found: list[str]) -> float:
    """1 when the clusters are exactly the planted groups, about 0 when they are unrelated.

    The share of pairs of devices that both put together, or both apart, less what chance would give (Hubert and Arabie,
    1985). scikit-learn has it, too, but takes a second to import.
    """
    (_, rows), (_, columns) = (np.unique(labels, return_inverse=True) for labels in (planted, found))
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    together, in_rows, in_columns, pairs = (
        float((counts * (counts - 1) / 2).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0), table.sum(keepdims=True))
    )
    by_chance, most = in_rows * in_columns / max(pairs, 1.0), (in_rows + in_columns) / 2
    return 1.0 if most == by_chance else (together - by_chance) / (most - by_chance)


@metric("clusters", "clusters", table="fairness", figure=None)
def clusters(outcome: Outcome) -> int:
    """Clusters in use, each with a model of its own."""
    return len(outcome.tree.leaves())


@metric("adjusted_rand_index", "adjusted Rand index", decimals=2, table="fairness", figure=None)
def found_groups(outcome: Outcome) -> float | None:
    """1 when the clusters are exactly the planted groups, about 0 when they are unrelated; none without groups."""
    return None if outcome.planted is None else adjusted_rand_index(outcome.planted, outcome.tree.leaf_of())


@metric("first_split_round", "first split (round)", table="speed", figure="speed")
def first_split_round(outcome: Outcome) -> int | None:
    """Round of the first split."""
    return outcome.splits[0].round if outcome.splits else None


@metric("last_split_round", "last split (round)", table="speed", figure="speed")
def last_split_round(outcome: Outcome) -> int | None:
    """Round of the last split."""
    return outcome.splits[-1].round if outcome.splits else None


groups_found = Metric(
    "groups_found",
    "right groups (% of runs)",
    "Whether the clusters end as exactly the planted groups, or as one where none were planted; in comparisons only.",
    None,
    factor=100,
    decimals=0,
    table="fairness",
    figure=None,
)

rounds_to_groups = Metric(
    "rounds_to_groups",
    "right groups (round)",
    "Round from which on the clusters are exactly the planted groups, to the end; in comparisons only.",
    None,
    table="speed",
    figure=None,
)

rounds_to_target = Metric(
    "rounds_to_target",
    "target (round)",
    "Round in which the devices' mean accuracy (or R²) first reached compare.target_accuracy; in comparisons only.",
    None,
    table="speed",
    figure="speed",
)


@metric("first_split_seconds", "first split (s)", decimals=None, table="speed", figure="speed")
def first_split_seconds(outcome: Outcome) -> float | None:
    """Simulated time of the first split."""
    return outcome.splits[0].seconds if outcome.splits else None


@metric("last_split_seconds", "last split (s)", decimals=None, table="speed", figure="speed")
def last_split_seconds(outcome: Outcome) -> float | None:
    """Simulated time of the last split."""
    return outcome.splits[-1].seconds if outcome.splits else None


seconds_to_groups = Metric(
    "seconds_to_groups",
    "right groups (s)",
    "Simulated time from which on the clusters are exactly the planted groups; in comparisons only.",
    None,
    decimals=None,
    table="speed",
    figure=None,
)

seconds_to_target = Metric(
    "seconds_to_target",
    "target (s)",
    "Simulated time at which the devices' mean accuracy (or R²) reached compare.target_accuracy; in comparisons only.",
    None,
    decimals=None,
    table="speed",
    figure="speed",
)
