"""One run: its parts put together from a config, the loop, and who listens to it. Run it, plan it, resume it.

What trains is imported when it is first asked for: a plan does not wait for torch.
"""

import contextlib
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from fedclade import config as configuration
from fedclade.clustering import find_method
from fedclade.config import Config
from fedclade.core import machine
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import Interrupted, UserError
from fedclade.core.random import generator
from fedclade.core.records import EvaluationRecord, RoundRecord
from fedclade.core.state import BEST, CONVENTIONAL, LOCAL, State
from fedclade.core.stopwatch import Stopwatch
from fedclade.core.tree import ROOT
from fedclade.data import Population, Source, populate, read_source
from fedclade.data.drift import Drift, drift_of
from fedclade.data.given import given_name, source_of_devices
from fedclade.data.poison import hostile_devices, poisoned
from fedclade.edge import Edge, SimulatedEdge, plausibility
from fedclade.fleet.attacks import HostileTrainer, LyingFleet
from fedclade.fleet.evaluation import evaluated, models_by_devices, personal_score, tuned_score
from fedclade.fleet.fleet import Fleet, held
from fedclade.fleet.simulated.drifting import DriftingTrainer
from fedclade.fleet.simulated.fleet import SimulatedFleet
from fedclade.fleet.simulated.personal import kept_tensors
from fedclade.fleet.simulated.trainer import StopRequested, Trainer
from fedclade.metrics import Metric, Outcome
from fedclade.metrics.following import Following
from fedclade.metrics.registry import every_round, find_metrics
from fedclade.models import count_parameters, fitted
from fedclade.report.listener import Calls, Listener, OnRound, Progress
from fedclade.report.notebook import shown_progress
from fedclade.report.opened import OpenedRun
from fedclade.report.page import RunPage, write_run_page
from fedclade.runs import (
    REPORT,
    Result,
    RunWriter,
    differences,
    free_folder,
    read_config,
    remove_leftovers,
    take_lock,
)
from fedclade.runs.drift import followed
from fedclade.runs.inputs import check_inputs
from fedclade.scheduling import ALLOCATIONS, ORDERS, Allocation, ClusterView, Order, Planner
from fedclade.scheduling.constraints import check_plan
from fedclade.scheduling.preview import PlannedRound
from fedclade.server import Server

if TYPE_CHECKING:
    from fedclade.fleet.simulated.engines import Engine
    from fedclade.models._trained import ModelCard

OPTIMAL_UP_TO = 30  # devices; a plan of more is compared without the exact solver


# -------------------------------------------------------------------------------- the loop, and who listens to it


class Parts(Protocol):
    """What a run is made of, on simulated devices or on real ones."""

    config: Config

    @property
    def server(self) -> Server:
        """Algorithm 1, with a fleet, an edge, a policy and a method."""
        ...

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The config's own metrics."""
        ...

    def devices(self) -> pd.DataFrame:
        """Who the devices are: one row each."""
        ...

    def groups(self, round_: int) -> Ints:
        """The planted group of each device in a round."""
        ...

    def model_card(self) -> "ModelCard":
        """What one must know to use a model."""
        ...


class Recorder(Listener):
    """Writes the run's directory: every round, checkpoints, and the result."""

    def __init__(self, parts: Parts, writer: RunWriter) -> None:
        self._parts, self._server, self._writer = parts, parts.server, writer

    def began(self, state: State) -> None:
        """Write who the devices are."""
        self._writer.describe(self._parts.devices(), self._parts.metrics, self._parts.model_card().task.score)

    def round_ended(self, progress: Progress) -> None:
        """One transaction, and now and then a checkpoint."""
        state, config = progress.state, self._parts.config
        own = {metric.name: value for metric, value in progress.metrics.items() if metric in self._parts.metrics}
        with self._server.stopwatch.measure("disk"):
            self._writer.record(progress.record, len(state.tree.leaves()), own, by_device=config.by_device)
            if state.round % config.run.checkpoint_every == 0:
                self.interrupted(state)

    def interrupted(self, state: State) -> None:
        """A checkpoint."""
        self._writer.checkpoint(state, self._server.method.save(state.method), self._server.stopwatch.spent())

    def ended(self, state: State, why: str) -> None:
        """A checkpoint, who the devices are, for more may have come, and the result."""
        self.interrupted(state)
        self.began(state)
        evaluations, group = self._writer.table("evaluations"), self._parts.groups(state.round)
        score = self._parts.model_card().task.score
        following = followed(self._writer.table("events"), evaluations, group, score)
        self._writer.finish(_result(self._parts, state, why, following))


def conduct(
    parts: Parts, state: State, listeners: Sequence[Listener] = (), stop_requested: StopRequested = lambda: False
) -> State:
    """The one loop: step until no further round is due, and tell the listeners; gives the last state."""
    server, begun, done_before = parts.server, time.perf_counter(), state.round
    score = parts.model_card().task.score
    for listener in listeners:
        listener.began(state)
    try:
        while (why := server.finished(state)) is None:
            result = server.step(state)
            if result is None:
                why = "time budget"
                break
            state, record = result
            wall_seconds, speed = time.perf_counter() - begun, server.stopwatch.summary()["wall_samples_per_second"]
            told = _told(parts, state, record)
            progress = Progress(record, state, parts.config.run.rounds, wall_seconds, done_before, speed, told, score)
            for listener in listeners:
                listener.round_ended(progress)
            if stop_requested():
                raise Interrupted
    except Interrupted:
        for listener in listeners:
            listener.interrupted(state)
        raise
    for listener in listeners:
        listener.ended(state, why)
    return state


def record_run(
    parts: Parts,
    writer: RunWriter,
    state: State,
    listeners: Sequence[Listener],
    stop_requested: StopRequested,
    before: Sequence[Listener] = (),
) -> OpenedRun:
    """Conduct a run into its directory; its page is written at the end, if the config wants one.

    ``before`` are told of a round before it is recorded.
    """
    pages = [RunPage(writer.folder)] if parts.config.run.report else []
    try:
        conduct(parts, state, [*before, Recorder(parts, writer), *listeners, *pages], stop_requested)
    finally:
        writer.close()
        parts.server.fleet.close()
    return OpenedRun(writer.folder)


def _told(parts: Parts, state: State, record: RoundRecord) -> Mapping[Metric, float]:
    """The metrics of a round; none where it was not evaluated."""
    seen = record.evaluation
    if seen is None:
        return {}
    return every_round(_outcome(parts, state, seen), parts.metrics)


def _result(parts: Parts, state: State, why: str, following: Following | None) -> Result:
    """What a finished run leaves behind: the devices are asked once more, about every model."""
    fleet = held(parts.server.fleet, state.kept)
    if fleet.simulated:
        fleet.muster(state.round)  # the round after it may have been begun in vain, with other data
    names, scores = models_by_devices(fleet, state, parts.config.run)
    of_model = dict(zip(names, scores, strict=True))
    models = {**state.models, CONVENTIONAL: state.models[ROOT] if state.conventional is None else state.conventional}
    seen = evaluated(fleet, state, parts.config.run)
    best = {} if seen.objective is None else seen.objective.best
    models |= {f"{BEST}/{name}": one.model for name, one in best.items()}
    return Result(
        outcome=replace(
            _outcome(parts, state, replace(seen, conventional_score=of_model[CONVENTIONAL]), of_model),
            drift=following,
            personal_score=personal_score(fleet, state) if parts.config.training.ditto else None,
            tuned_score=tuned_score(fleet, state, parts.config.run.fine_tune),
        ),
        ended_by=why,
        tensors=_tensors(parts, state, models),
        card=parts.model_card().metadata(),
        own=parts.metrics,
        machine=machine.facts(),
        wall=parts.server.stopwatch.summary(),
    )


def _tensors(parts: Parts, state: State, models: Mapping[str, Singles]) -> dict[str, dict[str, Singles]]:
    """Every model as named arrays. What stays on devices is in a file of its own, and in a model its members' mean."""
    fleet, kept, patterns = parts.server.fleet, state.kept, parts.config.model.local
    found = {name: fleet.named_tensors(model) for name, model in models.items()}
    if kept is not None and parts.config.training.ditto:
        return {**found, LOCAL: kept_tensors(found[ROOT], ("*",), kept)}
    if kept is None or not patterns:
        return found
    own = kept_tensors(found[ROOT], patterns, kept)
    for name, tensors in found.items():
        node = name.removeprefix(f"{BEST}/")
        members = state.tree.members(node) if node in state.tree.nodes else np.arange(len(kept))
        tensors |= {tensor: np.asarray(rows[members].mean(axis=0), np.float32) for tensor, rows in own.items()}
    return {**found, LOCAL: own}


def _outcome(
    parts: Parts, state: State, seen: EvaluationRecord, of_model: Mapping[str, Floats] | None = None
) -> Outcome:
    """Where the run stands, for its metrics."""
    server, group = parts.server, parts.groups(state.round)
    everybody = len(group) == state.devices  # of devices that have just come, the group is not known yet
    return Outcome(
        policy=server.planner.policy.name,
        method=server.method.name,
        reveals=server.method.reveals,
        seed=parts.config.run.seed,
        downlink_bits=state.downlink_bits,
        uplink_bits=state.uplink_bits,
        planted=group if everybody and len(np.unique(group)) > 1 else None,
        round=state.round,
        seconds=state.seconds,
        tree=state.tree,
        participation=state.participation,
        present_rounds=state.present_rounds,
        energy_joules=state.energy_joules,
        score=seen.score,
        conventional_score=seen.conventional_score,
        scored=parts.model_card().task.score,
        score_of=of_model or {},
        objective=seen.objective,
        asked=None if seen.asked is None or len(seen.asked) == state.devices else seen.asked,
    )


# -------------------------------------------------------------------------------- simulated runs


def simulated_server(
    config: Config,
    trainer: Trainer,
    edge: Edge,
    samples: Ints,
    groups: Ints | None = None,
    stopwatch: Stopwatch | None = None,
    drift: Drift | None = None,
) -> Server:
    """Algorithm 1 with a simulated fleet: updates come from a trainer, times from an edge; D_k and planted groups."""
    watch = stopwatch or Stopwatch()
    fleet: Fleet = SimulatedFleet(config, trainer, edge, samples, watch, drift)
    if config.attack.lies:
        fleet = LyingFleet(fleet, hostile_devices(config.attack, len(samples), config.run.seed))
    return Server(config, fleet, edge, find_method(config, groups), watch)


class Experiment:
    """A config with its parts; each part is built when first asked for.

    Parameters
    ----------
    source : str, Path, Mapping or Config
        A preset's name, a TOML file, a nested mapping or a config.
    overrides : list of str, or Mapping
        Single fields that are changed: ``["run.seed=7"]`` or ``{"run.seed": 7}``.
    stop_requested : function
        Asked now and then whether the run is to stop.
    devices : list, pandas frame, Hugging Face data set or Source
        What each device holds, instead of what ``population.source`` names. A device of a list is a pair (x, y) of
        arrays or tensors, or a torch ``Dataset`` of such pairs. See docs/how-to/own-data.md.

    Examples
    --------
    >>> from fedclade import Experiment
    >>> Experiment("quickstart", overrides=["run.seed=7"]).config.run.seed
    7
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Config = "quickstart",
        overrides: Iterable[str] | Mapping[str, Any] = (),
        stop_requested: StopRequested = lambda: False,
        devices: object = None,
    ) -> None:
        self.name = Path(source).stem if isinstance(source, str | Path) else "run"
        if isinstance(source, Config):
            source = {name: dict(section) for name, section in source}
        self.config = configuration.load(source, overrides)
        self._stop_requested, self._stopwatch = stop_requested, Stopwatch()
        self._given: Source | None = None
        if devices is not None:
            self._given = source_of_devices(devices, self.config.population)
            self.config = _config_of(self.config, self._given)

    @classmethod
    def from_arrays(
        cls,
        source: str | Path | Mapping[str, Any] | Config,
        x: object,
        y: object,
        device_ids: object,
        overrides: Iterable[str] | Mapping[str, Any] = (),
        **facts: object,
    ) -> "Experiment":
        """An experiment with samples ``x``, their classes ``y`` and whose each is; ``facts`` as of a ``Source``."""
        return cls(source, overrides, devices=Source(x, y, device=device_ids, **facts))  # type: ignore[arg-type]

    @cached_property
    def population(self) -> Population:
        """The devices' data."""
        return _populated(self.config, self._given)

    @cached_property
    def engine(self) -> "Engine":
        """How they are trained."""
        from fedclade.fleet.simulated.engines import choose_engine

        return choose_engine(self.config, self.population)

    @cached_property
    def drift(self) -> Drift | None:
        """What changes in the devices' data during the run."""
        return drift_of(self.config, self.population, partial(_populated, self.config, self._given))

    @cached_property
    def trainer(self) -> Trainer:
        """How updates come about."""
        from fedclade.fleet.simulated.engines import build_trainer

        held = self.population if self.drift is None else self.drift.population
        held = poisoned(held, self.config.attack, self.config.run.seed)
        trainer = build_trainer(self.engine, self.config, held, self._stop_requested)
        if self.drift is not None:
            trainer = DriftingTrainer(trainer, self.drift)
        attack = self.config.attack
        if attack.kind == "none" and not attack.lies:
            return trainer
        return HostileTrainer(trainer, attack, self.population.devices, self.config.run.seed)

    @cached_property
    def edge(self) -> SimulatedEdge:
        """How long things take."""
        trained_on = partial(_trained_on, self.config, self.population, self.drift)
        changes = [self.config.refit_from] + ([] if self.drift is None else [self.drift.round])
        return _edge_of(self.config, self.population, trained_on(1), {first: trained_on(first) for first in changes})

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The config's own metrics."""
        return find_metrics(self.config.run.metrics)

    @cached_property
    def server(self) -> Server:
        """Algorithm 1, with a simulated fleet."""
        population = self.population
        return simulated_server(
            self.config,
            self.trainer,
            self.edge,
            population.samples,
            population.group,
            self._stopwatch,
            self.drift,
        )

    def groups(self, round_: int) -> Ints:
        """The planted group of each device in a round."""
        return self.population.group if self.drift is None else self.drift.group(round_)

    def model_card(self) -> "ModelCard":
        """What one must know to use a model."""
        return card_of(self.config, self.population)

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

    def plan(self, round_: int = 1, *, devices: int | None = None, compare: bool = False) -> PlannedRound:
        """Links, selection and timeline of one round of phase 1; nothing is trained.

        ``devices`` plans for another number of them, each with as much data as one of the config's own; ``compare``
        does so under every order and allocation, too.
        """
        config, edge = self.config, self.edge
        samples = _trained_on(config, self.population, self.drift, round_)
        if devices is not None:
            samples = generator(config.run.seed, "plan-sizes").choice(samples, devices)
            edge = _edge_of(config, self.population, samples)
        links = edge.observe(round_)
        everybody, never = ClusterView(np.arange(len(samples)), open=True), np.zeros(len(samples), dtype=np.int64)

        def planned(order: Order, allocation: str) -> Allocation:
            changed = config.scheduling.model_copy(update={"order": order, "allocation": allocation})
            planner = Planner(changed, config.run.seed, edge.subchannels)
            found = planner.plan(round_, links, (everybody,), samples, last_heard=never, called=never[:0])
            if found.choose is not None:  # as if all updates were of the same size
                found = found.choose(np.ones(len(found.computing)))
            return found.allocation

        mine = planned(config.scheduling.order, config.scheduling.allocation)
        exact = len(mine.timeline.device) <= OPTIMAL_UP_TO and find_spec("ortools") is not None
        orders = [order for order in ORDERS if compare and (exact or order != "optimal")]
        rules = dict.fromkeys([*ALLOCATIONS, config.scheduling.allocation])  # the user's own, too
        return PlannedRound(
            round_,
            links,
            links.compute_seconds / (config.training.passes * samples),
            edge.positions(round_),
            mine,
            edge.upload_bits,
            plausibility(links, edge.upload_bits),
            check_plan(
                mine.timeline,
                edge.subchannels,
                config.scheduling.deadline_seconds,
                config.run.time_budget_seconds,
            ),
            {(order, rule): planned(order, rule) for order in orders for rule in rules},
        )

    def run(
        self,
        out: str | Path | None = None,
        *,
        overwrite: bool = False,
        on_round: OnRound | None = None,
        listeners: Sequence[Listener] = (),
    ) -> OpenedRun:
        """Run to the end in a new directory (``runs/<name>`` unless given); raises Interrupted when asked to stop."""
        server, _ = self.server, self.metrics  # whatever is wrong with the config shows before a directory is made
        folder = Path(out) if out is not None else free_folder(Path("runs"), self.name)
        chosen = {"engine": self.engine.name, "workers": self.engine.workers or None}
        training = self.config.training.model_copy(update=chosen)  # so that a resumed run is trained the same way
        model = fitted(self.config.model, *self.population.sample)
        chosen_config = self.config.model_copy(update={"training": training, "model": model})
        writer = RunWriter.create(folder, chosen_config, overwrite)
        check_inputs(folder, chosen_config)
        heard_by = _with_calls(on_round, listeners)
        return record_run(self, writer, server.initial_state(), heard_by, self._stop_requested)

    def resume(
        self, folder: str | Path, on_round: OnRound | None = None, listeners: Sequence[Listener] = ()
    ) -> OpenedRun:
        """Go on from the last checkpoint of a directory; a finished run is left as it is."""
        run = checked_for_resume(self.config, folder)
        if run.finished:
            return with_page(run)
        self.config = run.config
        check_inputs(run.folder, run.config)
        server, _ = self.server, self.metrics  # shows what is wrong with them before anything is written
        writer, state, spent = RunWriter.reopen(run.folder, server.initial_state(), server.method.load)
        self._stopwatch.add(spent)
        return record_run(self, writer, state, _with_calls(on_round, listeners), self._stop_requested)


def _with_calls(on_round: OnRound | None, listeners: Sequence[Listener]) -> list[Listener]:
    """Everybody who wants to hear of rounds: a function, if there is one, before the listeners."""
    return [*([Calls(on_round)] if on_round else []), *listeners]


def _trained_on(config: Config, population: Population, drift: Drift | None, round_: int) -> Ints:
    """So many samples each device trains on in a round."""
    rows = np.arange(population.devices) if drift is None else drift.rows(round_)
    held = population if drift is None else drift.population
    return (held.samples + (held.held_out if round_ >= config.refit_from else 0))[rows]


def _edge_of(
    config: Config, population: Population, samples: Ints, later: Mapping[int, Ints] | None = None
) -> SimulatedEdge:
    """The edge of devices with so much data each, at first and later; no trainer is built for it."""
    shape, tokens = population.sample
    parameters = count_parameters(config.model, shape, population.task.outputs, tokens)
    return SimulatedEdge(config, samples, population.bits_per_sample, parameters, later)


def _populated(config: Config, given: Source | None, seen_by: Ints | None = None) -> Population:
    """The devices' data, as they see them or as devices of other groups would; they may be given in Python."""
    return populate(config, read_source(config) if given is None else given, seen_by)


def _config_of(config: Config, given: Source) -> Config:
    """The config that tells of data given in Python what it can: their name, and how many devices there are."""
    true: dict[str, Any] = {"population.source": given_name(given)}
    if given.device is not None:
        true["population.devices"] = int(given.device.max()) + 1
    return configuration.load(config.model_dump(), true)


def card_of(config: Config, population: Population) -> "ModelCard":
    """What one must know to use a model that was trained on a population."""
    from fedclade.models._trained import ModelCard

    shape, tokens = population.sample
    return ModelCard(
        fitted(config.model, shape, tokens).model_dump(),
        shape,
        population.task,
        population.full_scale,
        population.mean,
        population.std,
        tokens,
    )


def checked_for_resume(config: Config, folder: str | Path) -> OpenedRun:
    """The run of a directory, if it was started with this config; warns where it was begun on another machine."""
    run = OpenedRun(folder)
    for field, (mine, theirs) in differences(config, run.config).items():
        left_open = {("training.engine", "auto"), ("training.workers", None), ("model.name", "auto")}
        if (field, mine) not in left_open:
            raise UserError(
                f"{folder}: was started with {field} = {theirs!r}, not {mine!r}: resume without changing the config"
            )
    if not run.finished and (other := machine.differences(run.machine, machine.facts())):
        warnings.warn(f"{folder}: {other}", stacklevel=3)
    return run


def with_page(run: OpenedRun) -> OpenedRun:
    """A finished run, with its page written if it was killed before that."""
    if run.config.run.report and not (run.folder / REPORT).is_file():
        with contextlib.closing(take_lock(run.folder)):
            remove_leftovers(run.folder)  # half of a page
            write_run_page(run)
    return run


def run(
    source: str | Path | Mapping[str, Any] | Config = "quickstart",
    out: str | Path | None = None,
    *,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    overwrite: bool = False,
    on_round: OnRound | None = None,
    listeners: Sequence[Listener] = (),
    progress: bool = True,
) -> OpenedRun:
    """Run a preset, a TOML file or a mapping; gives the finished run.

    Parameters
    ----------
    source : str, Path, Mapping or Config
        A preset's name, a TOML file, a nested mapping or a config.
    out : str or Path
        The run's directory, which must not exist yet; ``runs/<name>`` unless given.
    overrides : list of str, or Mapping
        Single fields that are changed: ``["run.seed=7"]`` or ``{"run.seed": 7}``.
    overwrite : bool
        Whether a run that is in ``out`` may be replaced.
    on_round : function
        Called with a ``Progress`` after every round.
    listeners : list of Listener
        Told when the run begins, after every round, and when it ends.
    progress : bool
        Whether progress is shown, on a terminal (on stderr) or in a notebook.
    """
    experiment = Experiment(source, overrides)
    with shown_progress(experiment.config.run.rounds, progress) as shown:
        return experiment.run(out, overwrite=overwrite, on_round=on_round, listeners=[*listeners, *shown])


def resume(
    folder: str | Path,
    on_round: OnRound | None = None,
    listeners: Sequence[Listener] = (),
    progress: bool = True,
) -> OpenedRun:
    """Go on with an interrupted run from its last checkpoint; a finished run is left as it is.

    ``folder`` is the run's directory, all else is as for ``run``.
    """
    experiment = Experiment(read_config(Path(folder)))
    with shown_progress(experiment.config.run.rounds, progress) as shown:
        return experiment.resume(folder, on_round, [*listeners, *shown])
