"""What a policy is: a small function from the situation to device ids, found by its name.

Add your own with a name::

    @policy("lottery")
    def lottery(situation: Situation) -> Ints: ...

or name it in the config as ``scheduling.policy = "my_module:lottery"``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fedclade.config import SchedulingConfig
from fedclade.core.arrays import Bools, Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, near_miss, takes


@dataclass(frozen=True)
class ClusterView:
    """What a policy may know of a cluster."""

    members: Ints
    open: bool  # not stopped, or due for a re-check this round
    stopped: bool = False  # whether its training has stopped; a re-check opens it for one round only


@dataclass(frozen=True)
class Situation:
    """What the server knows when it selects. Arrays have one entry per device.

    Devices that are known to be absent this round are not in it: the others are numbered without gaps.
    """

    round: int  # from 1
    seed: int
    subchannels: int
    samples: Ints  # D_k
    snr: Floats  # signal-to-noise ratio of each link; NaN where it is measured in seconds alone
    rate_bps: Floats
    mean_rate_bps: Floats  # what each link carries on average over rounds
    compute_seconds: Floats
    upload_seconds: Floats
    reachable: Bools
    last_heard: Ints  # round in which the device's last update arrived; 0: never
    losses: Floats  # what each device last told of its training loss; NaN: nothing, as where no policy asks
    clusters: tuple[ClusterView, ...]
    config: SchedulingConfig
    station: Ints | None = None  # base station that serves each device; None: unknown
    station_before: Ints | None = None  # the same in the round before: where they differ, it was handed over

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

    def among(self, devices: Ints) -> "Situation":
        """The same with these devices alone, numbered in the order given; clusters without any of them are gone."""
        place = np.full(self.devices, -1)
        place[devices] = np.arange(len(devices))
        members = [place[cluster.members] for cluster in self.clusters]
        clusters = tuple(
            replace(cluster, members=places[places >= 0])
            for cluster, places in zip(self.clusters, members, strict=True)
            if (places >= 0).any()
        )
        arrays: dict[str, Any] = {
            name: value[devices] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, clusters=clusters, **arrays)


Select: TypeAlias = Callable[[Situation], Ints]
ChooseUploads: TypeAlias = Callable[[Situation, Ints, Floats], Ints]


@dataclass(frozen=True)
class Policy:
    """Who computes, and, where that depends on the updates' norms, who of them uploads."""

    name: str
    select: Select
    choose_uploads: ChooseUploads | None = None
    needs_losses: bool = False  # devices tell their training loss with their update


_registry: dict[str, Policy] = {}


def policy(
    name: str, choose_uploads: ChooseUploads | None = None, *, needs_losses: bool = False
) -> Callable[[Select], Select]:
    """Register a function as the policy of that name."""

    def register(select: Select) -> Select:
        _registry[name] = Policy(name, select, choose_uploads, needs_losses)
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
        if takes(found, 1):
            by_function = (known for known in _registry.values() if known.select is found)
            return next(by_function, Policy(name, found))
        raise UserError(f"scheduling.policy = {name!r}: must be a function of a Situation")
    if name not in _registry:
        raise UserError(f'scheduling.policy = "{name}": no such policy; {near_miss(name, _registry)}')
    return _registry[name]


def smallest(ids: Ints, cost: Floats, count: int) -> Ints:
    """The ids of smallest cost, ties by id."""
    return np.sort(ids[np.argsort(cost[ids], kind="stable")[:count]])


def in_turn(ids: Ints, round_: int, count: int) -> Ints:
    """``count`` of the ids a round, one after the other and then from the start again."""
    count = min(count, len(ids))
    return np.sort(ids[((round_ - 1) * count + np.arange(count)) % len(ids)])
