"""How many devices a panel needs: enough of the smallest group that is to be found, with a stated probability.

Half of a panel is drawn from everybody and holds a group by its share of the cluster. The other half is drawn from the
few whom the cluster's model fits worst. Where it does not fit a small group, that is where this is, or half of it, as
images are few and losses noisy. Both counts follow the binomial law.
"""

import numpy as np
from scipy.special import bdtr

from fedclade.config import ClusteringConfig
from fedclade.core.arrays import Floats

NEEDED = 6  # devices of a group by which cross-evaluation finds it, as a rule: see docs/how-to/many-devices.md
AMONG_WORST = 0.5  # share of a group that the cluster's model does not fit that is among those it fits worst


def panel_size(settings: ClusteringConfig) -> int:
    """What ``panel_devices`` comes to: the least even number that will do."""
    if settings.panel_devices is not None:
        return settings.panel_devices
    few, enough = NEEDED, 2 * NEEDED
    while chance(settings, enough, settings.panel_smallest) < settings.panel_chance:
        few, enough = enough, 2 * enough
    while enough - few > 2:
        middle = (few + enough) // 4 * 2
        if chance(settings, middle, settings.panel_smallest) < settings.panel_chance:
            few = middle
        else:
            enough = middle
    return enough


def chance(settings: ClusteringConfig, size: int, share: float, ill_fitted: bool = True) -> float:
    """How likely a panel of so many devices holds enough of a group that is this share of its cluster.

    ``ill_fitted``: whether the cluster's model does not fit the group; else all of a panel is drawn from everybody.
    """
    worst = settings.panel_worst
    half = size // 2 if worst and ill_fitted else 0
    few = np.convolve(_few(size - half, share), _few(half, min(1.0, AMONG_WORST * share / worst) if worst else 0.0))
    return 1.0 - float(few[:NEEDED].sum())


def _few(count: int, share: float) -> Floats:
    """The probabilities of 0, 1, … of so many, each with this probability; up to one less than are needed."""
    below = np.array([1.0 if k >= count else bdtr(k, count, share) for k in range(NEEDED)])
    return np.diff(below, prepend=0.0)
