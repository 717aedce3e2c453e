"""Who uploads when: aggregation sets and sub-channel reuse (eqs. 19 and 20, and the paper's figure of the sets).

Computing starts at 0 for every device. Device k uploads from max(T_cmp,k, the moment its sub-channel is free)::

    sub-channel 0 | --compute a--[== a ==][==== d ====]
    sub-channel 1 | --compute b-----[=== b ===]--[= e =]
    sub-channel 2 | --compute c--------[===== c =====]
                        set 0: a b c        set 1: d e

In which order the devices come is a choice: the paper's ascending latency, the earliest ready first, the longest upload
among those ready first, or the best order there is.
"""

import heapq
import math
from typing import Literal, TypeAlias, get_args

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.timeline import Timeline
from fedclade.scheduling.lower_bound import lower_bound
from fedclade.scheduling.optimal import shortest_order

Order: TypeAlias = Literal["latency", "compute", "longest-upload", "optimal"]
ORDERS: tuple[Order, ...] = get_args(Order)


def plan_timeline(
    device: Ints,
    ready: Floats,
    upload: Floats,
    subchannels: int,
    *,
    order: Order = "latency",
    pairing: Literal["first-free", "strict"] = "first-free",
    deadline: float | None = None,
) -> Timeline:
    """Place the uploads of one round. ``ready`` and ``upload`` are seconds, one for each entry of ``device``.

    A device that could not end by the deadline when its turn comes, or whose link carries nothing, misses the round and
    takes no sub-channel.
    """
    limit = np.inf if deadline is None else deadline
    turns, proven = _turns(order, ready, upload, subchannels, limit)
    device, ready, upload = device[turns], ready[turns], upload[turns]
    count = len(device)
    channels, predecessors, starts, finishes = [-1] * count, [-1] * count, [math.inf] * count, [math.inf] * count
    names = device.tolist()  # lists, for single numbers of arrays take their time
    free = [(0.0, c) for c in range(subchannels)]  # a heap of (when it frees up, sub-channel)
    free_at = [0.0] * subchannels
    last_user = [-1] * subchannels
    placed = 0
    for i, (ready_at, lasts) in enumerate(zip(ready.tolist(), upload.tolist(), strict=True)):
        c = free[0][1] if pairing == "first-free" else placed % subchannels
        begins = max(ready_at, free_at[c])
        ends = begins + lasts
        if ends > limit or ends == math.inf:
            continue
        channels[i], predecessors[i], starts[i], finishes[i] = c, last_user[c], begins, ends
        free_at[c], last_user[c] = ends, names[i]
        if pairing == "first-free":
            heapq.heapreplace(free, (ends, c))
        placed += 1
    channel, predecessor = np.array(channels, dtype=np.int64), np.array(predecessors, dtype=np.int64)
    start, end = np.array(starts, dtype=np.float64), np.array(finishes, dtype=np.float64)
    missed = channel < 0
    aggregation_set = np.where(missed, -1, (np.cumsum(~missed) - 1) // subchannels)
    makespan = float(end[~missed].max(initial=0.0))
    bound = max(lower_bound(ready[~missed], upload[~missed], subchannels), 0.0 if missed.any() else proven)
    return Timeline(
        device=device,
        aggregation_set=aggregation_set,
        subchannel=channel,
        predecessor=predecessor,
        ready=ready,
        start=start,
        end=end,
        missed=missed,
        makespan=makespan,
        largest_latency=float((ready + upload)[~missed].max(initial=0.0)),
        lower_bound=min(bound, makespan),  # sums round differently
    )


def most_at_once(start: Floats, end: Floats, amount: Floats) -> float:
    """The largest sum of the amounts of intervals that overlap; one that begins as another ends does not overlap it."""
    moments = np.concatenate([start, end])
    change = np.concatenate([amount, -amount])
    keep = np.tile(end > start, 2)
    in_order = np.lexsort((change[keep], moments[keep]))
    return float(np.cumsum(change[keep][in_order]).max(initial=0.0))


def _turns(order: Order, ready: Floats, upload: Floats, subchannels: int, limit: float) -> tuple[Ints, float]:
    """Positions in upload order, and a makespan proven to be the least (0 where nothing is proven)."""
    if order == "compute":
        return np.lexsort((ready + upload, ready)), 0.0
    if order == "longest-upload":
        return _longest_first(ready, upload, subchannels, limit), 0.0
    turns = np.argsort(ready + upload, kind="stable")
    if order == "optimal":
        alive = np.flatnonzero(np.isfinite(ready + upload))
        known = plan_timeline(alive, ready[alive], upload[alive], subchannels, order="longest-upload")
        dead = np.setdiff1d(turns, alive)
        if known.ratio == 1.0:  # the bound is met: nothing to search for
            return np.concatenate([known.device, dead]), known.makespan
        best, proven = shortest_order(ready[known.device], upload[known.device], subchannels, known.start)
        return np.concatenate([known.device[best], dead]), proven
    return turns, 0.0


def _longest_first(ready: Floats, upload: Floats, subchannels: int, limit: float) -> Ints:
    """List scheduling: whenever a sub-channel is free, the longest upload among those who have computed.

    Placed on the first free sub-channel in this order, every device starts at the very moment it was picked here.
    """
    coming = np.lexsort((-upload, ready)).tolist()  # the next to be ready comes first
    ready_at, lasts = ready.tolist(), upload.tolist()
    waiting: list[tuple[float, int]] = []
    free = [0.0] * subchannels
    turns: list[int] = []
    arrived, now = 0, 0.0
    for _ in coming:
        now = max(now, free[0])
        if not waiting:
            now = max(now, ready_at[coming[arrived]])
        while arrived < len(coming) and ready_at[coming[arrived]] <= now:
            heapq.heappush(waiting, (-lasts[coming[arrived]], coming[arrived]))
            arrived += 1
        longest, i = heapq.heappop(waiting)
        turns.append(i)
        if now - longest <= limit and longest > -np.inf:
            heapq.heapreplace(free, now - longest)
    return np.array(turns, dtype=np.int64)
