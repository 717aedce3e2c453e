"""How fast and how loud: each device's CPU speed and transmit power, fitted to the slot its timeline gives it.

All is said in seconds. A slower CPU or a lower power is a longer computing or upload time, and both save energy:
computing costs κ·cycles·f² ~ 1/T², and an upload of n nats per hertz costs P·T ~ T·(e^(n/T) − 1), the rate formula
(eq. 7) solved for P. Both fall with T and are convex, so each device has one best way to use its slot::

    fixed   ==compute==|..wait..[== upload ==]......idle......|  next
    slack   ======compute======|[========== upload ==========]|  next

A slot reaches from the planned start of the upload to the planned start of the next one on that sub-channel, or to the
end of the round. ``boost`` first lets the first set run at its limits where that ends the round earlier.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints
from fedclade.core.timeline import Timeline
from fedclade.scheduling.lower_bound import lower_bound

Kind: TypeAlias = Literal["fixed", "slack", "boost"]
ALLOCATIONS: tuple[Kind, ...] = get_args(Kind)
HALVINGS = 60  # of the interval in which the best start lies: to the last bit of a double


@dataclass(frozen=True)
class Effort:
    """What devices need at their given speed and power, and the times at the ends of their CPU and power ranges."""

    compute_seconds: Floats
    upload_seconds: Floats
    compute_joules: Floats
    upload_joules: Floats
    snr: Floats
    compute_shortest: Floats
    compute_longest: Floats
    upload_shortest: Floats
    upload_longest: Floats

    def of(self, devices: Ints) -> "Effort":
        """Of these devices alone."""
        return Effort(**{name: values[devices] for name, values in vars(self).items()})

    @property
    def nats(self) -> Floats:
        """Upload time × nats per second and hertz: what the model's bits ask of the link."""
        return self.upload_seconds * np.log1p(self.snr)

    def computing(self, seconds: Floats) -> Floats:
        """Joules of computing in that time: κ·cycles·f² with f = cycles / seconds."""
        return self.compute_joules * _over(self.compute_seconds, seconds) ** 2

    def uploading(self, seconds: Floats) -> Floats:
        """Joules of uploading in that time, at the power that the rate formula asks for."""
        nats = self.nats
        power = _over(np.expm1(_over(nats, seconds)), np.expm1(_over(nats, self.upload_seconds)))
        return self.upload_joules * power * _over(seconds, self.upload_seconds)


@dataclass(frozen=True)
class Allocation:
    """A timeline with everybody's speed and power settled; joules have one entry for each of its entries."""

    timeline: Timeline
    compute_joules: Floats  # 0 where missed
    upload_joules: Floats

    @property
    def joules(self) -> float:
        """Of all who upload."""
        return float(self.compute_joules.sum() + self.upload_joules.sum())


def allocate(kind: Kind, timeline: Timeline, effort: Effort, subchannels: int) -> Allocation:
    """Settle speed and power on a timeline planned for the given ones; nobody changes place, no round gets longer.

    Entry i of ``effort`` belongs to entry i of the timeline. A device whose computing shall not change (because its
    upload waits for something else) has ``compute_longest`` = ``compute_seconds``.
    """
    on = ~timeline.missed
    effort = Effort(**{name: np.where(on, values, 0.0) for name, values in vars(effort).items()})
    compute, upload = effort.compute_seconds, effort.upload_seconds
    if kind == "boost":
        fast = _worth_boosting(timeline, effort, on)
        compute = np.where(fast, np.minimum(effort.compute_shortest, compute), compute)
        upload = np.where(fast, np.minimum(effort.upload_shortest, upload), upload)
        timeline = _moved_up(timeline, compute - effort.compute_seconds, upload)
        ready = timeline.ready[on]
        timeline = replace(
            timeline,
            largest_latency=float((ready + upload[on]).max(initial=0.0)),
            lower_bound=lower_bound(ready, upload[on], subchannels),
        )
    if kind != "fixed":
        start, compute, upload = _best_use(timeline, effort, compute, upload, on)
        ready = np.where(on, np.maximum(timeline.ready, compute), timeline.ready)
        end = np.where(on, np.minimum(start + upload, _slot_ends(timeline, on)), np.inf)
        timeline = replace(
            timeline,
            ready=np.minimum(ready, start),
            start=start,
            end=end,
            makespan=float(end[on].max(initial=0.0)),
        )
        timeline = replace(timeline, lower_bound=min(timeline.lower_bound, timeline.makespan))
    return Allocation(timeline, effort.computing(compute), effort.uploading(upload))


def _best_use(
    timeline: Timeline, effort: Effort, compute: Floats, upload: Floats, on: Bools
) -> tuple[Floats, Floats, Floats]:
    """When each upload best starts within its slot, and how long computing and upload then take.

    A later start leaves computing more time and the upload less. The energy is convex in the start, so its minimum is
    where the derivative changes sign; where nothing is gained any more, the earliest start is taken.
    """
    closes = np.where(on, _slot_ends(timeline, on), 0.0)
    earliest = np.where(on, timeline.start, 0.0)
    latest = np.maximum(closes - upload, earliest)
    longest_compute = np.maximum(effort.compute_longest, compute)
    longest_upload = np.where(upload > 0, np.maximum(effort.upload_longest, upload), 0.0)

    def times(start: Floats) -> tuple[Floats, Floats]:
        return np.clip(start, compute, longest_compute), np.clip(closes - start, upload, longest_upload)

    nats = effort.nats
    cubic = 2 * effort.compute_joules * effort.compute_seconds**2  # dE/dT of computing is -cubic / T³
    noise_w = _over(effort.upload_joules, effort.upload_seconds * np.expm1(_over(nats, effort.upload_seconds)))
    low, high = earliest, latest
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        computing, uploading = times(middle)
        share = _over(nats, uploading)
        saves = np.where(middle < longest_compute, _over(cubic, computing**3), 0.0)
        costs = noise_w * (share * np.exp(share) - np.expm1(share))  # -dE/dT of T·(e^(n/T) - 1)
        later = saves > np.where(closes - middle < longest_upload, costs, 0.0)
        low, high = np.where(later, middle, low), np.where(later, high, middle)
    computing, uploading = times(high)
    return np.where(on, high, np.inf), computing, uploading


def _slot_ends(timeline: Timeline, on: Bools) -> Floats:
    """For each entry the planned start of the next one on its sub-channel, or the end of the round."""
    ends = np.full(len(on), timeline.makespan)
    by_channel = np.lexsort((np.arange(len(on)), timeline.subchannel))[np.count_nonzero(~on) :]
    same = timeline.subchannel[by_channel[1:]] == timeline.subchannel[by_channel[:-1]]
    ends[by_channel[:-1][same]] = timeline.start[by_channel[1:][same]]
    return ends


def _worth_boosting(timeline: Timeline, effort: Effort, on: Bools) -> Bools:
    """The first set, on those sub-channels that would otherwise end later than the boosted round."""
    first: Bools = on & (timeline.aggregation_set == 0)
    gain = np.where(first, np.minimum(effort.compute_shortest - effort.compute_seconds, 0.0), 0.0)
    upload = effort.upload_seconds
    boosted = _moved_up(timeline, gain, np.where(first, np.minimum(effort.upload_shortest, upload), upload))
    channel_end = np.zeros(int(timeline.subchannel.max(initial=-1)) + 1)
    np.maximum.at(channel_end, timeline.subchannel[on], timeline.end[on])
    first[on] &= channel_end[timeline.subchannel[on]] > boosted.makespan
    return first


def _moved_up(timeline: Timeline, earlier: Floats, upload: Floats) -> Timeline:
    """The same order on the same sub-channels with other ready and upload times."""
    ready = timeline.ready + earlier
    start, end = timeline.start.copy(), timeline.end.copy()
    free = [0.0] * (int(timeline.subchannel.max(initial=-1)) + 1)
    ready_at, lasts, channel = ready.tolist(), upload.tolist(), timeline.subchannel.tolist()
    for i in np.flatnonzero(~timeline.missed).tolist():
        start[i] = begins = max(ready_at[i], free[channel[i]])
        free[channel[i]] = end[i] = begins + lasts[i]
    return replace(timeline, ready=ready, start=start, end=end, makespan=max(free, default=0.0))


def _over(above: Floats, below: Floats) -> Floats:
    """Their ratio; 1 where both are 0: what takes no time is not changed by how fast it is done."""
    return np.divide(above, below, out=np.ones_like(above), where=below > 0)
