"""The paper's two-phase fair selection (eqs. 17 and 18), and a faster one that keeps its promise to hear everybody."""

import numpy as np

from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.scheduling.policies.policy import ClusterView, Situation, in_turn, policy, smallest


@policy("fair")
def fair(situation: Situation) -> Ints:
    """Phase 1: everybody in every cluster that has not stopped. Phase 2: a few of each that has (eqs. 17, 18)."""
    return np.sort(np.concatenate([_of_cluster(situation, cluster) for cluster in situation.clusters]))


@policy("fair-cover")
def fair_cover(situation: Situation) -> Ints:
    """Phase 1: N devices a round, everybody within a window of rounds, each when its own channel is good; then as fair.

    As a cellular base station does (proportional fairness), a device is picked when its rate is high compared with its
    own average and with how often it was served, so nobody is preferred for a good place, and hardly anybody sends in
    a deep fade.
    """
    phase1 = _cover(situation, hearing(situation), situation.per_round, situation.config.window)
    return np.sort(np.concatenate([phase1, after_a_stop(situation)]))


def hearing(situation: Situation) -> Ints:
    """Phase 1 is about these: the members of clusters that have not stopped."""
    nobody = np.zeros(0, dtype=np.int64)
    return np.concatenate([nobody, *(cluster.members for cluster in situation.clusters if cluster.open)])


def after_a_stop(situation: Situation) -> Ints:
    """Phase 2: the members of stopped clusters that go on."""
    nobody = np.zeros(0, dtype=np.int64)
    return np.concatenate([nobody, *(_of_cluster(situation, each) for each in situation.clusters if not each.open)])


def _cover(situation: Situation, ids: Ints, count: int, window: int | None) -> Ints:
    """``count`` of the ids, by rate in relation to their own average times the rounds they waited; all in the window.

    Nobody is late as long as, for every t, at most t·count devices must be heard within the next t rounds. So after
    this round at most (t − 1)·count of those may be left: the others among them have to be taken now.
    """
    window = window_for(len(ids), count, window)
    left = np.maximum(situation.last_heard[ids] + window - situation.round + 1, 1)  # rounds, this one included
    waited = situation.round - situation.last_heard[ids]
    score = waited * situation.relative_rate[ids]
    by_score = np.argsort(-score, kind="stable")
    oldest_first = np.lexsort((-score, situation.last_heard[ids]))
    taken = np.zeros(len(ids), dtype=bool)
    for t in range(1, window + 1):
        due = left <= t
        short = int(due.sum()) - (t - 1) * count - int(taken.sum())
        if short > 0:
            in_order = oldest_first if t == 1 else by_score
            taken[in_order[(due & ~taken)[in_order]][:short]] = True
    spare = count - int(taken.sum())
    taken[by_score[~taken[by_score]][: max(spare, 0)]] = True
    if spare < 0:  # devices came late through no fault of the plan: the oldest go first
        taken[oldest_first[taken[oldest_first]][count:]] = False
    return np.sort(ids[taken])


def window_for(devices: int, count: int, window: int | None) -> int:
    """The rounds within which so many devices are heard; unset: twice the fewest that are possible."""
    fewest = max(1, -(-devices // count))
    window = window or 2 * fewest
    if window < fewest:
        raise UserError(
            f"scheduling.window = {window}: {devices} devices at {count} a round need at least {fewest} rounds"
        )
    return window


def _of_cluster(situation: Situation, cluster: ClusterView) -> Ints:
    """Everybody while the cluster is open; afterwards those whom ``after_stop`` lets go on."""
    config = situation.config
    if cluster.open:
        return cluster.members
    if config.after_stop == "cover":
        return _cover(situation, cluster.members, min(config.n_greedy, len(cluster.members)), None)
    if config.after_stop == "freeze":
        return cluster.members[:0]
    if config.after_stop == "round-robin":
        return in_turn(np.sort(cluster.members), situation.round, config.n_greedy)
    return smallest(cluster.members, situation.total_seconds, config.n_greedy)
