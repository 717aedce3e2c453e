"""A round, decided before anybody trains: selection, timeline and allocation, one after the other.

The planner holds no state and asks nobody: the same links, clusters and memory give the same plan. The server carries
plans out; ``fedclade plan`` shows them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fedclade.config import SchedulingConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.links import Links
from fedclade.core.plugins import users_code
from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation.rule import Rule, allocate, find_rule
from fedclade.scheduling.allocation.slots import Allocation, Effort, Slots
from fedclade.scheduling.policies.policy import ChooseUploads, ClusterView, Situation, find_policy
from fedclade.scheduling.timeline import plan_timeline


@dataclass(frozen=True)
class Plan:
    """One round, decided before anybody trains: who computes, who uploads when, how fast and how loud.

    A policy that looks at the norms of updates cannot decide all of that beforehand. Its plan is the one in which
    everybody who computes also uploads, and ``choose`` gives the plan that counts.
    """

    round: int
    links: Links
    computing: Ints  # ascending: the devices that train
    allocation: Allocation  # when each upload takes place, and the joules of those who upload
    deadline: float | None  # seconds after which nobody is waited for; None: there is none
    choose: Callable[[Floats], "Plan"] | None = None  # norms of `computing` -> the plan that counts; None: it is this

    @property
    def timeline(self) -> Timeline:
        """Who uploads when."""
        return self.allocation.timeline

    @property
    def seconds(self) -> float:
        """How long computing and uploading take; where nobody can upload, the deadline is waited for in vain."""
        return self.timeline.makespan if len(self.timeline.arrived) else self.deadline or 0.0

    def joules_of(self, happened: Timeline | None = None) -> Floats:
        """What each device spends on computing, and on its upload if it has one.

        ``happened`` is the planned timeline with the times and failures that really occurred, entry by entry; without
        it all goes as planned.
        """
        timeline = self.timeline if happened is None else happened
        joules = np.zeros(len(self.links.compute_joules))
        joules[self.computing] = self.links.compute_joules[self.computing]
        sending = ~timeline.missed
        spent = self.allocation.compute_joules + self.allocation.upload_joules
        joules[timeline.device[sending]] = spent[sending]
        return joules


class Planner:
    """Plans rounds by one policy, one upload order and one allocation rule.

    ``config`` names them; ``seed`` keys the draws of policies that draw; ``subchannels`` is N, how many devices may
    upload at the same time.
    """

    def __init__(self, config: SchedulingConfig, seed: int, subchannels: int) -> None:
        self.config, self.seed, self.subchannels = config, seed, subchannels
        self.policy = find_policy(config.policy)
        self.rule = find_rule(config.allocation)

    def plan(
        self,
        round_: int,
        links: Links,
        clusters: tuple[ClusterView, ...],
        samples: Ints,
        last_heard: Ints,
        called: Ints,
        losses: Floats | None = None,
    ) -> Plan:
        """The plan of one round.

        ``links`` says what every device needs this round, ``samples`` how much data each has, ``last_heard`` in which
        round each was last heard (0: never), ``losses`` what they last told of their training. The
        devices of ``called`` take part whatever the policy says, because
        their last upload was lost or the method needs them, unless they are known to be absent.
        """
        situation = Situation(
            round=round_,
            seed=self.seed,
            subchannels=self.subchannels,
            samples=samples,
            snr=links.snr,
            rate_bps=links.rate_bps,
            mean_rate_bps=links.rate_bps if links.mean_rate_bps is None else links.mean_rate_bps,
            compute_seconds=links.compute_seconds,
            upload_seconds=links.upload_seconds,
            reachable=links.reachable,
            last_heard=last_heard,
            losses=np.full(len(samples), np.nan) if losses is None else losses,
            clusters=clusters,
            config=self.config,
            station=links.station,
            station_before=links.station_before,
        )
        here = np.arange(len(samples)) if links.absent is None else np.flatnonzero(~links.absent)
        situation = situation.among(here)
        selected = self._selected(situation) if len(here) else here
        chosen = np.union1d(here[selected], np.intersect1d(called, here))
        deadline = _deadline(self.config, clusters, len(samples))
        allocation = self._allocated(chosen, links.compute_seconds, links, deadline)
        if self.policy.choose_uploads is None:
            return Plan(round_, links, np.sort(allocation.timeline.arrived), allocation, deadline)
        undecided = Plan(round_, links, chosen, allocation, deadline)
        return replace(undecided, choose=self._chooser(self.policy.choose_uploads, situation, here, undecided))

    def _selected(self, situation: Situation) -> Ints:
        """Whom the policy selects; what goes wrong in a policy of the user's own is told by its name."""
        with users_code(f"policy {self.policy.name!r}: round {situation.round}"):
            chosen = self._checked(self.policy.select(situation), situation.devices)
        waiting = sum(len(cluster.members) for cluster in situation.clusters if cluster.open)
        if not len(chosen) and waiting and ":" in self.config.policy:  # the user's own
            raise UserError(
                f"policy {self.policy.name!r}: selects nobody in round {situation.round}, though {waiting} devices of "
                "open clusters could take part"
            )
        return chosen

    def _chooser(
        self, choose: ChooseUploads, situation: Situation, here: Ints, undecided: Plan
    ) -> Callable[[Floats], Plan]:
        """Everybody computes, tells the norm of its update and waits for the slowest; then some are let upload.

        ``here`` are the devices that the situation is about.
        """
        computing, links = undecided.computing, undecided.links

        def decided(norms: Floats) -> Plan:
            places = np.searchsorted(here, computing)
            uploading = here[self._checked(choose(situation, places, norms), situation.devices)]
            if not np.isin(uploading, computing).all():
                raise UserError(
                    f"policy {self.policy.name!r}: lets {uploading.tolist()} upload, of whom some did not compute"
                )
            waited = np.full_like(links.compute_seconds, links.compute_seconds[computing].max(initial=0.0))
            return replace(undecided, allocation=self._allocated(uploading, waited, links, undecided.deadline))

        return decided

    def _checked(self, chosen: Ints, devices: int) -> Ints:
        """A policy may be the user's own: hold it to its contract."""
        ids = np.asarray(chosen)
        if ids.ndim != 1 or (len(ids) and not np.issubdtype(ids.dtype, np.integer)):
            raise UserError(f"policy {self.policy.name!r}: must give a list of device ids, not {ids.dtype}{ids.shape}")
        if len(np.unique(ids)) != len(ids) or (len(ids) and not 0 <= ids.min() <= ids.max() < devices):
            raise UserError(
                f"policy {self.policy.name!r}: gave {ids.tolist()}; ids must be distinct and below {devices}"
            )
        return np.sort(ids.astype(np.int64))

    def _allocated(self, devices: Ints, ready: Floats, links: Links, deadline: float | None) -> Allocation:
        """When these devices upload, each ready at its entry of ``ready``, and how fast and loud they are."""
        timeline = plan_timeline(
            devices,
            ready[devices],
            links.upload_seconds[devices],
            self.subchannels,
            order=self.config.order,
            pairing=self.config.pairing,
            deadline=deadline,
        )
        effort = _effort(links, self.rule, ready).of(timeline.device)
        uplink = None if links.uplink is None else links.uplink.of(timeline.device)
        return allocate(self.rule, Slots(timeline, effort, self.subchannels, deadline, uplink))


class Cluster(Protocol):
    """What planning needs to know of a cluster: a leaf of the tree has it."""

    @property
    def devices(self) -> Sequence[int]:
        """Its members."""
        ...

    @property
    def stopped_round(self) -> int | None:
        """The round in which it stopped; None: it has not."""
        ...


def cluster_views(clusters: Iterable[Cluster], config: SchedulingConfig, round_: int) -> tuple[ClusterView, ...]:
    """The clusters as a policy sees them in a round: those that have members."""
    there = [cluster for cluster in clusters if cluster.devices]
    return tuple(
        ClusterView(
            np.array(cluster.devices),
            open=heard_in_full(config, cluster, len(there), round_),
            stopped=cluster.stopped_round is not None and greedy_phase(config, len(there)),
        )
        for cluster in there
    )


def greedy_phase(config: SchedulingConfig, clusters: int) -> bool:
    """Whether there are so many clusters that stopped ones let only a few go on (lines 2 to 5)."""
    return clusters >= config.greedy_clusters


def heard_in_full(config: SchedulingConfig, cluster: Cluster, clusters: int, round_: int) -> bool:
    """Whether all of a cluster's devices are to be heard in a round.

    They are as long as the cluster has not stopped, or there are too few clusters for a greedy phase; and of a stopped
    one now and then, to see whether it should go on.
    """
    stopped, every = cluster.stopped_round, config.recheck_every
    if stopped is None or not greedy_phase(config, clusters):
        return True
    return every > 0 and round_ > stopped and (round_ - stopped) % every == 0


def _deadline(config: SchedulingConfig, clusters: tuple[ClusterView, ...], devices: int) -> float | None:
    """T_r: long at first, shorter as clusters stop and only their quick members go on."""
    first, final = config.deadline_seconds, config.deadline_final_seconds
    if first is None or final is None:
        return first
    still = sum(len(cluster.members) for cluster in clusters if not cluster.stopped) / devices
    return final + (first - final) * still


def _effort(links: Links, rule: Rule, ready: Floats) -> Effort:
    """What the links say of every device; who waits after computing, for all norms to be known, keeps its speed."""
    given = (links.compute_seconds, links.upload_seconds, links.compute_joules, links.upload_joules, links.snr)
    if links.limits is None:
        if rule.needs_limits:
            raise UserError(f'scheduling.allocation = "{rule.name}": this edge does not tell its devices\' limits')
        compute, upload = links.compute_seconds, links.upload_seconds
        return Effort(*given, compute, compute, upload, upload)
    limits = links.limits
    bound = ready > links.compute_seconds
    return Effort(
        *given,
        np.where(bound, links.compute_seconds, limits.compute_shortest),
        np.where(bound, links.compute_seconds, limits.compute_longest),
        limits.upload_shortest,
        limits.upload_longest,
    )
