"""Training on a Ray cluster: actors that live as long as the run, on this machine or on many.

Every actor can train every device, and look at models with its data: these lie once on each node, in the memory that
Ray shares among its processes. Models are put there once for a training or a question. Devices go out in chunks, a few
chunks to each actor at a time, and what comes back is placed by device, never by arrival. An actor keeps nothing
between two chunks, so a chunk whose actor or node died is simply given to another one, and the result is the same to
the byte on the same kind of processor.
"""

import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedclade.config import Config
from fedclade.core import machine
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import Interrupted, UserError
from fedclade.core.lists import Lists
from fedclade.core.task import Task
from fedclade.core.threads import cores
from fedclade.data import Population
from fedclade.fleet.simulated.looks import Part, SharedLooks
from fedclade.fleet.simulated.net import Step
from fedclade.fleet.simulated.pool import MAX_DEATHS
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.fleet.simulated.sgd import Local, longest_first
from fedclade.fleet.simulated.streamed import Digest, Recipe, digested
from fedclade.fleet.simulated.trainer import Steering, StopRequested

IN_FLIGHT = 2  # chunks that an actor has at once: one that it trains, one that waits
POLL_SECONDS = 0.2  # how often a request to stop is looked for
ROUNDING = (
    "processor",
    "instruction_set",
    "blas",
    "torch_version",
    "numpy_version",
)  # facts that the last bits hang on


class Actor:
    """Trains whatever devices it is given; runs in a process of the cluster."""

    def __init__(self, facts: dict[str, Any], images: Any, labels: Any, order: Ints, ends: Ints) -> None:
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nobody writes to it
        if os.path.isdir(facts["folder"]):
            os.chdir(facts["folder"])  # where the user's own modules are looked for
        train, validation, test = Lists(order, ends).in_parts(3)
        nothing, config = np.zeros(len(train), dtype=np.int64), Config.model_validate_json(facts["config"])
        population = Population(
            images,
            labels,
            train,
            validation,
            test,
            nothing,
            Task.of(facts["task"]),
            tuple(facts["mean"]),
            tuple(facts["std"]),
        )
        self._local = Local(config, population, facts["step"])

    def facts(self) -> dict[str, str]:
        """What this actor computes with."""
        return {**machine.facts(), "pid": str(os.getpid())}

    def train(self, recipe: tuple[int, Ints, Ints], models: Singles, steering: Steering | None = None) -> Singles:
        """Δw of each device of (round, devices, which model each trains)."""
        round_, devices, model_of = recipe
        return self._local.train_chunk(round_, models, devices, model_of, steering)

    def look(self, models: Singles, positions: Ints, part: Part) -> Floats:
        """Some of the models at some of the images: scores and losses."""
        (first, last), (start, end) = part
        return self._local.looks(models[first:last], positions[start:end])

    def digest(
        self, recipe: tuple[int, Ints, Ints], models: Singles, weights: Singles, signs: Singles, width: int
    ) -> Digest:
        """What is to be kept of the same updates."""
        return digested(self.train(recipe, models), weights, signs, width)


@dataclass
class _Worker:
    actor: Any
    started: Any  # a reference that is there once the actor is
    ready: bool = False
    chunks: "dict[Any, _Chunk]" = field(default_factory=dict)  # by the reference of their result


@dataclass
class _Chunk:
    number: int
    method: str
    arguments: tuple[Any, ...]
    deaths: int = 0


class RayTrainer(SequentialTrainer):
    """A Trainer whose devices are trained, and whose models are looked at, by a Ray cluster."""

    def __init__(
        self, config: Config, population: Population, stop_requested: StopRequested = lambda: False, *, step: Step
    ) -> None:
        super().__init__(config, population, stop_requested, step=step)
        self._config, self._population, self._step = config, population, step
        self._workers: list[_Worker] = []
        self._ray: Any = None
        self._ours = False  # whether this process started Ray and ends it
        self._data: tuple[Any, ...] = ()
        self._told = set[str]()
        self.examiner = SharedLooks(self.local, self._looked, config.training.workers or cores())

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, in the order given."""
        self._join()
        used, model_of = np.unique(model_of, return_inverse=True)
        starts, updates = self._ray.put(models[used]), np.empty((len(devices), self.parameters), dtype=np.float32)
        at_once = self.local.devices_at_once
        size = at_once * -(-self._config.ray.chunk // at_once)  # the same devices are stacked as in worker processes
        rows_of = list(longest_first(self._population.samples[devices], size))
        tasks = [
            (
                "train",
                ((round_, devices[rows], model_of[rows]), starts, None if steering is None else steering.only(rows)),
            )
            for rows in rows_of
        ]
        for number, found in self._answers(tasks):
            updates[rows_of[number]] = found
        return updates

    def digests(self, recipe: Recipe, weights: list[Singles], signs: Singles, width: int) -> Iterator[Digest]:
        """Of each chunk of a recipe in order, made where its updates are."""
        self._join()
        models, plus_minus = self._ray.put(recipe.models), self._ray.put(signs)
        tasks = [
            ("digest", ((part.round, part.devices, part.model_of), models, shares, plus_minus, width))
            for (_, part), shares in zip(recipe.chunks(), weights, strict=True)
        ]
        early, due = dict[int, Digest](), 0
        for number, found in self._answers(tasks):
            early[number] = found
            while due in early:
                yield early.pop(due)
                due += 1

    def _looked(self, models: Singles, positions: Ints, parts: Sequence[Part]) -> Floats | None:
        """What ``Net.looks`` gives, made by the actors; None before the first training, when there are none."""
        if not self._workers:
            return None
        shared = self._ray.put(models), self._ray.put(positions)
        found = np.empty((2, len(models), len(positions)))
        for number, told in self._answers([("look", (*shared, part)) for part in parts]):
            (first, last), (start, end) = parts[number]
            found[:, first:last, start:end] = told
        return found

    # -------------------------------------------------------------------------------- the cluster

    def _join(self) -> None:
        """At the first training: whoever only plans needs no cluster."""
        if self._workers:
            return
        self._ray = _imported()
        settings, count = self._config.ray, self._config.training.workers
        if not self._ray.is_initialized():
            self._connect(settings.address, count)
            self._ours = True
        lists = Lists.of([*self._population.train, *self._population.validation, *self._population.test])
        arrays = self._population.images, self._population.labels, lists.flat, lists.ends
        self._data = tuple(self._ray.put(array) for array in arrays)
        resources = self._ray.cluster_resources()
        count = count or max(1, int(resources.get("CPU", 1)))
        self.incidents.append(f"trains on Ray {self._ray.__version__}: {_found(self._ray)}, {count} actors")
        self._workers = [self._started() for _ in range(count)]
        self.examiner = SharedLooks(self.local, self._looked, count)

    def _connect(self, address: str, count: int | None) -> None:
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
            os.environ.setdefault(name, "0")
        quiet = {"include_dashboard": False, "num_cpus": count} if address == "local" else {}
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="error", **quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f'ray.address = "{address}": no Ray cluster answers there ({reason}); start one with '
                '"ray start --head", or take "local"'
            ) from error

    def _started(self) -> _Worker:
        """One more actor, as soon as the cluster has a core for it."""
        population = self._population
        facts = {
            "folder": os.getcwd(),
            "config": self._config.model_dump_json(),
            "step": self._step,
            "task": asdict(population.task),
            "mean": population.mean,
            "std": population.std,
        }
        gpus = self._config.ray.gpus
        actor = self._ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(Actor).remote(facts, *self._data)
        return _Worker(actor, actor.facts.remote())

    # -------------------------------------------------------------------------------- dealing chunks

    def _answers(self, tasks: list[tuple[str, tuple[Any, ...]]]) -> Iterator[tuple[int, Any]]:
        """The answer to each task with its number, as they come. Asked to stop: wait for what is under way, say so."""
        pending = deque(_Chunk(number, *task) for number, task in enumerate(tasks))
        waited, stopping, left = time.monotonic(), False, len(tasks)
        while left:
            stopping = stopping or self._stop_requested()
            if not stopping:
                self._deal(pending)
            under_way = {ref: worker for worker in self._workers for ref in worker.chunks}
            if stopping and not under_way:
                break
            starting = {worker.started: worker for worker in self._workers if not worker.ready}
            done, _ = self._ray.wait([*under_way, *starting], num_returns=1, timeout=POLL_SECONDS)
            waited = time.monotonic() if done or under_way else waited
            if time.monotonic() - waited > self._config.ray.start_seconds:
                raise UserError(f"ray.address: no actor could be started within {self._config.ray.start_seconds:g} s")
            for ref in done:
                worker = under_way.get(ref) or starting[ref]
                answer = self._got(ref, worker, pending)
                if answer is not None:
                    left -= 1
                    yield answer
        if stopping and left:
            raise Interrupted

    def _deal(self, pending: deque[_Chunk]) -> None:
        """Give every actor that is there a few chunks."""
        for _ in range(IN_FLIGHT):
            for worker in self._workers:
                if pending and worker.ready and len(worker.chunks) < IN_FLIGHT:
                    chunk = pending.popleft()
                    worker.chunks[getattr(worker.actor, chunk.method).remote(*chunk.arguments)] = chunk

    def _got(self, ref: Any, worker: _Worker, pending: deque[_Chunk]) -> tuple[int, Any] | None:
        """What came: an answer, an actor that is ready, or the news of its death, which sends its chunks back."""
        if worker not in self._workers:
            return None  # its death was told by another chunk of its
        try:
            found = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from error
        except self._ray.exceptions.RayError as error:
            self._bury(worker, pending, type(error).__name__)
            return None
        if ref == worker.started:
            worker.ready = True
            self._compare(found)
            return None
        return worker.chunks.pop(ref).number, found

    def _bury(self, worker: _Worker, pending: deque[_Chunk], why: str) -> None:
        """Replace an actor that died; its chunks go back to the others unless they keep killing them."""
        self.incidents.append(f"a Ray actor died ({why}); {len(worker.chunks)} chunks are trained again elsewhere")
        for chunk in worker.chunks.values():
            chunk.deaths += 1
            if chunk.deaths >= MAX_DEATHS:
                raise UserError(
                    f"ray.chunk = {self._config.ray.chunk}: {MAX_DEATHS} actors died at the same chunk; is there "
                    "enough memory on the nodes? A smaller chunk needs less"
                )
            pending.appendleft(chunk)
        worker.chunks.clear()
        self._workers[self._workers.index(worker)] = self._started()

    def _compare(self, theirs: dict[str, str]) -> None:
        """Tell once of every kind of processor or library that is not this one: the last bits may differ."""
        here = machine.facts()
        if theirs["fedclade_version"] != here["fedclade_version"]:
            raise UserError(
                f"ray.address: a node has fedclade {theirs['fedclade_version']}, this one {here['fedclade_version']}"
            )
        other = [f"{name} {theirs[name]} instead of {here[name]}" for name in ROUNDING if theirs[name] != here[name]]
        told = f"a Ray node computes otherwise, so that the last bits may differ: {'; '.join(other)}"
        if other and told not in self._told:
            self._told.add(told)
            self.incidents.append(told)
            warnings.warn(told, stacklevel=2)

    def close(self) -> None:
        """End the actors, and Ray, if it was started for this run."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        if self._ours:
            self._ray.shutdown()
        self._workers, self._data, self._ours = [], (), False


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError('training.engine = "ray": needs the extra "ray": pip install "fedclade[ray]"') from error
    return ray


def _found(ray: Any) -> str:
    """What a cluster has, in words."""
    has, nodes = ray.cluster_resources(), sum(1 for node in ray.nodes() if node["Alive"])
    memory = has.get("memory", 0.0) / 2**30
    return f"{nodes} nodes, {has.get('CPU', 0):g} cores, {has.get('GPU', 0):g} GPUs, {memory:.1f} GiB"
