"""Updates that are not to be used, whatever the method: far larger than is usual among those who train one model."""

from collections.abc import Mapping

import numpy as np

from fedclade.clustering.similarity import absurd
from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.state import State
from fedclade.edge.latency import local_steps
from fedclade.fleet.fleet import Arrival


def too_large(state: State, arrival: Arrival, config: Config) -> Mapping[int, str]:
    """Devices whose updates are far larger than is usual in their cluster, each with the reason.

    Where a cluster is too small to tell what is usual, all devices tell it.
    """
    reasons, settings = dict[int, str](), config.aggregation
    everyone = arrival.heard
    for leaf in state.tree.leaves():
        present = np.intersect1d(arrival.heard, leaf.devices)
        whose, norms = _compared(state, arrival, np.array(leaf.devices, dtype=np.int64), settings.absurd_compared)
        if len(whose) < settings.absurd_compared:
            whose, norms = everyone, arrival.updates.norms(everyone)
        if len(whose) < settings.absurd_compared:
            continue
        accepted = state.last_heard[whose] > 0  # who never was may be so for good reason
        telling = accepted if accepted.sum() >= settings.absurd_telling else np.ones_like(accepted)
        steps = local_steps(config.training, state.samples[whose])
        usual = np.median(norms[telling])
        for row in np.flatnonzero(absurd(norms, steps, telling, settings.absurd_factor) & np.isin(whose, present)):
            reasons[int(whose[row])] = f"norm {norms[row]:.3g}, usual is {usual:.3g}"
    return reasons


def _compared(state: State, arrival: Arrival, members: Ints, enough: int) -> tuple[Ints, np.ndarray]:
    """The members heard now and the norms of their updates; if these are few, also those heard before."""
    present = np.intersect1d(arrival.heard, members)
    silent = np.setdiff1d(np.intersect1d(members, state.memory.devices), arrival.plan.computing)
    if len(present) >= enough:
        silent = silent[:0]
    whose = np.concatenate([present, silent])
    return whose, np.concatenate([arrival.updates.norms(present), state.memory.norms(silent)])
