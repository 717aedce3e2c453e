"""Who uploads when: aggregation sets and sub-channel reuse (eqs. 19 and 20, and the paper's figure of the sets).

Computing starts at 0 for every device. Device k uploads from max(T_cmp,k, the moment its sub-channel is free)::

    sub-channel 0 | --compute a--[== a ==][==== d ====]
    sub-channel 1 | --compute b-----[=== b ===]--[= e =]
    sub-channel 2 | --compute c--------[===== c =====]
                        set 0: a b c        set 1: d e
"""

import heapq
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedclade.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Timeline:
    """One round's plan; entry i of every array belongs to the i-th device in upload order."""

    device: Ints
    aggregation_set: Ints  # -1 where missed
    subchannel: Ints  # -1 where missed
    predecessor: Ints  # the device whose sub-channel this one reuses; -1: none
    ready: Floats  # computing done
    start: Floats  # upload starts; infinite where missed
    end: Floats
    missed: Bools
    makespan: float  # when the last upload ends
    lower_bound: float  # eq. (11): the largest T_tot of those who upload

    @property
    def arrived(self) -> Ints:
        """Devices that upload, in the order their uploads end."""
        on_time = np.flatnonzero(~self.missed)
        return self.device[on_time[np.argsort(self.end[on_time], kind="stable")]]


def plan_timeline(
    device: Ints,
    ready: Floats,
    upload: Floats,
    subchannels: int,
    *,
    pairing: Literal["first-free", "strict"] = "first-free",
    deadline: float | None = None,
) -> Timeline:
    """Place the uploads of one round. ``ready`` and ``upload`` are seconds, one for each entry of ``device``.

    Order is ascending T_tot = ready + upload. A device that could not end by the deadline, or whose link carries
    nothing, misses the round and takes no sub-channel.
    """
    limit = np.inf if deadline is None else deadline
    order = np.argsort(ready + upload, kind="stable")
    device, ready, upload = device[order], ready[order], upload[order]
    count = len(device)
    channel = np.full(count, -1)
    predecessor = np.full(count, -1)
    start, end = np.full(count, np.inf), np.full(count, np.inf)
    free = [(0.0, c) for c in range(subchannels)]  # a heap of (when it frees up, sub-channel)
    free_at = [0.0] * subchannels
    last_user = [-1] * subchannels
    placed = 0
    for i in range(count):
        c = free[0][1] if pairing == "first-free" else placed % subchannels
        begins = max(float(ready[i]), free_at[c])
        ends = begins + float(upload[i])
        if not ends <= limit or np.isinf(ends):
            continue
        channel[i], predecessor[i], start[i], end[i] = c, last_user[c], begins, ends
        free_at[c], last_user[c] = ends, int(device[i])
        if pairing == "first-free":
            heapq.heapreplace(free, (ends, c))
        placed += 1
    missed = channel < 0
    aggregation_set = np.where(missed, -1, (np.cumsum(~missed) - 1) // subchannels)
    return Timeline(
        device=device,
        aggregation_set=aggregation_set,
        subchannel=channel,
        predecessor=predecessor,
        ready=ready,
        start=start,
        end=end,
        missed=missed,
        makespan=float(end[~missed].max(initial=0.0)),
        lower_bound=float((ready + upload)[~missed].max(initial=0.0)),
    )
