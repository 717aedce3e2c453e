"""The first set runs at its limits where that ends the round earlier; then everybody is slowed down to its slot."""

import numpy as np

from fedclade.core.arrays import Bools
from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation.rule import rule
from fedclade.scheduling.allocation.slack import use_slack
from fedclade.scheduling.allocation.slots import Allocation, Effort, Slots, moved_up, with_lower_bound


@rule("boost", needs_limits=True)
def boost(slots: Slots) -> Allocation:
    """A round that is never longer than planned; the devices that are sped up pay for it."""
    effort, timeline = slots.effort, slots.timeline
    compute, upload = effort.compute_seconds, effort.upload_seconds
    fast = _worth_boosting(timeline, effort, ~timeline.missed)
    compute = np.where(fast, np.minimum(effort.compute_shortest, compute), compute)
    upload = np.where(fast, np.minimum(effort.upload_shortest, upload), upload)
    timeline = moved_up(timeline, compute - effort.compute_seconds, upload)
    return use_slack(with_lower_bound(timeline, upload, slots.subchannels), effort, compute, upload)


def _worth_boosting(timeline: Timeline, effort: Effort, on: Bools) -> Bools:
    """The first set, on those sub-channels that would otherwise end later than the boosted round."""
    first: Bools = on & (timeline.aggregation_set == 0)
    gain = np.where(first, np.minimum(effort.compute_shortest - effort.compute_seconds, 0.0), 0.0)
    upload = effort.upload_seconds
    boosted = moved_up(timeline, gain, np.where(first, np.minimum(effort.upload_shortest, upload), upload))
    channel_end = np.zeros(int(timeline.subchannel.max(initial=-1)) + 1)
    np.maximum.at(channel_end, timeline.subchannel[on], timeline.end[on])
    first[on] &= channel_end[timeline.subchannel[on]] > boosted.makespan
    return first
