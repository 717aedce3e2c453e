"""A policy of your own: a small function from the situation to device ids.

From this folder::

    fedclade plan quickstart --set scheduling.policy=own_policy:longest_waiting
    fedclade run quickstart --set scheduling.policy=own_policy:longest_waiting
"""

import numpy as np

from fedclade.core.arrays import Ints
from fedclade.scheduling import Situation, policy


@policy("longest-waiting")
def longest_waiting(situation: Situation) -> Ints:
    """The N devices that were not heard for the longest time; of equals, the faster ones."""
    in_order = np.lexsort((situation.total_seconds, situation.last_heard))
    return in_order[: situation.per_round]
