"""Whether and when a method followed devices whose data changed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Following:
    """Entry i of every array belongs to the i-th device whose data changed."""

    devices: Ints  # their ids
    rounds: Floats  # after the change, until the device was first in a cluster of its new group; NaN: it never was
    at_home: Bools  # whether it was in such a cluster in the end
    lost: Floats  # accuracy or R² below that before the change, in the rounds until then: their mean; 0: no rounds
    known: bool  # whether there are several groups; or else nobody can say who is with whose, and nobody "ever was"


def following(
    changed_round: int, devices: Ints, group: Ints, rounds: Ints, nodes: Sequence[Sequence[str]], score: Floats
) -> Following:
    """How devices were followed that changed in a round.

    Parameters
    ----------
    changed_round : int
        The first round with the new data.
    devices : whole numbers
        Those that changed.
    group : whole numbers, one for each device of the run
        The groups after the change; all the same where no truth is known.
    rounds : whole numbers, ascending
        The rounds in which devices were evaluated, one of them after the change.
    nodes : texts, rounds × devices
        The cluster of each device after each of these rounds.
    score : rounds × devices
        Accuracy or R² of its cluster's model on its test data.
    """
    since = np.flatnonzero(rounds >= changed_round)
    known = len(np.unique(group)) > 1
    home = np.stack([_at_home(np.array(nodes[row]), group)[devices] & known for row in since.tolist()])
    first = np.where(home.any(axis=0), home.argmax(axis=0), len(since))  # entry of `since`; beyond the last: never
    until = np.append(rounds[since] - changed_round, np.nan)[first]
    before = score[since[0] - 1, devices] if since[0] > 0 else np.full(len(devices), np.nan)
    lost = [
        float(np.mean(before[i] - score[since[:end], device])) if end else 0.0
        for i, (device, end) in enumerate(zip(devices.tolist(), first.tolist(), strict=True))
    ]
    return Following(devices, until, home[-1], np.array(lost), known)


def _at_home(node: np.ndarray, group: Ints) -> Bools:
    """Which devices are in a cluster of their own group: more than half of the others are of it, or there are none."""
    clusters, cluster = np.unique(node, return_inverse=True)
    groups, kind = np.unique(group, return_inverse=True)
    count = np.zeros((len(clusters), len(groups)), dtype=np.int64)
    np.add.at(count, (cluster, kind), 1)
    others = count.sum(axis=1)[cluster] - 1
    alike = count[cluster, kind] - 1
    return np.asarray((2 * alike > others) | (others == 0))
