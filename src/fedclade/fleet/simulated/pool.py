"""Worker processes: a pool that lives as long as the run, one torch thread each.

Data set, models and updates are in memory shared by all, so nothing large goes through a pipe; the matrix that a
training's updates are written into is the one that the server keeps. Tasks are dealt longest first. A worker that dies
is replaced and its task done again: every draw is keyed by (seed, round, device), so the round's result is the same to
the byte.
"""

import contextlib
import errno
import json
import os
import selectors
import subprocess
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import Interrupted, UserError
from fedclade.core.lists import Lists
from fedclade.data import Population
from fedclade.fleet.simulated.looks import Part, SharedLooks
from fedclade.fleet.simulated.net import Step
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.fleet.simulated.sgd import longest_first
from fedclade.fleet.simulated.streamed import Digest, Recipe, digested
from fedclade.fleet.simulated.trainer import Steering, StopRequested
from fedclade.fleet.updates import SHARED_MEMORY, SharedArray, shared_copy

MAX_DEATHS = 3  # of workers at one task, before the run gives up
_LITTLE_MEMORY = f"{SHARED_MEMORY} has too little room"
_NO_ROOM = f"neither {SHARED_MEMORY} nor the folder of temporary files has room for what worker processes share"
POLL_SECONDS = 0.2  # how often a request to stop is looked for
DIGESTS = 16  # chunks for each worker whose digests are in memory at once


@dataclass
class _Worker:
    process: "subprocess.Popen[bytes]"
    reply: BinaryIO
    task: "_Task | None" = None


@dataclass
class _Task:
    number: int
    message: bytes
    deaths: int = field(default=0)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class WorkersTrainer(SequentialTrainer):
    """A Trainer whose devices are trained, and whose models are looked at, by worker processes."""

    def __init__(
        self,
        config: Config,
        population: Population,
        stop_requested: StopRequested = lambda: False,
        *,
        workers: int,
        step: Step = "lean",
    ) -> None:
        super().__init__(config, population, stop_requested, step=step)
        self._config, self._population, self._count, self._step = config, population, workers, step
        self._shared: dict[str, SharedArray] = {}
        self._workers: list[_Worker] = []
        self._trainings = 0
        self._alone = self._told = False
        self.examiner = SharedLooks(self.local, self._looked, workers)

    def _start_all(self) -> None:
        """At the first training: whoever only plans needs no processes."""
        population = self._population
        lists = Lists.of([*population.train, *population.validation, *population.test])
        self._shared = {
            "images": shared_copy(population.images),
            "labels": shared_copy(population.labels),
            "order": shared_copy(lists.flat),
            "ends": shared_copy(lists.ends),
        }
        self._setup: dict[str, Any] = {
            "config": self._config.model_dump_json(),
            "step": self._step,
            "task": asdict(population.task),
            "mean": population.mean,
            "std": population.std,
            "arrays": {name: shared.address for name, shared in self._shared.items()},
        }
        self._workers = [self._start() for _ in range(self._count)]

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, in the order given; in this process where there is no room for what workers share."""
        used, starts_from = np.unique(model_of, return_inverse=True)

        def room() -> dict[str, SharedArray]:
            shared = {"models": shared_copy(models[used]), "updates": SharedArray((len(devices), self.parameters))}
            return shared if steering is None else {**shared, "vectors": shared_copy(steering.vectors)}

        shared = self._prepared(room)
        if shared is None:
            return super().train(round_, models, devices, model_of, steering)
        self._trainings += 1
        proximal = None if steering is None else steering.proximal
        self._serve(deque(self._tasks(round_, devices, starts_from, shared, proximal)))
        for each in shared.values():
            each.forget()
        return shared["updates"].array

    def digests(self, recipe: Recipe, weights: list[Singles], signs: Singles, width: int) -> Iterator[Digest]:
        """Of each chunk of a recipe in order, made by the worker that trains it."""
        chunks = [chunk for _, chunk in recipe.chunks()]
        for first in range(0, len(chunks), DIGESTS * self._count):
            some = slice(first, first + DIGESTS * self._count)
            yield from self._digests(chunks[some], weights[some], signs, width)

    def _digests(self, chunks: list[Recipe], weights: list[Singles], signs: Singles, width: int) -> Iterator[Digest]:
        ends = np.cumsum([0, *(len(chunk.devices) for chunk in chunks)]).tolist()

        def room() -> dict[str, SharedArray]:
            return {
                "models": shared_copy(chunks[0].models),
                "weights": shared_copy(np.concatenate(weights, axis=1)),
                "signs": shared_copy(signs),
                "norms": SharedArray((ends[-1],), "float64"),
                "sketches": SharedArray((ends[-1], width)),
                "sums": SharedArray((len(chunks), len(weights[0]), self.parameters), "float64"),
            }

        shared = self._prepared(room)
        if shared is None:
            for chunk, shares in zip(chunks, weights, strict=True):
                yield digested(chunk.trained_by(self), shares, signs, width)
            return
        addresses = {name: array.address for name, array in shared.items()}
        tasks = list[_Task]()
        for number, chunk in enumerate(chunks):
            recipe = {"round": chunk.round, "devices": chunk.devices.tolist(), "model_of": chunk.model_of.tolist()}
            told = {"number": number, "digest": ends[number : number + 2], **recipe, **addresses}
            tasks.append(_Task(number, _line(told)))
        self._serve(deque(tasks))
        for each in shared.values():
            each.forget()
        norms, sketches, sums = (shared[name].array for name in ("norms", "sketches", "sums"))
        for number, (start, end) in enumerate(pairwise(ends)):
            yield Digest(norms[start:end], sketches[start:end], sums[number])

    def _prepared(self, room: Callable[[], dict[str, SharedArray]]) -> dict[str, SharedArray] | None:
        """The workers started, and what they are to share; None where there is no room for it."""
        if self._alone:
            return None
        try:
            if not self._workers:
                self._start_all()
            shared = room()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self.close()
            self._alone = True
            warnings.warn(f"{_NO_ROOM}: all devices are trained in this process", stacklevel=3)
            return None
        if not self._told and any(each.lacked_room for each in (*self._shared.values(), *shared.values())):
            self._told = True
            warnings.warn(f"{_LITTLE_MEMORY}: worker processes share files in {tempfile.gettempdir()}", stacklevel=3)
        return shared

    def _looked(self, models: Singles, positions: Ints, parts: Sequence[Part]) -> Floats | None:
        """What ``Net.looks`` gives, each worker taking some of the parts; None where there are none, or no room."""
        if not self._workers:
            return None
        try:
            found = SharedArray((2, len(models), len(positions)), "float64")
            shared = {"models": shared_copy(models), "positions": shared_copy(positions), "found": found}
        except OSError:  # there is no room for what is shared
            return None
        addresses = {name: array.address for name, array in shared.items()}
        lines = [_line({"number": number, "look": part, **addresses}) for number, part in enumerate(parts)]
        self._serve(deque(_Task(number, line) for number, line in enumerate(lines)))
        for array in shared.values():
            array.forget()
        return found.array

    def _tasks(
        self, round_: int, devices: Ints, model_of: Ints, shared: dict[str, SharedArray], proximal: float | None
    ) -> list[_Task]:
        """Longest first, as many devices at once as are trained together."""
        in_order, tasks = longest_first(self._population.samples[devices], self.local.devices_at_once), []
        for number, rows in enumerate(in_order):
            message = {
                "number": number,
                "round": round_,
                "rows": rows.tolist(),
                "devices": devices[rows].tolist(),
                "model_of": model_of[rows].tolist(),
                "training": self._trainings,
                "proximal": proximal,
                **{name: array.address for name, array in shared.items()},
            }
            tasks.append(_Task(number, _line(message)))
        return tasks

    def _serve(self, pending: deque[_Task]) -> None:
        """Deal until all is done. Asked to stop, deal no more, wait for what is under way, and say so."""
        with selectors.DefaultSelector() as selector:
            for index, worker in enumerate(self._workers):
                selector.register(worker.reply, selectors.EVENT_READ, index)
            self._deal(pending, selector)

    def _deal(self, pending: deque[_Task], selector: selectors.BaseSelector) -> None:
        stopping = False
        while True:
            stopping = stopping or self._stop_requested()
            for worker in self._workers:
                if worker.task is None and pending and not stopping:
                    worker.task = pending.popleft()
                    with contextlib.suppress(BrokenPipeError):  # its end shows below
                        assert worker.process.stdin is not None
                        worker.process.stdin.write(worker.task.message)
                        worker.process.stdin.flush()
            if not any(worker.task for worker in self._workers):
                break
            for key, _ in selector.select(POLL_SECONDS):
                worker = self._workers[key.data]
                if worker.reply.readline():
                    worker.task = None
                    continue
                selector.unregister(key.fileobj)
                self._workers[key.data] = replacement = self._replace(worker)
                selector.register(replacement.reply, selectors.EVENT_READ, key.data)
                if worker.task is not None:
                    pending.appendleft(worker.task)
        if stopping:
            raise Interrupted

    def _replace(self, worker: _Worker) -> _Worker:
        """A new worker for one that died; its task goes back to the queue unless it keeps killing them."""
        code = worker.process.wait()
        worker.reply.close()
        if worker.task is not None:
            worker.task.deaths += 1
            if worker.task.deaths >= MAX_DEATHS:
                raise UserError(
                    f"training.workers: {MAX_DEATHS} worker processes died at the same task (last exit code {code}); "
                    'is there enough memory? training.engine = "sequential" needs the least'
                )
        self.incidents.append(f"a worker process died (exit code {code}) and was replaced")
        return self._start()

    def _start(self) -> _Worker:
        reading, writing = os.pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "fedclade.fleet.simulated.worker"],
            stdin=subprocess.PIPE,
            pass_fds=[writing],
            env=environment,
        )
        os.close(writing)
        assert process.stdin is not None
        process.stdin.write(json.dumps({**self._setup, "reply": writing}).encode() + b"\n")
        process.stdin.flush()
        return _Worker(process, os.fdopen(reading, "rb"))

    def close(self) -> None:
        """End the workers: their input ends, so do they."""
        for worker in self._workers:
            assert worker.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                worker.process.stdin.close()
        for worker in self._workers:
            worker.process.wait()
            worker.reply.close()
        for shared in self._shared.values():
            shared.forget()
        self._workers, self._shared = [], {}
