"""Made-up devices, links and states that several test files share: every number can be worked out by hand.

Each device pulls towards a target of its own, Δw = pull · (target − w), and its loss is its distance from there.
Computing costs 1 J and uploading 10 J. ε1 = 0.5, ε2 = 1, fixed, no warm-up, unless a test says otherwise.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedclade import config as configuration
from fedclade.clustering import find_method
from fedclade.core.arrays import Singles
from fedclade.core.records import RoundRecord
from fedclade.core.state import State
from fedclade.core.stopwatch import Stopwatch
from fedclade.core.tree import Tree
from fedclade.core.updates import HeldUpdates
from fedclade.edge import Links
from fedclade.fleet.fleet import Arrival, Cost
from fedclade.fleet.simulated.fleet import SimulatedFleet
from fedclade.scheduling import Policy
from fedclade.server import Server

INF = float("inf")
FIXED = ["clustering.method=norm-thresholds", "norm_thresholds.bipartition=minmax", "norm_thresholds.warmup_rounds=0"]


class PullingTrainer:
    def __init__(self, targets: Sequence[Sequence[float]], pull: Callable[[int], float]) -> None:
        self.targets = np.array(targets, dtype=np.float32)
        self.parameters = self.targets.shape[1]
        self.pull = pull
        self.trained: list[list[int]] = []
        self.incidents: list[str] = []

    @property
    def examiner(self):
        return self

    def initial_model(self, variant=0):
        return np.full(self.parameters, variant, dtype=np.float32)

    def train(self, round_, models, devices, model_of, steering=None):
        self.trained.append(devices.tolist())
        return np.float32(self.pull(round_)) * (self.targets[devices] - models[model_of])

    classes = 1  # each device holds one image, of one class: its own number

    def positions(self, device, share):
        return np.array([device])

    def labels(self, positions):
        return np.zeros_like(positions)

    def features(self, positions):
        return self.targets[positions]

    def scores(self, model, positions):
        loss = np.linalg.norm(self.targets[positions] - model, axis=1).astype(np.float64)
        return 1 / (1 + loss), loss

    def losses(self, models, positions):
        return np.stack([self.scores(model, positions)[1] for model in models])

    def named_tensors(self, model):
        return {"w": model}


class GivenEdge:
    model_bits = 8.0

    def __init__(self, compute: np.ndarray, upload: np.ndarray, subchannels: int, broadcast: float) -> None:
        self.compute, self.upload, self.subchannels, self.broadcast = compute, upload, subchannels, broadcast
        self.away: Mapping[int, Sequence[int]] = {}  # round -> devices
        self.lost: Mapping[int, Sequence[int]] = {}

    def observe(self, round_: int) -> Links:
        everybody = np.arange(len(self.upload))
        away, lost = (np.isin(everybody, which.get(round_, [])) for which in (self.away, self.lost))
        upload = np.where(away, INF, self.upload)
        rate = self.model_bits / upload
        one = np.ones(len(rate))
        return Links(rate, rate, self.compute, upload, one, 10 * one, rate > 0, away=away, lost=lost)

    def broadcast_seconds(self, models: int) -> float:
        return models * self.broadcast


def make(
    targets: Sequence[Sequence[float]],
    *overrides: str,
    samples: Sequence[int] | None = None,
    compute: float | Sequence[float] = 1.0,
    upload: float | Sequence[float] = 1.0,
    subchannels: int = 10,
    broadcast: float = 0.0,
    pull: Callable[[int], float] = lambda round_: 1.0,
    script: Mapping[int, object] | None = None,
    groups: np.ndarray | None = None,
) -> Server:
    """A server; with a ``script`` (round -> device ids; everybody where it is silent) in place of a policy."""
    everybody = np.arange(len(targets))
    each = np.ones(len(targets))
    config = configuration.load(None, [*FIXED, *overrides])
    trainer = PullingTrainer(targets, pull)
    edge = GivenEdge(compute * each, upload * each, subchannels, broadcast)
    stopwatch = Stopwatch()
    fleet = SimulatedFleet(config, trainer, edge, np.array(samples or [1] * len(targets)), stopwatch)
    server = Server(config, fleet, edge, find_method(config, groups), stopwatch)
    server.trainer = trainer
    if script is not None:
        server.planner.policy = Policy("script", lambda situation: script.get(situation.round, everybody))
    return server


def play(server: Server, rounds: int, state: State | None = None) -> tuple[State, list[RoundRecord]]:
    state, records = state or server.initial_state(), []
    for _ in range(rounds):
        result = server.step(state)
        assert result is not None
        state, record = result
        records.append(record)
    return state, records


def clusters(state: State) -> dict[str, tuple[int, ...]]:
    return {leaf.name: leaf.devices for leaf in state.tree.leaves()}


def kinds(record: RoundRecord) -> list[tuple[str, str]]:
    return [(event.kind, event.node) for event in record.events]


LINE = [[2, 0], [4, 0], [-3, 0], [-3, 0]]  # two groups on a line that hold each other at 0
FACING = [[3], [3], [4], [-3], [-3], [-4]]


# -------------------------------------------------------------------------------- states by hand


def model_of(*numbers: float) -> Singles:
    return np.array(numbers, dtype=np.float32)


def state_of(
    tree: Tree, models: Mapping[str, Sequence[float]], *, samples: Sequence[int] | None = None, round_: int = 1, **facts
) -> State:
    """A state with these clusters and models, in which nothing else is known."""
    devices = tree.device_count
    none = np.zeros(devices, dtype=np.int64)
    stacked = {name: model_of(*numbers) for name, numbers in models.items()}
    given = {
        "round": round_,
        "seconds": 100.0,
        "conventional": None,
        "samples": np.array(samples or [1] * devices),
        "memory": HeldUpdates(len(next(iter(stacked.values())))),
        "last_heard": none,
        "participation": none,
        "energy_joules": np.zeros(devices),
        "present_rounds": none,
        "retry": none[:0],
        "method": None,
        **facts,
    }
    return State(tree=tree, models=stacked, **given)


def arrival_of(updates: Mapping[int, Sequence[float]]) -> Arrival:
    """These devices' updates, and nothing of how they came."""
    devices = np.array(sorted(updates), dtype=np.int64)
    width = len(next(iter(updates.values()))) if updates else 1
    matrix = np.array([updates[device] for device in devices.tolist()], dtype=np.float32).reshape(len(devices), width)
    return Arrival(None, HeldUpdates.of(devices, matrix), None, Cost.nothing(0), 0.0, devices[:0])
