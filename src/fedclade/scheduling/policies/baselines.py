"""The policies that fair selection is compared with."""

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.random import generator
from fedclade.scheduling.policies.policy import Situation, in_turn, policy, smallest


@policy("full")
def full(situation: Situation) -> Ints:
    """Everybody, always."""
    return np.arange(situation.devices)


@policy("random")
def random(situation: Situation) -> Ints:
    """N devices drawn anew each round."""
    rng = generator(situation.seed, "random-policy", situation.round)
    return np.sort(rng.choice(situation.devices, situation.per_round, replace=False))


@policy("round-robin")
def round_robin(situation: Situation) -> Ints:
    """N devices in turn."""
    return in_turn(np.arange(situation.devices), situation.round, situation.per_round)


@policy("best-channel")
def best_channel(situation: Situation) -> Ints:
    """The N best links of this round."""
    return smallest(np.arange(situation.devices), -situation.rate_bps, situation.per_round)


@policy("most-data")
def most_data(situation: Situation) -> Ints:
    """The N devices with the most data: the same ones every round."""
    return smallest(np.arange(situation.devices), -situation.samples.astype(np.float64), situation.per_round)


@policy("most-data-available")
def most_data_available(situation: Situation) -> Ints:
    """The N devices with the most data among those within reach this round."""
    within_reach = np.flatnonzero(situation.reachable)
    return smallest(within_reach, -situation.samples.astype(np.float64), situation.per_round)


def _largest_updates(situation: Situation, ids: Ints, norms: Floats) -> Ints:
    """Of those who computed, the N with the largest ‖Δw‖."""
    return np.sort(ids[np.argsort(-norms, kind="stable")[: situation.per_round]])


@policy("best-update", choose_uploads=_largest_updates)
def best_update(situation: Situation) -> Ints:
    """Everybody computes and reports a norm; the N largest upload."""
    return np.arange(situation.devices)
