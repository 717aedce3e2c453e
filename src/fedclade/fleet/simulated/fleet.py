"""The simulated fleet: all goes as planned, but for uploads lost in a fade."""

import copy
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.links import Links
from fedclade.core.random import generator
from fedclade.core.state import Serving
from fedclade.core.stopwatch import Stopwatch
from fedclade.core.updates import HeldUpdates, Updates, sketch_signs
from fedclade.data.drift import Drift
from fedclade.edge import Edge
from fedclade.fleet.fleet import Answers, Arrival, Cost, Fleet, Roster
from fedclade.fleet.metered import Metered
from fedclade.fleet.privacy import Private
from fedclade.fleet.questions import Evaluate, Examiner, Question
from fedclade.fleet.remembered import EvaluationMemory
from fedclade.fleet.simulated.ditto import ditto
from fedclade.fleet.simulated.drifting import Present
from fedclade.fleet.simulated.keeping import KeepingTrainer
from fedclade.fleet.simulated.personal import PersonalExaminer, PersonalTrainer, personal
from fedclade.fleet.simulated.scaffold import scaffold
from fedclade.fleet.simulated.streamed import Recipe, StreamedUpdates
from fedclade.fleet.simulated.trainer import Trainer
from fedclade.scheduling.planner import Plan

Answer = TypeVar("Answer")
REMEMBERED_ENTRIES = 50_000  # of a question; the answers to larger ones take more memory than they save time


class SimulatedFleet:
    """Devices whose updates a Trainer makes and whose time an Edge tells."""

    def __init__(
        self,
        config: Config,
        trainer: Trainer,
        edge: Edge,
        samples: Ints,
        stopwatch: Stopwatch,
        drift: Drift | None = None,
    ) -> None:
        """``drift`` says how the devices' data change; the trainer must know of it, too. None: they do not."""
        self._config, self._edge, self._samples = config, edge, samples
        self._trainer = _keeping(trainer, config, len(samples))
        self._drift, self._rows = drift, None if drift is None else drift.rows(1)
        self._stopwatch, self._evaluations = stopwatch, EvaluationMemory()
        self.parameters, self.simulated = trainer.parameters, True
        self.keeps_updates = config.keeps_updates(trainer.parameters)
        self._round, self._drawn, self.private = 1, 0, Private(config.privacy.noise, self._noise_of)
        if self._trainer is not trainer and not self.keeps_updates:
            raise UserError(
                "model.local, training.scaffold, training.ditto: are for as many devices as whole updates are kept of; "
                "see training.updates_gb"
            )

    def muster(self, round_: int) -> Roster:
        """Everybody, always; some may hold other data than before."""
        self._round, self._drawn = round_, 0
        drift, before = self._drift, self._rows
        if drift is None or before is None:
            return Roster(self._samples)
        self._samples, self._rows = drift.samples(round_), drift.rows(round_)
        if not np.array_equal(before, self._rows):  # what was found out of the data before does not count any more
            self._evaluations = EvaluationMemory()
        return Roster(self._samples, drifted=drift.told(round_))

    def at(self, links: Links) -> Fleet:
        """With a meter on the answers."""
        return Metered(self, self._edge, links, self._samples, self._config.training)

    def holding(self, kept: Singles) -> Fleet:
        """A fleet of the same parts."""
        assert isinstance(self._trainer, KeepingTrainer)
        other = copy.copy(self)
        other._trainer = self._trainer.holding(kept)
        return other

    def initial_model(self, variant: int = 0) -> Singles:
        """w0: depends on the seed alone."""
        return self._trainer.initial_model(variant)

    def carry_out(self, plan: Plan, serving: Serving) -> Arrival:
        """Train, let a policy that looks at norms choose who uploads, and see what arrives."""
        devices = plan.computing
        in_use = np.unique(serving.model_of[devices])
        updates = self._train(plan.round, serving.models, devices, serving.model_of[devices], serving.model_of)
        if plan.choose is not None:  # the server must hear all norms before it can choose
            plan = plan.choose(updates.norms(devices))
        timeline, lost_links = plan.timeline, plan.links.lost
        arrived = np.sort(timeline.arrived)
        lost = arrived[:0] if lost_links is None else arrived[lost_links[arrived]]
        vectors = self._config.training.vectors  # as long as a model, in either direction
        down = len(in_use) * (vectors - serving.sent)
        broadcast = self._edge.broadcast_seconds(down)
        up, bits = len(timeline.arrived) * vectors, self._edge.model_bits
        cost = Cost(broadcast + plan.seconds, plan.joules_of(), down * bits, up * bits)
        keeping = self._trainer if isinstance(self._trainer, KeepingTrainer) else None
        return Arrival(
            plan,
            updates.among(np.setdiff1d(arrived, lost)),
            timeline,
            cost,
            broadcast,
            lost,
            incidents=_taken(self._trainer.incidents),
            kept=None if keeping is None else keeping.after,
            kept_before=keeping.kept if keeping is not None and keeping.goes_with_upload else None,
        )

    def train_own(self, round_: int, models: Singles) -> Updates | None:
        """Everybody, each from a model of its own."""
        everyone = np.arange(len(self._samples))
        return self._train(round_, models, everyone, everyone)

    def train_all(self, round_: int, model: Singles) -> Updates:
        """Everybody, from one model."""
        everyone = np.arange(len(self._samples))
        return self._train(round_, model[None], everyone, np.zeros_like(everyone))

    def _train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, serving: Ints | None = None
    ) -> Updates:
        """``serving``: which model serves each device, in a round of the run; None: this is trained on the side."""
        updates: Updates
        with self._stopwatch.measure("training"):
            if serving is not None and isinstance(self._trainer, KeepingTrainer):
                found = self._trainer.train_round(round_, models, devices, serving, self._samples)
                updates = HeldUpdates.of(devices, found)
            elif self.keeps_updates:
                updates = HeldUpdates.of(devices, self._trainer.train(round_, models, devices, model_of))
            else:
                updates = self._streamed(Recipe(round_, models, devices, model_of))
        passes = self._config.training.epochs if serving is None else self._config.training.passes
        self._stopwatch.trained(len(devices), passes * int(self._samples[devices].sum()))
        return updates

    def _streamed(self, recipe: Recipe) -> StreamedUpdates:
        """Of more devices than their updates could be kept of."""
        config, width = self._config, self._config.clustering.remembered_of(whole=False)
        signs = sketch_signs(config.run.seed, self.parameters)
        most_bytes = 1e9 * config.training.updates_gb
        measured = partial(self._stopwatch.measure, "training")
        return StreamedUpdates(self._trainer, recipe, self._samples, signs, width or 0, most_bytes, measured)

    def ask(self, question: Question[Answer]) -> Answers[Answer]:
        """The devices' data is here: look at it. Whoever wants to know the cost asks through ``at``."""
        examiner: Examiner = self._trainer.examiner
        if self._rows is not None:
            examiner = Present(examiner, self._rows)
        value: Any
        own = self._trainer if isinstance(self._trainer, PersonalTrainer) else None
        if own is not None:
            examiner = PersonalExaminer(examiner, own.local, own.kept)
        with self._stopwatch.measure("asking"):
            known = isinstance(question, Evaluate) and len(question.devices) <= REMEMBERED_ENTRIES
            if isinstance(question, Evaluate) and known and own is None:  # what devices keep changes models unseen
                value = self._evaluations.answer(question, lambda unknown: self._answered(unknown, examiner))
            else:
                value = self._answered(question, examiner)
        return Answers(value, Cost.nothing(len(self._samples)), _taken(self._trainer.incidents))

    def _answered(self, question: Question[Answer], examiner: Examiner) -> Answer:
        return self.private.run(question, examiner) if self._config.privacy.noise else question.run(examiner)

    def _noise_of(self, device: int) -> np.random.Generator:
        """For a device's next answer in this round."""
        self._drawn += 1
        return generator(self._config.run.seed, "privacy", self._round, device, self._drawn)

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """A flat model as named arrays."""
        return self._trainer.named_tensors(model)

    def close(self) -> None:
        """End worker processes."""
        self._trainer.close()


def _keeping(trainer: Trainer, config: Config, devices: int) -> Trainer:
    """A trainer whose devices keep what the config says from round to round, if anything."""
    if config.model.local:
        return personal(trainer, config.model.local, devices)
    if config.training.scaffold:
        return scaffold(trainer, config.training, devices)
    return ditto(trainer, config.training.ditto, devices) if config.training.ditto else trainer


def _taken(incidents: list[str]) -> tuple[str, ...]:
    """What is in a list, which is empty then."""
    told = tuple(incidents)
    incidents.clear()
    return told
