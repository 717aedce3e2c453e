"""Putting a run together: population, trainer, edge and server from one config; run it, plan it, resume it."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclade import config as configuration
from fedclade.clustering import ROOT
from fedclade.config import Config
from fedclade.core import machine
from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import Interrupted, UserError
from fedclade.core.random import generator
from fedclade.core.state import CONVENTIONAL, EvaluationRecord, RoundRecord, ServerState
from fedclade.core.stopwatch import Stopwatch
from fedclade.data import Population, build_population
from fedclade.edge import Links, SimulatedEdge, plausibility
from fedclade.fleet.attacks import HostileTrainer
from fedclade.fleet.simulated import StopRequested, Trainer
from fedclade.fleet.simulated.engines import Engine, build_trainer, choose_engine
from fedclade.metrics import Metric, Outcome
from fedclade.metrics.registry import every_round, find_metrics
from fedclade.models import build_model
from fedclade.report.page import write_run_page
from fedclade.runs import Result, Run, RunWriter, differences, free_folder, read_config
from fedclade.scheduling import ALLOCATIONS, ORDERS, Allocation, ClusterView, Order, Planner, Timeline
from fedclade.scheduling.constraints import Constraint, check_plan
from fedclade.server import Server

OPTIMAL_UP_TO = 30  # devices; a plan of more is compared without the exact solver


@dataclass(frozen=True)
class Plan:
    """One round, planned but not trained."""

    links: Links
    allocation: Allocation
    model_bits: float
    warnings: list[str]

    constraints: list[Constraint]
    compared: Mapping[tuple[str, str], Allocation]  # by order and allocation, of the same devices

    @property
    def timeline(self) -> Timeline:
        """Who uploads when."""
        return self.allocation.timeline


@dataclass(frozen=True)
class Progress:
    """What a progress display wants to know after each round."""

    record: RoundRecord
    state: ServerState
    rounds: int
    wall_seconds: float  # since this process began the run
    done_before: int  # rounds done by earlier processes
    samples_per_second: float  # trained, by the wall clock
    metrics: Mapping[Metric, float]  # those of every round, where the round was evaluated


OnRound = Callable[[Progress], None]


class Experiment:
    """A config with its parts; each part is built when first asked for.

    >>> from fedclade import Experiment
    >>> Experiment("quickstart", overrides=["run.seed=7"]).config.run.seed
    7
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Config = "quickstart",
        overrides: Iterable[str] = (),
        stop_requested: StopRequested = lambda: False,
    ) -> None:
        self.name = Path(source).stem if isinstance(source, str | Path) else "run"
        self.config = source if isinstance(source, Config) else configuration.load(source, overrides)
        self._stop_requested = stop_requested

    @cached_property
    def population(self) -> Population:
        """The devices' data."""
        return build_population(self.config)

    @cached_property
    def engine(self) -> Engine:
        """How they are trained."""
        return choose_engine(self.config, self.population)

    @cached_property
    def trainer(self) -> Trainer:
        """How updates come about."""
        trainer = build_trainer(self.engine, self.config, self.population, self._stop_requested)
        attack = self.config.attack
        if attack.kind == "none":
            return trainer
        return HostileTrainer(trainer, attack, self.population.devices, self.config.run.seed)

    @cached_property
    def edge(self) -> SimulatedEdge:
        """How long things take."""
        return self._edge_of(self.population.samples)

    def _edge_of(self, samples: Ints) -> SimulatedEdge:
        """The edge of devices with so much data each; no trainer is built for it."""
        population = self.population
        _, channels, height, width = population.images.shape
        module = build_model(self.config.model, (channels, height, width), population.classes, self.config.run.seed)
        parameters = sum(weights.numel() for weights in module.parameters())
        return SimulatedEdge(self.config, samples, population.bits_per_sample, parameters)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The config's own metrics."""
        return find_metrics(self.config.run.metrics)

    @cached_property
    def server(self) -> Server:
        """The loop."""
        return Server(self.config, self.trainer, self.edge, self.population.samples)

    def devices(self) -> pd.DataFrame:
        """Who the devices are: one row each."""
        population, traits = self.population, self.edge.devices
        return pd.DataFrame(
            {
                "device": np.arange(population.devices),
                "planted_group": population.group,
                "train_samples": population.samples,
                "test_samples": [len(positions) for positions in population.test],
                "distance_m": traits.distance_m,
                "power_w": traits.power_w,
                "cpu_hz": traits.cpu_hz,
            }
        )

    def plan(self, round_: int = 1, *, devices: int | None = None, compare: bool = False) -> Plan:
        """Links, selection and timeline of one round of phase 1; nothing is trained.

        ``devices`` plans for another number of them, each with as much data as one of the config's own; ``compare``
        does so under every order and allocation, too.
        """
        config, edge, samples = self.config, self.edge, self.population.samples
        if devices is not None:
            samples = generator(config.run.seed, "plan-sizes").choice(samples, devices)
            edge = self._edge_of(samples)
        links = edge.observe(round_)
        everybody, never = ClusterView(np.arange(len(samples)), open=True), np.zeros(len(samples), dtype=np.int64)

        def planned(order: Order, allocation: str) -> Allocation:
            changed = config.scheduling.model_copy(update={"order": order, "allocation": allocation})
            planner = Planner(changed, config.run.seed, edge.subchannels)
            found = planner.plan(round_, links, (everybody,), samples, last_heard=never, retry=never[:0])
            if found.choose is not None:  # as if all updates were of the same size
                found = found.choose(np.ones(len(found.computing)))
            return found.allocation

        mine = planned(config.scheduling.order, config.scheduling.allocation)
        exact = len(mine.timeline.device) <= OPTIMAL_UP_TO and find_spec("ortools") is not None
        orders = [order for order in ORDERS if compare and (exact or order != "optimal")]
        rules = dict.fromkeys([*ALLOCATIONS, config.scheduling.allocation])  # the user's own, too
        return Plan(
            links,
            mine,
            edge.model_bits,
            plausibility(links, edge.model_bits),
            check_plan(
                mine.timeline,
                edge.subchannels,
                config.scheduling.deadline_seconds,
                config.run.time_budget_seconds,
            ),
            {(order, rule): planned(order, rule) for order in orders for rule in rules},
        )

    def run(self, out: str | Path | None = None, *, overwrite: bool = False, on_round: OnRound | None = None) -> Run:
        """Run to the end in a new directory (``runs/<name>`` unless given); raises Interrupted when asked to stop."""
        server, _ = self.server, self.metrics  # whatever is wrong with the config shows before a directory is made
        folder = Path(out) if out is not None else free_folder(Path("runs"), self.name)
        chosen = {"engine": self.engine.name, "workers": self.engine.workers}
        training = self.config.training.model_copy(update=chosen)  # so that a resumed run is trained the same way
        writer = RunWriter.create(folder, self.config.model_copy(update={"training": training}), overwrite)
        return self._go_on(writer, server.initial_state(), {}, on_round)

    def resume(self, folder: str | Path, on_round: OnRound | None = None) -> Run:
        """Go on from the last checkpoint of a directory; a finished run is left as it is."""
        run = Run(folder)
        for field, (mine, theirs) in differences(self.config, run.config).items():
            if (field, mine) not in {("training.engine", "auto"), ("training.workers", None)}:
                raise UserError(
                    f"{folder}: was started with {field} = {theirs!r}, not {mine!r}: resume without changing the config"
                )
        if run.finished:
            return run
        if other := machine.differences(run.machine, machine.facts()):
            warnings.warn(f"{folder}: {other}", stacklevel=2)
        self.config = run.config
        _ = self.metrics  # shows what is wrong with them before anything is written
        writer, state, spent = RunWriter.reopen(run.folder, self.trainer.parameters, self.server.initial_state())
        return self._go_on(writer, state, spent, on_round)

    def _go_on(
        self, writer: RunWriter, state: ServerState, spent: Mapping[str, float], on_round: OnRound | None
    ) -> Run:
        server, begun, done_before = self.server, time.perf_counter(), state.round
        server.stopwatch = stopwatch = Stopwatch(spent)
        writer.describe(self.devices(), self.metrics)
        try:
            while (end := server.finished(state)) is None:
                result = server.step(state)
                if result is None:
                    end = "time budget"
                    break
                state, record = result
                told = self._told(server, state, record.evaluation)
                own = {metric.name: value for metric, value in told.items() if metric in self.metrics}
                with stopwatch.measure("disk"):
                    writer.record(record, len(state.tree.leaves()), own)
                    if state.round % self.config.run.checkpoint_every == 0:
                        writer.checkpoint(state, stopwatch.spent())
                if on_round:
                    wall_seconds = time.perf_counter() - begun
                    speed = stopwatch.summary()["wall_samples_per_second"]
                    on_round(Progress(record, state, self.config.run.rounds, wall_seconds, done_before, speed, told))
                if self._stop_requested():
                    raise Interrupted
            writer.checkpoint(state, stopwatch.spent())
            writer.describe(self.devices(), self.metrics)  # more devices may have come
            writer.finish(replace(_result(server, state, self.population.group, end), own=self.metrics))
        except Interrupted:
            writer.checkpoint(state, stopwatch.spent())
            raise
        finally:
            writer.close()
            self.trainer.close()
        finished = Run(writer.folder)
        if self.config.run.report:
            write_run_page(finished)
        return finished

    def _told(self, server: Server, state: ServerState, seen: EvaluationRecord | None) -> Mapping[Metric, float]:
        """The metrics of a round; none where it was not evaluated."""
        if seen is None:
            return {}
        outcome = _outcome(server, state, self.population.group, seen.accuracy, seen.conventional_accuracy)
        return every_round(outcome, self.metrics)


def _result(server: Server, state: ServerState, group: Ints, end: str) -> Result:
    """What a finished run leaves behind: the devices are asked once more, about every model."""
    names, accuracy = server.models_by_devices(state)
    of_model = dict(zip(names, accuracy, strict=True))
    models = {**state.models, CONVENTIONAL: state.models[ROOT] if state.conventional is None else state.conventional}
    own = server.evaluate(state).accuracy
    return Result(
        outcome=replace(_outcome(server, state, group, own, of_model[CONVENTIONAL]), accuracy_of=of_model),
        ended_by=end,
        tensors={name: server.trainer.named_tensors(model) for name, model in models.items()},
        machine=machine.facts(),
        wall=server.stopwatch.summary(),
    )


def _outcome(server: Server, state: ServerState, group: Ints, accuracy: Floats, conventional: Floats) -> Outcome:
    """Where the run stands, for its metrics."""
    clustering = server.config.clustering
    everybody = len(group) == state.tree.device_count  # of devices that have just come, the group is not known yet
    return Outcome(
        policy=server.planner.policy.name,
        method=clustering.thresholds if clustering.enabled else "none",
        seed=server.config.run.seed,
        model_bits=server.edge.model_bits,
        planted=group if everybody and len(np.unique(group)) > 1 else None,
        round=state.round,
        seconds=state.seconds,
        tree=state.tree,
        participation=state.participation,
        present_rounds=state.present_rounds,
        energy_joules=state.energy_joules,
        accuracy=accuracy,
        conventional_accuracy=conventional,
    )


def run(
    source: str | Path | Mapping[str, Any] | Config = "quickstart",
    out: str | Path | None = None,
    *,
    overrides: Iterable[str] = (),
    overwrite: bool = False,
    on_round: OnRound | None = None,
) -> Run:
    """Run a preset, a TOML file or a mapping; gives the finished run."""
    return Experiment(source, overrides).run(out, overwrite=overwrite, on_round=on_round)


def resume(folder: str | Path, on_round: OnRound | None = None) -> Run:
    """Go on with an interrupted run."""
    return Experiment(read_config(Path(folder))).resume(folder, on_round)
