"""An allocation rule of your own: sub-channels of unequal bandwidth (the paper's λ_k B) that all end together.

From this folder::

    fedclade plan quickstart --set scheduling.allocation=own_allocation:even_ends
    fedclade run quickstart --set scheduling.allocation=own_allocation:even_ends
"""

import numpy as np

from fedclade.scheduling import Allocation, Slots, rule


@rule("even-ends")
def even_ends(slots: Slots) -> Allocation:
    """Widen the sub-channels that end late and narrow those that end early; of 50 such steps, keep the shortest."""
    on = ~slots.timeline.missed
    channel = np.where(on, slots.timeline.subchannel, 0)
    width = np.ones(channel.max(initial=0) + 1)
    best = slots.settled()
    for _ in range(50):
        width *= slots.uplink.bandwidth_hz / width.sum()
        found = slots.settled(bandwidth_hz=width[channel])
        if found.timeline.makespan < best.timeline.makespan:
            best = found
        ends = np.full(len(width), 1e-9)
        np.maximum.at(ends, channel[on], found.timeline.end[on])
        width *= ends
    return best
