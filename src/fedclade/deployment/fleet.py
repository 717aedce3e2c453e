"""A run on real devices: the simulator's loop with a Trainer, an Edge and a Conductor made of a federation."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.state import RoundRecord, ServerState
from fedclade.data import Population
from fedclade.deployment.flower.federation import Answer, Federation
from fedclade.deployment.flower.messages import COMPARE, DELIVER, EVALUATE, SURVEY, TRAIN, UPLOAD
from fedclade.deployment.measured_edge import MeasuredEdge, Span, as_happened
from fedclade.fleet.answers import Paired, Survey
from fedclade.fleet.simulated import Evaluation, Share, Trainer
from fedclade.fleet.simulated.engines import Engine
from fedclade.fleet.simulated.sgd import Local
from fedclade.runs import REAL_DEVICES, Run, RunWriter, write_beside
from fedclade.scheduling import Timeline
from fedclade.server import Server
from fedclade.simulation import Experiment, OnRound

MESSAGES, LATENCIES = "messages.jsonl", "latencies.csv"
REMEMBERED = 100_000  # evaluations


class GridTrainer:
    """A Trainer and Conductor whose devices are real: they train, and upload when they are called."""

    def __init__(self, config: Config, federation: Federation, edge: MeasuredEdge, local: Local) -> None:
        self._config, self._federation, self._edge, self._local = config, federation, edge, local
        self.parameters = len(local.initial)
        self.incidents = federation.incidents
        self._known: dict[tuple[bytes, str, int], tuple[float, float]] = {}
        self._order: list[int] = []
        self._spans: dict[int, Span] = {}
        self._failed: dict[int, str] = {}
        self._seconds, self._round = 0.0, 0
        self._enrol()

    def muster(self, wait_seconds: float) -> None:
        """Look who is there; where nobody is, wait."""
        self._federation.refresh()
        if not self._federation.node_of:
            self._federation.gather(1, wait_seconds)
        self._enrol()

    def _enrol(self) -> None:
        """Tell the edge of devices it does not know, and who is there."""
        for device in self._federation.devices[self._edge.devices :]:
            # forward and backward: about six operations a parameter and sample
            operations = 6.0 * self.parameters * self._config.training.epochs * device.train_samples
            self._edge.admit(operations / device.flops_per_second, device.upload_seconds(self._edge.model_bits))
        self._edge.present = np.isin(np.arange(self._edge.devices), list(self._federation.node_of))

    def initial_model(self) -> Singles:
        """w0: depends on the seed alone."""
        return self._local.initial.copy()

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        return self._local.named_tensors(model)

    def close(self) -> None:
        """Nothing to let go of."""

    # -------------------------------------------------------------------------------- training

    def announce(self, timeline: Timeline) -> None:
        """Remember whose turn it is when."""
        self._order = timeline.device.tolist()

    def outcome(self, timeline: Timeline) -> tuple[Timeline, Mapping[int, str]]:
        """The round as it went, by the clock."""
        return as_happened(timeline, self._spans, self._seconds, self._edge.subchannels), self._failed

    def train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of each device; one that fails has a row of NaN."""
        updates = np.full((len(devices), self.parameters), np.nan, dtype=np.float32)
        row = {device: i for i, device in enumerate(devices.tolist())}
        allowed = self._config.scheduling.deadline_seconds or self._edge.allowed_seconds(devices)
        turns = _Turns([device for device in self._order if device in row], self._edge.subchannels)
        self._federation.log.note("began", "round", round=round_, deadline_seconds=round(allowed, 1))
        begun = time.monotonic()
        self._spans, self._failed, self._round = {}, {}, round_
        for device in row:
            facts, arrays = {"upload": turns.at_once}, {"models": models[model_of[row[device]]][None]}
            self._federation.send(device, TRAIN, round_, facts, arrays, allowed)
        for answer in self._federation.answers(begun + allowed):
            if answer.failure is None and answer.kind == TRAIN and not turns.at_once:
                turns.trained(answer, begun)
            else:
                self._take(answer, turns.ended(answer, begun), updates[row[answer.device]])
            passed = time.monotonic() - begun
            for device in turns.call(passed) if passed < allowed else ():
                self._federation.send(device, UPLOAD, round_, {}, None, allowed - passed)
        self._seconds = time.monotonic() - begun
        return updates

    def _take(self, answer: Answer, span: Span | None, row: Singles) -> None:
        """Keep what a device sent, or why it sent nothing."""
        why, update = answer.failure, answer.arrays.get("update")
        if why is None and (update is None or update.shape != row.shape or update.dtype != np.float32):
            what = "nothing" if update is None else f"{update.dtype}{list(update.shape)}"
            why = f"error: sent {what}, not float32{list(row.shape)}"
        if why is None and span is not None and update is not None:
            row[:] = update
            self._spans[answer.device] = span
            self._edge.measured(answer.device, span.ready, span.end - span.start)
            return
        self._failed[answer.device] = str(why)
        if str(why).startswith("late"):
            self._edge.overdue(answer.device, answer.arrived - answer.sent)

    # -------------------------------------------------------------------------------- evaluation

    def evaluate(self, models: Singles, devices: Ints, model_of: Ints, share: Share = "test") -> Evaluation:
        """Accuracy and mean loss on the devices' own data, if not known already; NaN where a device is not there."""
        keys = [(hashlib.blake2b(model.tobytes(), digest_size=16).digest(), share) for model in models]
        first = [keys.index(key) for key in keys]  # equal models are asked about once
        wanted: dict[int, list[int]] = {}
        for device, model in zip(devices.tolist(), model_of.tolist(), strict=True):
            unknown = (*keys[model], device) not in self._known and first[model] not in wanted.get(device, ())
            if unknown and device in self._federation.node_of:
                wanted.setdefault(device, []).append(first[model])
        allowed = self._edge.allowed_seconds(np.array(list(wanted), dtype=np.int64))
        until = time.monotonic() + allowed
        for device, asked in wanted.items():
            self._federation.send(device, EVALUATE, self._round, {"share": share}, {"models": models[asked]}, allowed)
        if len(self._known) > REMEMBERED:
            self._known.clear()
        for answer in self._federation.answers(until):
            try:
                told = zip(wanted[answer.device], answer.facts["accuracy"], answer.facts["loss"], strict=True)
                for model, accuracy, loss in told:
                    self._known[(*keys[model], answer.device)] = (float(accuracy), float(loss))
            except (KeyError, TypeError, ValueError) as error:
                why = answer.failure or f"error: {error!r}"
                self.incidents.append(f"device {answer.device} was not evaluated: {why}")
        pairs = zip(devices.tolist(), model_of.tolist(), strict=True)
        found = [self._known.get((*keys[model], device), (np.nan, np.nan)) for device, model in pairs]
        table = np.array(found, dtype=np.float64).reshape(-1, 2)
        return Evaluation(table[:, 0], table[:, 1])

    def compare(self, models: Singles, devices: Ints, first: Ints, second: Ints, share: Share = "validation") -> Paired:
        """Misfit of the second model less that of the first, by class, on the images of each device that is there."""
        rows: dict[int, list[int]] = {}
        for row, device in enumerate(devices.tolist()):
            if device in self._federation.node_of:
                rows.setdefault(device, []).append(row)
        allowed = self._edge.allowed_seconds(np.array(list(rows), dtype=np.int64))
        until = time.monotonic() + allowed
        for device, mine in rows.items():
            pairs = models[np.stack([first[mine], second[mine]], axis=1).ravel()]
            self._federation.send(device, COMPARE, self._round, {"share": share}, {"models": pairs}, allowed)
        shape = (len(devices), self._federation.population().classes)
        found = Paired(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape))
        for answer in self._federation.answers(until):
            mine = rows[answer.device]
            try:
                told = [answer.arrays[name].reshape(len(mine), shape[1]) for name in ("samples", "mean", "squares")]
                if not all(np.isfinite(table).all() for table in told):
                    raise ValueError("not finite")
                found.samples[mine], found.mean[mine], found.squares[mine] = told
            except (KeyError, ValueError) as error:
                self._not_asked(answer, error)
        return found

    def survey(self, models: Singles, devices: Ints, images: int | None = None) -> Survey:
        """Mean misfit by class of every model on training images of each device that is there, or on about so many."""
        there = {device: row for row, device in enumerate(devices.tolist()) if device in self._federation.node_of}
        allowed = self._edge.allowed_seconds(np.array(list(there), dtype=np.int64))
        until = time.monotonic() + allowed
        for device in there:
            self._federation.send(device, SURVEY, self._round, {"images": images or 0}, {"models": models}, allowed)
        classes = self._federation.population().classes
        found = Survey(
            np.zeros((len(devices), classes), dtype=np.int64), np.zeros((len(devices), len(models), classes))
        )
        for answer in self._federation.answers(until):
            row = there[answer.device]
            try:
                samples, misfit = answer.arrays["samples"], answer.arrays["misfit"]
                if samples.shape != (classes,) or misfit.shape != found.misfit[row].shape:
                    raise ValueError("of another shape")
                if samples.dtype.kind != "i" or (samples < 0).any() or not np.isfinite(misfit).all():
                    raise ValueError("no counts, or misfits that are not finite")
                found.samples[row], found.misfit[row] = samples, misfit
            except (KeyError, ValueError) as error:
                self._not_asked(answer, error)
        return found

    def _not_asked(self, answer: Answer, error: Exception) -> None:
        self.incidents.append(f"device {answer.device} was not asked: {answer.failure or f'error: {error!r}'}")

    def deliver(self, models: Mapping[int, tuple[str, Mapping[str, Singles]]]) -> int:
        """Send each device that is there its cluster's model; gives how many took it."""
        there = [device for device in models if device in self._federation.node_of]
        allowed = self._edge.allowed_seconds(np.array(there, dtype=np.int64))
        until = time.monotonic() + allowed
        for device in there:
            cluster, tensors = models[device]
            self._federation.send(device, DELIVER, self._round, {"cluster": cluster}, tensors, allowed)
        return sum(answer.failure is None for answer in self._federation.answers(until))


class _Turns:
    """Who may upload now: in the planned order, of those who have trained, as long as a sub-channel is free.

    Where there is a sub-channel for everybody, nobody has to be called: training and upload are one message.
    """

    def __init__(self, order: list[int], subchannels: int) -> None:
        self._order, self.at_once = order, len(order) <= subchannels
        self._free = list(range(subchannels))
        self._ready: dict[int, float] = {}
        self._sending: dict[int, tuple[float, int]] = {}

    def trained(self, answer: Answer, begun: float) -> None:
        """It has computed, and waits for its turn."""
        self._ready[answer.device] = answer.arrived - begun

    def call(self, now: float) -> list[int]:
        """Those whose turn has come."""
        waiting = [device for device in self._order if device in self._ready and device not in self._sending]
        called = waiting[: len(self._free)]
        for device in called:
            self._sending[device] = (now, self._free.pop(0))
        return called

    def ended(self, answer: Answer, begun: float) -> Span | None:
        """Its upload has arrived or failed, and its sub-channel is free again."""
        arrived = answer.arrived - begun
        if self.at_once:
            computed = answer.sent - begun + answer.seconds
            return Span(computed, computed, arrived, self._order.index(answer.device))
        ready = self._ready.pop(answer.device, 0.0)
        if answer.device not in self._sending:
            return None
        start, channel = self._sending.pop(answer.device)
        self._free.append(channel)
        return Span(ready, start, arrived, channel)


class DeployedServer(Server):
    """The server, with a look at who is there before each round."""

    def __init__(
        self, config: Config, trainer: GridTrainer, edge: MeasuredEdge, federation: Federation, wait_seconds: float
    ) -> None:
        super().__init__(config, trainer, edge, federation.samples, conductor=trainer)
        self._grid_trainer, self._federation, self._wait_seconds = trainer, federation, wait_seconds

    def step(self, state: ServerState) -> tuple[ServerState, RoundRecord] | None:
        """One round, with those who are there now; whoever is new is placed before it."""
        self._grid_trainer.muster(self._wait_seconds)
        known = len(state.last_heard)
        state = self.admit(state, self._federation.samples)
        new = np.arange(known, len(state.last_heard))
        tree, _ = self.grouping.place_unheard(state, new)
        leaf_of = tree.leaf_of()
        for device in new.tolist():
            name = self._federation.devices[device].name
            self.trainer.incidents.append(f"device {device} ({name}) joined, in cluster {leaf_of[device]}")
        return super().step(replace(state, tree=tree))


class Deployment(Experiment):
    """An experiment whose devices are those of a federation."""

    def __init__(self, config: Config, federation: Federation, grace_seconds: float, wait_seconds: float) -> None:
        super().__init__(config)
        self._federation = federation
        self._grace_seconds, self._wait_seconds = grace_seconds, wait_seconds

    @cached_property
    def population(self) -> Population:
        """How much data each device has."""
        return self._federation.population()

    @cached_property
    def engine(self) -> Engine:
        """Each device trains by itself."""
        return Engine("sequential" if self.config.training.engine == "sequential" else "workers", 1)

    @cached_property
    def measured_edge(self) -> MeasuredEdge:
        """Their latencies."""
        bits = float(self.config.edge.bits_per_parameter * len(self._local.initial))
        return MeasuredEdge(self.config.edge.subchannels, bits, self._grace_seconds)

    @cached_property
    def _local(self) -> Local:
        return Local(self.config, self.population, "autograd")  # knows the model; there is no data here

    @cached_property
    def grid_trainer(self) -> GridTrainer:
        """Messages to them."""
        return GridTrainer(self.config, self._federation, self.measured_edge, self._local)

    @cached_property
    def trainer(self) -> Trainer:
        """How updates come about."""
        return self.grid_trainer

    @cached_property
    def server(self) -> Server:
        """The loop."""
        return DeployedServer(self.config, self.grid_trainer, self.measured_edge, self._federation, self._wait_seconds)

    def devices(self) -> pd.DataFrame:
        """Who the devices are: one row each; where they stand and how loud they are nobody knows."""
        self.__dict__.pop("population", None)  # more may have come
        population = self.population
        return pd.DataFrame(
            {
                "device": np.arange(population.devices),
                "planted_group": population.group,
                "train_samples": population.samples,
                "test_samples": [device.test_samples for device in self._federation.devices],
            }
        )

    def _go_on(
        self, writer: RunWriter, state: ServerState, spent: Mapping[str, float], on_round: OnRound | None
    ) -> Run:
        self._federation.log.open(writer.folder / MESSAGES)
        self._write_devices(writer.folder)

        def each_round(progress: Any) -> None:
            self._write_devices(writer.folder)
            write_latencies(writer.folder / LATENCIES, progress.record)
            if on_round:
                on_round(progress)

        return super()._go_on(writer, state, spent, each_round)

    def _write_devices(self, folder: Path) -> None:
        write_beside(folder / REAL_DEVICES, json.dumps(self._federation.to_json(), indent=1).encode())

    def deliver(self, run: Run) -> int:
        """Send the devices that are there their models of a finished run; gives how many took theirs."""
        leaves = run.leaves()
        tensors = {leaf.name: run.model(leaf.name) for leaf in leaves}
        return self.grid_trainer.deliver(
            {device: (leaf.name, tensors[leaf.name]) for leaf in leaves for device in leaf.devices}
        )


def write_latencies(path: Path, record: RoundRecord) -> None:
    """Append what the round was planned with: one line a device."""
    links = record.links
    frame = pd.DataFrame(
        {
            "round": record.round,
            "device": np.arange(len(links.compute_seconds)),
            "compute_seconds": links.compute_seconds,
            "upload_seconds": links.upload_seconds,
        }
    )
    frame.to_csv(path, mode="a", header=not path.exists(), index=False)


def read_latencies(path: Path) -> dict[int, tuple[Floats, Floats]]:
    """By round: computing and upload seconds of every device. A round written twice counts as it was written last."""
    try:
        table = pd.read_csv(path).drop_duplicates(["round", "device"], keep="last").sort_values(["round", "device"])
        columns = table[["compute_seconds", "upload_seconds"]].to_numpy(np.float64)
        rounds = table["round"].to_numpy(np.int64)
        return {int(n): (columns[rounds == n, 0], columns[rounds == n, 1]) for n in np.unique(rounds)}
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: no latencies (round, device, compute_seconds, upload_seconds): {error}") from error
