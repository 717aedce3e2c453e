"""Who takes part: the paper's two-phase fair selection (eqs. 17 and 18) and the baselines it is compared with.

A policy is a small function from the situation to device ids. Add your own with a name::

    @policy("lottery")
    def lottery(situation: Situation) -> Ints: ...

or name it in the config as ``scheduling.policy = "my_module:lottery"``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedclade.config import SchedulingConfig
from fedclade.core.arrays import Bools, Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, near_miss
from fedclade.core.random import generator


@dataclass(frozen=True)
class ClusterView:
    """What a policy may know of a cluster."""

    members: Ints
    open: bool  # not stopped, or due for a re-check this round
    stopped: bool = False  # whether its training has stopped; a re-check opens it for one round only


@dataclass(frozen=True)
class Situation:
    """What the server knows when it selects. Arrays have one entry per device."""

    round: int  # from 1
    seed: int
    subchannels: int
    samples: Ints  # D_k
    rate_bps: Floats
    mean_rate_bps: Floats  # what each link carries on average over rounds
    compute_seconds: Floats
    upload_seconds: Floats
    reachable: Bools
    last_heard: Ints  # round in which the device's last update arrived; 0: never
    clusters: tuple[ClusterView, ...]
    config: SchedulingConfig

    @property
    def devices(self) -> int:
        """K."""
        return len(self.samples)

    @property
    def total_seconds(self) -> Floats:
        """T_tot = T_cmp + T_trans."""
        return self.compute_seconds + self.upload_seconds

    @property
    def relative_rate(self) -> Floats:
        """This round's rate over the device's own average."""
        mean = self.mean_rate_bps
        return np.divide(self.rate_bps, mean, out=np.zeros(self.devices), where=mean > 0)

    @property
    def per_round(self) -> int:
        """How many devices a policy that picks a few may pick."""
        return min(self.devices, self.config.per_round or self.subchannels)


Select: TypeAlias = Callable[[Situation], Ints]
ChooseUploads: TypeAlias = Callable[[Situation, Ints, Floats], Ints]


@dataclass(frozen=True)
class Policy:
    """Who computes, and, where that depends on the updates' norms, who of them uploads."""

    name: str
    select: Select
    choose_uploads: ChooseUploads | None = None


_registry: dict[str, Policy] = {}


def policy(name: str, choose_uploads: ChooseUploads | None = None) -> Callable[[Select], Select]:
    """Register a function as the policy of that name."""

    def register(select: Select) -> Select:
        _registry[name] = Policy(name, select, choose_uploads)
        return select

    return register


def policy_names() -> list[str]:
    """All registered policies."""
    return list(_registry)


def find_policy(name: str) -> Policy:
    """A registered policy, or ``package.module:function``."""
    if ":" in name:
        found = load("scheduling.policy", name)
        if isinstance(found, Policy):
            return found
        if callable(found):
            by_function = (known for known in _registry.values() if known.select is found)
            return next(by_function, Policy(name, found))
        raise UserError(f"scheduling.policy = {name!r}: must be a function of a Situation")
    if name not in _registry:
        raise UserError(f'scheduling.policy = "{name}": no such policy; {near_miss(name, _registry)}')
    return _registry[name]


def _smallest(ids: Ints, cost: Floats, count: int) -> Ints:
    """The ids of smallest cost, ties by id."""
    return np.sort(ids[np.argsort(cost[ids], kind="stable")[:count]])


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
    nobody = np.zeros(0, dtype=np.int64)
    hearing = np.concatenate([nobody, *(cluster.members for cluster in situation.clusters if cluster.open)])
    after = [_of_cluster(situation, cluster) for cluster in situation.clusters if not cluster.open]
    phase1 = _cover(situation, hearing, situation.per_round, situation.config.window)
    return np.sort(np.concatenate([phase1, *after]))


def _cover(situation: Situation, ids: Ints, count: int, window: int | None) -> Ints:
    """``count`` of the ids, by rate in relation to their own average times the rounds they waited; all in the window.

    Nobody is late as long as, for every t, at most t·count devices must be heard within the next t rounds. So after
    this round at most (t − 1)·count of those may be left: the others among them have to be taken now.
    """
    fewest = -(-len(ids) // count)
    window = window or 2 * fewest
    if window < fewest:
        raise UserError(
            f"scheduling.window = {window}: {len(ids)} devices at {count} a round need at least {fewest} rounds"
        )
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


def _of_cluster(situation: Situation, cluster: ClusterView) -> Ints:
    config = situation.config
    if cluster.open:
        return cluster.members
    if config.after_stop == "cover":
        return _cover(situation, cluster.members, min(config.n_greedy, len(cluster.members)), None)
    if config.after_stop == "freeze":
        return cluster.members[:0]
    if config.after_stop == "round-robin":
        return _in_turn(np.sort(cluster.members), situation.round, config.n_greedy)
    return _smallest(cluster.members, situation.total_seconds, config.n_greedy)


def _in_turn(ids: Ints, round_: int, count: int) -> Ints:
    count = min(count, len(ids))
    return np.sort(ids[((round_ - 1) * count + np.arange(count)) % len(ids)])


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
    return _in_turn(np.arange(situation.devices), situation.round, situation.per_round)


@policy("best-channel")
def best_channel(situation: Situation) -> Ints:
    """The N best links of this round."""
    return _smallest(np.arange(situation.devices), -situation.rate_bps, situation.per_round)


@policy("most-data")
def most_data(situation: Situation) -> Ints:
    """The N devices with the most data: the same ones every round."""
    return _smallest(np.arange(situation.devices), -situation.samples.astype(np.float64), situation.per_round)


@policy("most-data-available")
def most_data_available(situation: Situation) -> Ints:
    """The N devices with the most data among those within reach this round."""
    within_reach = np.flatnonzero(situation.reachable)
    return _smallest(within_reach, -situation.samples.astype(np.float64), situation.per_round)


def _largest_updates(situation: Situation, ids: Ints, norms: Floats) -> Ints:
    """Of those who computed, the N with the largest ‖Δw‖."""
    return np.sort(ids[np.argsort(-norms, kind="stable")[: situation.per_round]])


@policy("best-update", choose_uploads=_largest_updates)
def best_update(situation: Situation) -> Ints:
    """Everybody computes and reports a norm; the N largest upload."""
    return np.arange(situation.devices)
