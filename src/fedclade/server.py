"""Algorithm 1, repaired: one round, one run.

The server owns the loop, once. How updates come about (a Trainer) and how long things take (an Edge) are given to it:
the simulator and a deployment differ in nothing else. ``step`` takes a state and gives the next one with a record of
the round. All a round needs is in the state, so a checkpoint is the state written down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fedclade.arrays import Floats, Ints, Singles
from fedclade.clustering import (
    ROOT,
    Norms,
    Tree,
    Verdict,
    bipartition,
    cosine_similarity,
    cut_facts,
    enough_heard,
    gamma_test,
    judge,
    mean_similarity_to,
    mean_update_norm,
    update_norms,
)
from fedclade.config import Config
from fedclade.edge import Edge, Links
from fedclade.edge.latency import local_steps
from fedclade.errors import UserError
from fedclade.scheduling import ClusterView, Situation, Timeline, find_policy, plan_timeline
from fedclade.training import Trainer

CONVENTIONAL = "conventional"


@dataclass(frozen=True)
class ServerState:
    """Everything between two rounds.

    ``updates`` is handed on from state to state, not copied: a round overwrites the rows of the devices it hears before
    it reads them, so repeating a round from the state just before it gives the same result.
    """

    round: int  # rounds done
    seconds: float  # simulated clock
    tree: Tree
    models: Mapping[str, Singles]  # of every node; an inner node's as it stood at its split
    conventional: Singles | None  # the one-model comparison, from the first split on
    updates: Singles  # K × P: each device's last known Δw
    last_heard: Ints  # round of that update; 0: never
    participation: Ints  # uploads per device
    energy_joules: Floats  # spent per device


@dataclass(frozen=True)
class Event:
    """Something worth telling: split, stop, reopen, missed, placed, incident."""

    kind: str
    node: str
    device: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterRecord:
    """One cluster in one round."""

    node: str
    members: int
    heard: int
    mean_norm: float | None
    max_norm: float | None
    verdict: Verdict | Literal["stopped"]


@dataclass(frozen=True)
class EvaluationRecord:
    """Every device under its own cluster's model, and under the conventional one."""

    node: list[str]
    accuracy: Floats
    loss: Floats
    conventional_accuracy: Floats


@dataclass(frozen=True)
class RoundRecord:
    """All that is written down of a round."""

    round: int
    start_seconds: float
    seconds: float
    broadcast_seconds: float
    timeline: Timeline
    computed: Ints
    links: Links
    energy_joules: float
    clusters: list[ClusterRecord]
    events: list[Event]
    evaluation: EvaluationRecord | None


class Server:
    """One run's unchanging parts."""

    def __init__(self, config: Config, trainer: Trainer, edge: Edge, samples: Ints) -> None:
        self.config, self.trainer, self.edge, self.samples = config, trainer, edge, samples
        self.policy = find_policy(config.scheduling.policy)
        self.steps = local_steps(config.training, samples)

    def initial_state(self) -> ServerState:
        """One cluster of all devices, w0."""
        devices = len(self.samples)
        return ServerState(
            round=0,
            seconds=0.0,
            tree=Tree.planted(devices),
            models={ROOT: self.trainer.initial_model()},
            conventional=None,
            updates=np.zeros((devices, self.trainer.parameters), dtype=np.float32),
            last_heard=np.zeros(devices, dtype=np.int64),
            participation=np.zeros(devices, dtype=np.int64),
            energy_joules=np.zeros(devices),
        )

    def finished(self, state: ServerState) -> str | None:
        """Why no further round is due, or None."""
        config = self.config
        if state.round >= config.run.rounds:
            return "rounds"
        if all(leaf.stopped_round is not None for leaf in state.tree.leaves()):
            frozen = config.scheduling.after_stop == "freeze" and not config.scheduling.recheck_every
            if config.run.end == "stopped" or (self.policy.name == "fair" and frozen):
                return "stopped"
        return None

    def step(self, state: ServerState) -> tuple[ServerState, RoundRecord] | None:
        """One round of Algorithm 1; None where it would not end within the time budget."""
        round_ = state.round + 1
        links = self.edge.observe(round_)
        situation = self._situation(state, round_, links)
        chosen = self._checked(self.policy.select(situation))
        timeline = self._plan(chosen, links.compute_seconds, links)
        computing = np.sort(timeline.arrived) if self.policy.choose_uploads is None else chosen
        tree, events = self._place_unheard(state, computing)

        leaf_of = tree.leaf_of()
        names = sorted({leaf_of[device] for device in computing})
        broadcast = self.edge.broadcast_seconds(len(names))
        if self.policy.choose_uploads is None and self._over_budget(state, broadcast, timeline):
            return None
        models = self._stack(state.models, names)
        updates = self.trainer.train(round_, models, computing, self._index(leaf_of, computing, names))
        if self.policy.choose_uploads is not None:  # the server must hear all norms before it can choose
            uploading = self._checked(
                self.policy.choose_uploads(situation, computing, update_norms(updates)), computing
            )
            waited = np.full_like(links.compute_seconds, links.compute_seconds[computing].max(initial=0.0))
            timeline = self._plan(uploading, waited, links)
            if self._over_budget(state, broadcast, timeline):
                return None
            updates = updates[np.isin(computing, timeline.arrived)]

        heard = np.sort(timeline.arrived)
        duration = self._duration(broadcast, timeline)
        energy = np.zeros(len(self.samples))
        energy[computing] += links.compute_joules[computing]
        energy[heard] += links.upload_joules[heard]
        state.updates[heard] = updates
        counted = np.isin(np.arange(len(self.samples)), heard)
        after = replace(
            state,
            round=round_,
            seconds=state.seconds + duration,
            tree=tree,
            last_heard=np.where(counted, round_, state.last_heard),
            participation=state.participation + counted,
            energy_joules=state.energy_joules + energy,
        )
        events += [
            Event("missed", leaf_of[device], int(device), {"reason": reason})
            for device, reason in _missed(timeline, links)
        ]
        events += [Event("incident", "", detail={"what": what}) for what in self.trainer.incidents]
        self.trainer.incidents.clear()
        after, clusters, more = self._cluster(after, heard)
        after = self._continue_conventional(state, after)
        last = self.finished(after) is not None
        evaluate = round_ % self.config.run.evaluate_every == 0 or last
        record = RoundRecord(
            round=round_,
            start_seconds=state.seconds,
            seconds=duration,
            broadcast_seconds=broadcast,
            timeline=timeline,
            computed=computing,
            links=links,
            energy_joules=float(energy.sum()),
            clusters=clusters,
            events=events + more,
            evaluation=self.evaluate(after) if evaluate else None,
        )
        return after, record

    def plan(self, state: ServerState, round_: int, links: Links) -> Timeline:
        """Selection and timeline alone; where a policy looks at norms, as if all were equal."""
        situation = self._situation(state, round_, links)
        chosen = self._checked(self.policy.select(situation))
        ready = links.compute_seconds
        if self.policy.choose_uploads is not None:
            ready = np.full_like(ready, ready[chosen].max(initial=0.0))
            chosen = self._checked(self.policy.choose_uploads(situation, chosen, np.ones(len(chosen))), chosen)
        return self._plan(chosen, ready, links)

    # -------------------------------------------------------------------------------- before training

    def _situation(self, state: ServerState, round_: int, links: Links) -> Situation:
        views = tuple(
            ClusterView(
                np.array(leaf.devices),
                leaf.stopped_round is None or self._recheck(leaf.stopped_round, round_),
            )
            for leaf in state.tree.leaves()
        )
        return Situation(
            round=round_,
            seed=self.config.run.seed,
            subchannels=self.edge.subchannels,
            samples=self.samples,
            rate_bps=links.rate_bps,
            compute_seconds=links.compute_seconds,
            upload_seconds=links.upload_seconds,
            reachable=links.reachable,
            last_heard=state.last_heard,
            clusters=views,
            config=self.config.scheduling,
        )

    def _recheck(self, stopped_round: int, round_: int) -> bool:
        every = self.config.scheduling.recheck_every
        return every > 0 and round_ > stopped_round and (round_ - stopped_round) % every == 0

    def _checked(self, chosen: Ints, computing: Ints | None = None) -> Ints:
        """A policy may be the user's own: hold it to its contract."""
        ids = np.asarray(chosen)
        if ids.ndim != 1 or (len(ids) and not np.issubdtype(ids.dtype, np.integer)):
            raise UserError(f"policy {self.policy.name!r}: must give a list of device ids, not {ids.dtype}{ids.shape}")
        if len(np.unique(ids)) != len(ids) or (len(ids) and not 0 <= ids.min() <= ids.max() < len(self.samples)):
            raise UserError(
                f"policy {self.policy.name!r}: gave {ids.tolist()}; ids must be distinct and below {len(self.samples)}"
            )
        if computing is not None and not np.isin(ids, computing).all():
            raise UserError(f"policy {self.policy.name!r}: lets {ids.tolist()} upload, of whom some did not compute")
        return np.sort(ids.astype(np.int64))

    def _plan(self, devices: Ints, ready: Floats, links: Links) -> Timeline:
        scheduling = self.config.scheduling
        return plan_timeline(
            devices,
            ready[devices],
            links.upload_seconds[devices],
            self.edge.subchannels,
            pairing=scheduling.pairing,
            deadline=scheduling.deadline_seconds,
        )

    def _duration(self, broadcast: float, timeline: Timeline) -> float:
        """Models out, uploads in; where nobody can upload, the deadline is waited for in vain."""
        idle = 0.0 if len(timeline.arrived) else self.config.scheduling.deadline_seconds or 0.0
        return broadcast + timeline.makespan + idle

    def _over_budget(self, state: ServerState, broadcast: float, timeline: Timeline) -> bool:
        budget = self.config.run.time_budget_seconds
        return budget is not None and state.seconds + self._duration(broadcast, timeline) > budget

    def _place_unheard(self, state: ServerState, computing: Ints) -> tuple[Tree, list[Event]]:
        """A device never heard before takes the leaf whose model has the smallest loss on its data."""
        tree, events = state.tree, []
        leaves = [leaf.name for leaf in tree.leaves()]
        new = computing[state.last_heard[computing] == 0]
        if len(leaves) == 1 or len(new) == 0:
            return tree, []
        models = self._stack(state.models, leaves)
        each = np.repeat(np.arange(len(leaves)), len(new))
        answer = self.trainer.evaluate(models, np.tile(new, len(leaves)), each, "train")
        best = answer.loss.reshape(len(leaves), len(new)).argmin(axis=0)
        for device, choice in zip(new.tolist(), best, strict=True):
            old, to = tree.leaf_of()[device], leaves[choice]
            if old != to and len(tree.nodes[old].devices) > 1:
                tree = tree.move(device, to)
                events.append(Event("placed", to, device, {"from": old, "by": "smallest loss"}))
        return tree, events

    # -------------------------------------------------------------------------------- after training

    def _cluster(self, state: ServerState, heard: Ints) -> tuple[ServerState, list[ClusterRecord], list[Event]]:
        """For each cluster: norms, then stop, split or go on; then each (new) cluster's model is averaged."""
        clusters, events = [], []
        for leaf in state.tree.leaves():
            present = np.intersect1d(heard, np.array(leaf.devices))
            norms = self._norms(_rows(state.updates, present), present, state.round)
            verdict: Verdict | Literal["stopped"] = "stopped"
            if leaf.stopped_round is None or (
                self._recheck(leaf.stopped_round, state.round) and enough_heard(norms, len(leaf.devices))
            ):
                verdict = self._judge(norms, len(leaf.devices), state.round)
                if leaf.stopped_round is not None and verdict != "stop":
                    state = replace(state, tree=state.tree.with_stop(leaf.name, None))
                    events.append(Event("reopen", leaf.name, detail={"mean_norm": norms.mean, "max_norm": norms.max}))
                elif leaf.stopped_round is None and verdict == "stop":
                    state = replace(state, tree=state.tree.with_stop(leaf.name, state.round))
                    events.append(Event("stop", leaf.name, detail={"mean_norm": norms.mean, "max_norm": norms.max}))
            before = state.models[leaf.name]
            models = {**state.models, leaf.name: self._average(before, present, state)}
            if verdict == "split" and (tree := self._split(state, leaf.name)) is not None:
                for child in tree.nodes[leaf.name].children:
                    models[child] = self._average(before, np.intersect1d(heard, tree.members(child)), state)
                conventional = models[ROOT].copy() if leaf.name == ROOT else state.conventional
                state = replace(state, tree=tree, conventional=conventional)
                split = tree.nodes[leaf.name].split
                assert split is not None
                events.append(
                    Event(
                        "split",
                        leaf.name,
                        detail={
                            "first": list(split.first),
                            "second": list(split.second),
                            **vars(split.facts),
                        },
                    )
                )
            elif verdict == "split":
                verdict = "go-on"
            state = replace(state, models=models)
            clusters.append(
                ClusterRecord(
                    leaf.name,
                    len(leaf.devices),
                    len(present),
                    norms.mean if norms.heard else None,
                    norms.max if norms.heard else None,
                    verdict,
                )
            )
        return state, clusters, events

    def _norms(self, updates: Singles, present: Ints, round_: int) -> Norms:
        if len(present) == 0:
            return Norms(0.0, 0.0, 0)
        if self.config.clustering.norm == "per-step":
            training = self.config.training
            rate = training.learning_rate * training.learning_rate_decay ** (round_ - 1)
            updates = np.asarray(updates / (rate * self.steps[present])[:, None], dtype=np.float32)
        uniform = self.config.clustering.weighting == "uniform"
        weights = np.ones(len(present)) if uniform else self.samples[present].astype(np.float64)
        return Norms(mean_update_norm(updates, weights), float(update_norms(updates).max()), len(present))

    def _judge(self, norms: Norms, members: int, round_: int) -> Verdict:
        if not self.config.clustering.enabled or norms.heard == 0:
            return "go-on"
        return judge(norms, members, round_, self.config.clustering)

    def _split(self, state: ServerState, name: str) -> Tree | None:
        """Cut by similarity; None if no cut is possible or the γ test refuses it."""
        config = self.config.clustering
        members = state.tree.members(name)
        age = state.round - state.last_heard[members]
        known = state.last_heard[members] > 0
        rows = members[known & (age <= config.max_age)]
        updates = _rows(state.updates, rows)
        similarity = cosine_similarity(updates)
        side = bipartition(similarity, config.bipartition, config.min_cluster_size)
        if side is None:
            return None
        facts = cut_facts(similarity, side, updates, config)
        if not gamma_test(facts):
            return None
        first, second = rows[~side], rows[side]
        old = members[known & (age > config.max_age)]
        to_second = mean_similarity_to(state.updates, old, second) > mean_similarity_to(state.updates, old, first)
        joining = [second, old[to_second]]
        if len(second) > len(first):  # whoever was never heard waits in the larger child until first heard
            joining.append(members[~known])
        return state.tree.split(name, np.concatenate(joining).tolist(), state.round, state.seconds, facts)

    def _average(self, model: Singles, present: Ints, state: ServerState) -> Singles:
        """The model moved by its members' fresh updates, weighted by D_k."""
        if len(present) == 0:
            return model
        weights = (self.samples[present] / self.samples[present].sum()).astype(np.float32)
        return np.asarray(model + weights @ _rows(state.updates, present), dtype=np.float32)

    def _continue_conventional(self, before: ServerState, after: ServerState) -> ServerState:
        """One more round of conventional federated learning by everybody, off the clock."""
        if before.conventional is None or self.config.run.conventional == "frozen":
            return after
        everyone = np.arange(len(self.samples))
        updates = self.trainer.train(after.round, before.conventional[None], everyone, np.zeros_like(everyone))
        weights = (self.samples / self.samples.sum()).astype(np.float32)
        return replace(after, conventional=np.asarray(before.conventional + weights @ updates, dtype=np.float32))

    # -------------------------------------------------------------------------------- evaluation

    def evaluate(self, state: ServerState) -> EvaluationRecord:
        """Test accuracy and loss of every device under its own model, and under the conventional one."""
        everyone = np.arange(len(self.samples))
        leaf_of = state.tree.leaf_of()
        names = sorted(set(leaf_of))
        own = self.trainer.evaluate(self._stack(state.models, names), everyone, self._index(leaf_of, everyone, names))
        conventional = own
        if state.conventional is not None:
            conventional = self.trainer.evaluate(state.conventional[None], everyone, np.zeros_like(everyone))
        return EvaluationRecord(leaf_of, own.accuracy, own.loss, conventional.accuracy)

    def models_by_devices(self, state: ServerState) -> tuple[list[str], Floats]:
        """Accuracy of every model of the tree, and of the conventional one, on every device."""
        names = sorted(state.models)
        models = self._stack(state.models, names)
        if state.conventional is not None:
            models = np.concatenate([models, state.conventional[None]])
        else:
            models = np.concatenate([models, models[:1]])
        devices = np.arange(len(self.samples))
        each = np.repeat(np.arange(len(models)), len(devices))
        answer = self.trainer.evaluate(models, np.tile(devices, len(models)), each)
        return [*names, CONVENTIONAL], answer.accuracy.reshape(len(models), len(devices))

    def _stack(self, models: Mapping[str, Singles], names: list[str]) -> Singles:
        if not names:
            return np.zeros((0, self.trainer.parameters), dtype=np.float32)
        return np.stack([models[name] for name in names])

    @staticmethod
    def _index(leaf_of: list[str], devices: Ints, names: list[str]) -> Ints:
        return np.array([names.index(leaf_of[device]) for device in devices], dtype=np.int64)


def _rows(updates: Singles, devices: Ints) -> Singles:
    """The rows of some devices, in order; not a copy where that is all of them."""
    return updates if len(devices) == len(updates) else updates[devices]


def _missed(timeline: Timeline, links: Links) -> list[tuple[int, str]]:
    return [
        (int(device), "deadline" if np.isfinite(links.upload_seconds[device]) else "unreachable")
        for device in timeline.device[timeline.missed]
    ]
