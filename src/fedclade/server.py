"""Algorithm 1, repaired: one round, one run.

The server owns the loop, once. How updates come about (a Trainer) and how long things take (an Edge) are given to it:
the simulator and a deployment differ in nothing else. ``step`` takes a state and gives the next one with a record of
the round. All a round needs is in the state, so a checkpoint is the state written down.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from fedclade.asking import Asking
from fedclade.clustering import ROOT, Tree, update_norms
from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.state import CONVENTIONAL, EvaluationRecord, Event, RoundRecord, ServerState, index, stack
from fedclade.core.stopwatch import Stopwatch
from fedclade.edge import Edge, Links
from fedclade.fleet.simulated import Trainer
from fedclade.grouping import Grouping
from fedclade.scheduling import Planner, Timeline, cluster_views


class Conductor(Protocol):
    """Carries a plan out where devices are real and may fail; in simulation all goes as planned."""

    def announce(self, timeline: Timeline) -> None:
        """Before training: who is to upload, in which order."""
        ...

    def outcome(self, timeline: Timeline) -> tuple[Timeline, Mapping[int, str]]:
        """After it: the same devices with what really happened, and why some of them were not heard."""
        ...


class Server:
    """One run's unchanging parts."""

    def __init__(
        self, config: Config, trainer: Trainer, edge: Edge, samples: Ints, conductor: Conductor | None = None
    ) -> None:
        self.config, self.trainer, self.edge = config, trainer, edge
        self.conductor = conductor
        self.planner = Planner(config.scheduling, config.run.seed, edge.subchannels)
        self._know(samples)
        self.stopwatch = Stopwatch()

    def _know(self, samples: Ints) -> None:
        """How much data each device has."""
        self.samples = samples
        self.asking = Asking(self.config, self.trainer, self.edge, samples, real=self.conductor is not None)
        self.grouping = Grouping(self.config, self.asking, samples)

    def initial_state(self) -> ServerState:
        """One cluster of all devices, w0."""
        devices = len(self.samples)
        return ServerState(
            round=0,
            seconds=0.0,
            tree=Tree.planted(devices),
            models={ROOT: self.trainer.initial_model()},
            conventional=None,
            updates=np.zeros((devices, self.grouping.remembered), dtype=np.float32),
            last_heard=np.zeros(devices, dtype=np.int64),
            participation=np.zeros(devices, dtype=np.int64),
            energy_joules=np.zeros(devices),
            present_rounds=np.zeros(devices, dtype=np.int64),
            losses=np.full(devices, np.nan),
            outlooks={},
            kinship=None,
            retry=np.zeros(0, dtype=np.int64),
        )

    def admit(self, state: ServerState, samples: Ints) -> ServerState:
        """The state with room for devices that came since; they wait in the largest cluster until first heard."""
        more = len(samples) - len(state.last_heard)
        self._know(samples)
        if more == 0:
            return state
        none = np.zeros(more, dtype=np.int64)
        unheard = np.zeros((more, self.grouping.remembered), dtype=np.float32)
        return replace(
            state,
            tree=state.tree.grown(more),
            updates=np.concatenate([state.updates, unheard]),
            last_heard=np.append(state.last_heard, none),
            participation=np.append(state.participation, none),
            energy_joules=np.append(state.energy_joules, np.zeros(more)),
            present_rounds=np.append(state.present_rounds, none),
            losses=np.append(state.losses, np.full(more, np.nan)),
            kinship=None if state.kinship is None else state.kinship.grown(more),
        )

    def finished(self, state: ServerState) -> str | None:
        """Why no further round is due, or None."""
        config = self.config
        if state.round >= config.run.rounds:
            return "rounds"
        if all(leaf.stopped_round is not None for leaf in state.tree.leaves()):
            frozen = config.scheduling.after_stop == "freeze" and not config.scheduling.recheck_every
            if config.run.end == "stopped" or (self.planner.policy.name.startswith("fair") and frozen):
                return "stopped"
        return None

    def step(self, state: ServerState) -> tuple[ServerState, RoundRecord] | None:
        """One round of Algorithm 1; None where it would not end within the time budget."""
        round_ = state.round + 1
        links = self.edge.observe(round_)
        self.asking.begin(links)
        views = cluster_views(state.tree.leaves(), self.config.scheduling, round_)
        plan = self.planner.plan(round_, links, views, self.samples, state.last_heard, state.retry)
        computing = plan.computing
        tree, events = self.grouping.place_unheard(state, computing)

        leaf_of = tree.leaf_of()
        names = sorted({leaf_of[device] for device in computing})
        broadcast = self.edge.broadcast_seconds(len(names))
        if plan.choose is None and self._beyond_budget(state.seconds + (broadcast + plan.seconds)):
            return None
        models = stack(state.models, names, self.trainer.parameters)
        if self.conductor is not None:
            self.conductor.announce(plan.timeline)
        updates = self._train(round_, models, computing, index(leaf_of, computing, names))
        norms = update_norms(updates)
        if plan.choose is not None:  # the server must hear all norms before it can choose
            plan = plan.choose(norms)
            if self._beyond_budget(state.seconds + (broadcast + plan.seconds)):
                return None

        timeline = plan.timeline
        failed: Mapping[int, str] = {}
        if self.conductor is not None:
            timeline, failed = self.conductor.outcome(timeline)
        arrived = np.sort(timeline.arrived)
        lost = arrived[:0] if links.lost is None else arrived[links.lost[arrived]]
        rejected = self.grouping.unsound(state, computing, norms, leaf_of)
        heard = np.setdiff1d(arrived, np.union1d(lost, np.array(list(rejected), dtype=np.int64)))
        joules = plan.joules_of(timeline)
        duration = broadcast + plan.seconds
        if self.conductor is not None:
            duration = broadcast + timeline.makespan
        events += self._mishaps(timeline, links, lost, rejected, failed, leaf_of)
        after = self._heard(replace(state, tree=tree), heard, duration, links, lost)
        with self.stopwatch.measure("clustering"):
            fresh = updates if len(heard) == len(computing) else updates[np.isin(computing, heard)]
            after, clusters, more = self.grouping.after_round(after, heard, fresh)
        if self.conductor is None and self._beyond_budget(state.seconds + duration + self.asking.seconds):
            return None
        joules, duration = joules + self.asking.joules, duration + self.asking.seconds
        after = replace(after, seconds=state.seconds + duration, energy_joules=state.energy_joules + joules)
        after = self._continue_conventional(state, after)
        last = self.finished(after) is not None
        evaluate = round_ % self.config.run.evaluate_every == 0 or last
        record = RoundRecord(
            round=round_,
            start_seconds=state.seconds,
            seconds=duration,
            broadcast_seconds=broadcast,
            asking_seconds=self.asking.seconds,
            deadline_seconds=plan.deadline,
            timeline=timeline,
            computed=computing,
            links=links,
            device_joules=joules,
            clusters=clusters,
            events=events + more,
            evaluation=self.evaluate(after) if evaluate else None,
        )
        return after, record

    # -------------------------------------------------------------------------------- before training

    def _train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        with self.stopwatch.measure("training"):
            updates = self.trainer.train(round_, models, devices, model_of)
        self.stopwatch.trained(len(devices), self.config.training.epochs * int(self.samples[devices].sum()))
        return updates

    def _beyond_budget(self, seconds: float) -> bool:
        budget = self.config.run.time_budget_seconds
        return budget is not None and seconds > budget

    def _mishaps(
        self,
        timeline: Timeline,
        links: Links,
        lost: Ints,
        rejected: Mapping[int, str],
        failed: Mapping[int, str],
        leaf_of: list[str],
    ) -> list[Event]:
        """What did not arrive, or arrived in vain; and what the trainer had to mend."""
        events = [
            Event("missed", leaf_of[device], int(device), {"reason": failed.get(device, reason)})
            for device, reason in _missed(timeline, links)
        ]
        events += [Event("lost", leaf_of[device], device) for device in lost.tolist()]
        arrived = set(timeline.arrived.tolist())
        events += [
            Event("rejected", leaf_of[device], device, {"reason": reason})
            for device, reason in rejected.items()
            if device in arrived
        ]
        events += [Event("incident", "", detail={"what": what}) for what in self.trainer.incidents]
        self.trainer.incidents.clear()
        return events

    def _heard(self, state: ServerState, heard: Ints, duration: float, links: Links, lost: Ints) -> ServerState:
        """The state one round on, its clusters as they were; what was spent is added when all is asked."""
        counted = np.isin(np.arange(len(self.samples)), heard)
        return replace(
            state,
            round=state.round + 1,
            seconds=state.seconds + duration,
            last_heard=np.where(counted, state.round + 1, state.last_heard),
            participation=state.participation + counted,
            present_rounds=state.present_rounds + (1 if links.away is None else ~links.away),
            retry=lost,
        )

    # -------------------------------------------------------------------------------- the one model, and evaluation

    def _continue_conventional(self, before: ServerState, after: ServerState) -> ServerState:
        """One more round of conventional federated learning by everybody, off the clock."""
        if before.conventional is None or self.config.run.conventional == "frozen":
            return after
        everyone = np.arange(len(self.samples))
        updates = self._train(after.round, before.conventional[None], everyone, np.zeros_like(everyone))
        sound = np.flatnonzero(np.isfinite(update_norms(updates)))
        weights = (self.samples[sound] / max(1, self.samples[sound].sum())).astype(np.float32)
        moved = np.asarray(before.conventional + weights @ updates[sound], dtype=np.float32)
        return replace(after, conventional=moved)

    def evaluate(self, state: ServerState) -> EvaluationRecord:
        """Test accuracy and loss of every device under its own model, and under the conventional one."""
        with self.stopwatch.measure("evaluation"):
            return self._evaluate(state)

    def _evaluate(self, state: ServerState) -> EvaluationRecord:
        everyone = np.arange(len(self.samples))
        leaf_of = state.tree.leaf_of()
        names = sorted(set(leaf_of))
        models, own = stack(state.models, names, self.trainer.parameters), index(leaf_of, everyone, names)
        if state.conventional is None:
            answer = self.trainer.evaluate(models, everyone, own)
            return EvaluationRecord(leaf_of, answer.accuracy, answer.loss, answer.accuracy)
        models = np.concatenate([models, state.conventional[None]])  # asked in one go: devices may be far away
        both = np.concatenate([own, np.full_like(everyone, len(names))])
        answer = self.trainer.evaluate(models, np.tile(everyone, 2), both)
        count = len(everyone)
        return EvaluationRecord(leaf_of, answer.accuracy[:count], answer.loss[:count], answer.accuracy[count:])

    def models_by_devices(self, state: ServerState) -> tuple[list[str], Floats]:
        """Accuracy of every model of the tree, and of the conventional one, on every device."""
        names = sorted(state.models)
        models = stack(state.models, names, self.trainer.parameters)
        if state.conventional is not None:
            models = np.concatenate([models, state.conventional[None]])
        else:
            models = np.concatenate([models, models[:1]])
        devices = np.arange(len(self.samples))
        each = np.repeat(np.arange(len(models)), len(devices))
        answer = self.trainer.evaluate(models, np.tile(devices, len(models)), each)
        return [*names, CONVENTIONAL], answer.accuracy.reshape(len(models), len(devices))


def _missed(timeline: Timeline, links: Links) -> list[tuple[int, str]]:
    def reason(device: int) -> str:
        if links.away is not None and links.away[device]:
            return "away"
        return "deadline" if np.isfinite(links.upload_seconds[device]) else "unreachable"

    return [(device, reason(device)) for device in timeline.device[timeline.missed].tolist()]
