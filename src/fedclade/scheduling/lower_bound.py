"""How short a round could be at best: uploads with ready times on N equal sub-channels.

If uploads could be interrupted and moved, the shortest round would be (by max-flow = min-cut over the moments at which
devices become ready) the largest of

- the largest T_tot = ready + upload (eq. 11), and
- for every set S of at least N devices, (Σ_S upload + the N smallest ready times of S) / N:
  the i-th sub-channel cannot be of use to S before the i-th of its devices is ready.

The best S has a simple form, so both are found in one pass. No real schedule, which does not interrupt, is shorter.
"""

import heapq

import numpy as np

from fedclade.core.arrays import Floats


def lower_bound(ready: Floats, upload: Floats, subchannels: int) -> float:
    """The makespan of the best schedule that may interrupt uploads: O(K log K).

    For a threshold i in order of ready times, S is everybody after i, and of the others the N of largest T_tot.
    """
    order = np.argsort(ready, kind="stable")
    total, length = (ready + upload)[order], upload[order]
    after = np.cumsum(length[::-1])[::-1] - length  # uploads of everybody later
    best = float(total.max(initial=0.0))
    first: list[float] = []  # a heap of the N largest T_tot so far
    in_first = 0.0
    for latency, later in zip(total.tolist(), after.tolist(), strict=True):
        if len(first) < subchannels:
            heapq.heappush(first, latency)
            in_first += latency
        else:
            in_first += latency - heapq.heappushpop(first, latency)
        if len(first) == subchannels:
            best = max(best, (in_first + later) / subchannels)
    return best
