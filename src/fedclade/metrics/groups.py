"""When devices were told apart, and whether the planted groups were found."""

from fedclade.core.arrays import Ints
from fedclade.metrics.metric import Metric, metric
from fedclade.metrics.outcome import Outcome


def adjusted_rand_index(planted: Ints, found: list[str]) -> float:
    """1 when the clusters are exactly the planted groups, about 0 when they are unrelated."""
    from sklearn.metrics import adjusted_rand_score  # slow to import, and wanted only at the end of a run

    return float(adjusted_rand_score(planted, found))


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
    "target accuracy (round)",
    "Round in which the devices' mean accuracy first reached compare.target_accuracy; in comparisons only.",
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
    "target accuracy (s)",
    "Simulated time at which the devices' mean accuracy first reached compare.target_accuracy; in comparisons only.",
    None,
    decimals=None,
    table="speed",
    figure="speed",
)
