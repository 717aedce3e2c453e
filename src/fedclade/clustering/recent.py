"""What is known lately of devices: of those just heard, and of those whose last update is still young enough."""

import numpy as np

from fedclade.clustering.method import Norms
from fedclade.clustering.similarity import discounted, mean_similarity_to, mean_update_norm
from fedclade.config import ClusteringConfig, Config
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.state import State
from fedclade.core.updates import HeldUpdates, Updates, sketch_signs
from fedclade.edge.latency import local_steps
from fedclade.fleet.fleet import Arrival


class Memory:
    """Keeps each device's last update for later rounds: whole, or as a sketch."""

    def __init__(self, config: Config, parameters: int, whole: bool = True) -> None:
        """``whole``: whether updates can be kept whole, if the config wants it."""
        width = config.clustering.remembered_of(whole)
        self.width = parameters if width is None else width
        self._signs = None if width is None else sketch_signs(config.run.seed, parameters)

    def renewed(self, memory: HeldUpdates, updates: Updates) -> HeldUpdates:
        """With what was just heard."""
        if self._signs is not None:
            return memory.renewed_by(updates.sketched(self._signs, self.width))
        assert isinstance(updates, HeldUpdates)
        return memory.renewed_by(updates)


def recent(state: State, members: Ints, config: ClusteringConfig) -> Ints:
    """Those whose last known update is young enough to tell of them."""
    heard = state.last_heard[members]
    return members[(heard > 0) & (state.round - heard <= config.age_limit)]


def known_updates(state: State, arrival: Arrival, devices: Ints) -> Updates:
    """What tells of these devices: the updates that just arrived if all of them were heard, else the memory."""
    return arrival.updates if np.isin(devices, arrival.heard).all() else state.memory


def trust(state: State, devices: Ints, config: ClusteringConfig) -> Floats:
    """1 for an update of this round, less the older it is."""
    return config.age_discount ** (state.round - state.last_heard[devices]).astype(np.float64)


def similarity(state: State, arrival: Arrival, devices: Ints, config: ClusteringConfig) -> Singles:
    """All cosines between some devices' updates, drawn towards 0 where these are old."""
    cosines = known_updates(state, arrival, devices).cosines(devices)
    return discounted(cosines, trust(state, devices, config))


def cluster_norms(state: State, arrival: Arrival, members: Ints, config: Config) -> Norms:
    """How far a cluster pulls (line 18): of the members whose updates are young enough."""
    devices = recent(state, members, config.clustering)
    if len(devices) == 0:
        return Norms(0.0, 0.0, 0)
    settings, training = config.norm_thresholds, config.training
    updates, weights = known_updates(state, arrival, devices), trust(state, devices, config.clustering)
    paper, scale = config.clustering.method == "norm-thresholds", np.ones(len(devices), dtype=np.float64)
    if paper and settings.norm == "per-step":
        rate = training.learning_rate * training.learning_rate_decay ** (state.last_heard[devices] - 1.0)
        scale = np.asarray(1.0 / (rate * local_steps(training, state.samples[devices])))
    if paper and settings.weighting == "samples":
        weights = weights * state.samples[devices]
    mean = mean_update_norm(updates, devices, weights, scale)
    return Norms(mean, float((updates.norms(devices) * scale).max()), len(devices))


def completed(state: State, name: str, devices: Ints, side: Bools) -> tuple[Ints, Ints]:
    """Both children of a cut with all members of the cluster.

    Members whom the cut does not name go where their last known update is closer to. Whoever was never heard waits in
    the larger child until first heard.
    """
    members = state.tree.members(name)
    first, second = devices[~side], devices[side]
    known = state.last_heard[members] > 0
    old = np.setdiff1d(members[known], devices)
    memory = state.memory
    to_second = mean_similarity_to(memory, old, second) > mean_similarity_to(memory, old, first)
    never = members[~known]
    joins_second = [old[to_second], never if len(second) > len(first) else never[:0]]
    second = np.sort(np.concatenate([second, *joins_second]))
    return np.setdiff1d(members, second), second
