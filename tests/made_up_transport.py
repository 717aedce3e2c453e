"""A Transport without a network: its devices are partitions of a simulator's population, in this process."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.data import build_population
from fedclade.deployment.register import Device, Inputs, Register, by_name
from fedclade.deployment.transport import ASK, QUESTION, TRAIN, UPLOAD, Failure, MessageLog, Reply
from fedclade.fleet.questions import OWN_UPDATE, find_question
from fedclade.fleet.simulated.sgd import Local

Told = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]


class MadeUpTransport:
    """Device k is called by its number, and is there while it is in ``here``.

    ``faults`` says what happens in place of a device's work, by (device, kind, round): a kind of failure, or a function
    that makes a reply's facts and arrays.
    """

    def __init__(self, config: Config, here: set[int] | None = None) -> None:
        self.register, self.log, self.incidents = Register(config.deployment), MessageLog(), list[str]()
        self.present: set[int] = set()
        self._population = build_population(config)
        self._local = Local(config, self._population, "autograd")
        self.here = set(range(self._population.devices)) if here is None else here
        self.faults: dict[tuple[int, str, int], Failure | Callable[[], Told]] = {}
        self.seen: list[tuple[str, int, int]] = []  # kind, device, round
        self.before_round: Callable[[], object] = lambda: None
        self.delivered: dict[int, Mapping[str, np.ndarray]] = {}
        self._number: dict[int, int] = {}  # of a partition
        self._kept: dict[int, np.ndarray] = {}
        self._made: dict[int, np.ndarray] = {}  # each device's last update
        self._waiting: list[tuple[int, str, int, dict, dict, float]] = []

    def refresh(self) -> None:
        self.before_round()
        population = self._population
        shape = population.images.shape[1:]
        inputs = Inputs((shape[0], shape[1], shape[2]), population.task.outputs, population.mean, population.std)
        for name in by_name(str(k) for k in self.here):
            k = int(name)
            samples = len(population.train[k]), len(population.test[k])
            device = Device(name, *samples, int(population.group[k]), 1e9, 0.01, len(population.validation[k]))
            self._number[k] = self.register.seat(device, inputs)
        self.present = {self._number[k] for k in self.here}

    def gather(self, wanted: int, seconds: float) -> None:
        self.refresh()
        if not self.present:
            raise UserError(f"no device answered within {seconds:g} s")

    def send(self, device, kind, round_, facts, arrays, seconds) -> None:
        self.log.note("sent", kind, round=round_, device=device)
        self.seen.append((kind, device, round_))
        self._waiting.append((device, kind, round_, dict(facts), dict(arrays), time.monotonic()))

    def replies(self, until: float) -> Iterator[Reply]:
        while self._waiting:
            device, kind, round_, facts, arrays, sent = self._waiting.pop(0)
            fault = self.faults.get((device, kind, round_))
            if device not in self.present:
                fault = "gone"
            if isinstance(fault, str):
                if fault in ("late", "gone"):
                    self.present.discard(device)
                yield Reply(device, kind, sent, time.monotonic(), failure=fault, why="as the test says")
                continue
            told, found = fault() if fault else self._work(device, kind, round_, facts, arrays)
            yield Reply(device, kind, sent, time.monotonic(), told, found)

    def _work(self, device: int, kind: str, round_: int, facts: dict, arrays: dict) -> Told:
        me = int(self.register.devices[device].name)
        if kind == TRAIN:
            (update,) = self._local.train_many(round_, arrays["models"], np.array([me]), np.array([0]))
            self._made[device] = update
            if facts["upload"]:
                return {"seconds": 0.0}, {"update": update}
            self._kept[device] = update
            return {"seconds": 0.0}, {}
        if kind == UPLOAD:
            return {}, {"update": self._kept.pop(device)}
        if kind == ASK:
            if device in self._made:
                arrays[OWN_UPDATE] = self._made[device]
            question = find_question(facts.pop(QUESTION)).read(facts, arrays, me)
            return question.reply(question.run(self._local))
        self.delivered[device] = arrays
        return {}, {}
