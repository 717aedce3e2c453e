"""Speed and power are lowered until each device is just in time for its slot.

Computing and uploading both cost less the longer they take, and their energy is convex in the time, so each device has
one best way to use its slot::

    fixed   ==compute==|..wait..[== upload ==]......idle......|  next
    slack   ======compute======|[========== upload ==========]|  next
"""

from dataclasses import replace

import numpy as np

from fedclade.core.arrays import Bools, Floats
from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation.rule import rule
from fedclade.scheduling.allocation.slots import Allocation, Effort, Slots, over

HALVINGS = 60  # of the interval in which the best start lies: to the last bit of a double


@rule("slack", needs_limits=True)
def slack(slots: Slots) -> Allocation:
    """Nobody changes place, no round gets longer, and no device could save more alone."""
    return use_slack(slots.timeline, slots.effort, slots.effort.compute_seconds, slots.effort.upload_seconds)


def use_slack(timeline: Timeline, effort: Effort, compute: Floats, upload: Floats) -> Allocation:
    """Stretch the computing and upload times of a timeline as far as each slot and the devices' limits allow."""
    on = ~timeline.missed
    start, compute, upload = _best_use(timeline, effort, compute, upload, on)
    ready = np.where(on, np.maximum(timeline.ready, compute), timeline.ready)
    end = np.where(on, np.minimum(start + upload, _slot_ends(timeline, on)), np.inf)
    makespan = float(end[on].max(initial=0.0))
    timeline = replace(
        timeline,
        ready=np.minimum(ready, start),
        start=start,
        end=end,
        makespan=makespan,
        lower_bound=min(timeline.lower_bound, makespan),
    )
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
    noise_w = over(effort.upload_joules, effort.upload_seconds * np.expm1(over(nats, effort.upload_seconds)))
    low, high = earliest, latest
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        computing, uploading = times(middle)
        share = over(nats, uploading)
        saves = np.where(middle < longest_compute, over(cubic, computing**3), 0.0)
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
