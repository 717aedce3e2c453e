"""Algorithm 1, repaired: one round, one run.

The server owns the loop, once. How updates come about (a Trainer) and how long things take (an Edge) are given to it:
the simulator and a deployment differ in nothing else. ``step`` takes a state and gives the next one with a record of
the round. All a round needs is in the state, so a checkpoint is the state written down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

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
    discounted,
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
from fedclade.scheduling import (
    Allocation,
    ClusterView,
    Effort,
    Situation,
    Timeline,
    allocate,
    find_policy,
    plan_timeline,
)
from fedclade.stopwatch import Stopwatch
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
    present_rounds: Ints  # rounds in which the device was there
    retry: Ints  # devices whose upload was lost in the last round: they send again in the next


@dataclass(frozen=True)
class Event:
    """Something worth telling: split, stop, reopen, missed, lost, rejected, placed, incident."""

    kind: str
    node: str
    device: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    similarity: tuple[Ints, Singles] | None = field(default=None, compare=False)  # of a split: devices, their cosines


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
    deadline_seconds: float | None
    timeline: Timeline
    computed: Ints
    links: Links
    device_joules: Floats
    clusters: list[ClusterRecord]
    events: list[Event]
    evaluation: EvaluationRecord | None

    @property
    def energy_joules(self) -> float:
        """What all devices spent."""
        return float(self.device_joules.sum())


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
        self.config, self.trainer, self.edge, self.samples = config, trainer, edge, samples
        self.conductor = conductor
        self.policy = find_policy(config.scheduling.policy)
        self.steps = local_steps(config.training, samples)
        self.stopwatch = Stopwatch()

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
            present_rounds=np.zeros(devices, dtype=np.int64),
            retry=np.zeros(0, dtype=np.int64),
        )

    def admit(self, state: ServerState, samples: Ints) -> ServerState:
        """The state with room for devices that came since; they wait in the largest cluster until first heard."""
        more = len(samples) - len(state.last_heard)
        self.samples, self.steps = samples, local_steps(self.config.training, samples)
        if more == 0:
            return state
        none = np.zeros(more, dtype=np.int64)
        unheard = np.zeros((more, self.trainer.parameters), dtype=np.float32)
        return replace(
            state,
            tree=state.tree.grown(more),
            updates=np.concatenate([state.updates, unheard]),
            last_heard=np.append(state.last_heard, none),
            participation=np.append(state.participation, none),
            energy_joules=np.append(state.energy_joules, np.zeros(more)),
            present_rounds=np.append(state.present_rounds, none),
        )

    def finished(self, state: ServerState) -> str | None:
        """Why no further round is due, or None."""
        config = self.config
        if state.round >= config.run.rounds:
            return "rounds"
        if all(leaf.stopped_round is not None for leaf in state.tree.leaves()):
            frozen = config.scheduling.after_stop == "freeze" and not config.scheduling.recheck_every
            if config.run.end == "stopped" or (self.policy.name.startswith("fair") and frozen):
                return "stopped"
        return None

    def step(self, state: ServerState) -> tuple[ServerState, RoundRecord] | None:
        """One round of Algorithm 1; None where it would not end within the time budget."""
        round_ = state.round + 1
        links = self.edge.observe(round_)
        situation = self._situation(state.tree, state.last_heard, round_, links)
        chosen = np.union1d(self._checked(self.policy.select(situation)), state.retry)
        deadline = self._deadline(state.tree)
        plan = self._plan(chosen, links.compute_seconds, links, deadline)
        timeline = plan.timeline
        computing = np.sort(timeline.arrived) if self.policy.choose_uploads is None else chosen
        tree, events = self._place_unheard(state, computing)

        leaf_of = tree.leaf_of()
        names = sorted({leaf_of[device] for device in computing})
        broadcast = self.edge.broadcast_seconds(len(names))
        duration = self._duration(broadcast, timeline, deadline)
        if self.policy.choose_uploads is None and self._over_budget(state, duration):
            return None
        models = self._stack(state.models, names)
        if self.conductor is not None:
            self.conductor.announce(timeline)
        updates = self._train(round_, models, computing, self._index(leaf_of, computing, names))
        if self.policy.choose_uploads is not None:  # the server must hear all norms before it can choose
            uploading = self._checked(
                self.policy.choose_uploads(situation, computing, update_norms(updates)), computing
            )
            waited = np.full_like(links.compute_seconds, links.compute_seconds[computing].max(initial=0.0))
            plan = self._plan(uploading, waited, links, deadline)
            timeline = plan.timeline
            duration = self._duration(broadcast, timeline, deadline)
            if self._over_budget(state, duration):
                return None
        failed: Mapping[int, str] = {}
        if self.conductor is not None:
            timeline, failed = self.conductor.outcome(timeline)
            duration = broadcast + timeline.makespan

        arrived = np.sort(timeline.arrived)
        lost = arrived[:0] if links.lost is None else arrived[links.lost[arrived]]
        broken = computing[~np.isfinite(update_norms(updates))]
        heard = np.setdiff1d(arrived, np.union1d(lost, broken))
        energy = np.zeros(len(self.samples))
        energy[computing] = links.compute_joules[computing]
        sending = ~timeline.missed
        energy[timeline.device[sending]] = (plan.compute_joules + plan.upload_joules)[sending]
        state.updates[heard] = updates[np.isin(computing, heard)]
        counted = np.isin(np.arange(len(self.samples)), heard)
        after = replace(
            state,
            round=round_,
            seconds=state.seconds + duration,
            tree=tree,
            last_heard=np.where(counted, round_, state.last_heard),
            participation=state.participation + counted,
            energy_joules=state.energy_joules + energy,
            present_rounds=state.present_rounds + (1 if links.away is None else ~links.away),
            retry=lost,
        )
        events += [
            Event("missed", leaf_of[device], int(device), {"reason": failed.get(device, reason)})
            for device, reason in _missed(timeline, links)
        ]
        events += [Event("lost", leaf_of[device], device) for device in lost.tolist()]
        events += [
            Event("rejected", leaf_of[device], device, {"reason": "not finite"})
            for device in np.intersect1d(arrived, broken).tolist()
        ]
        events += [Event("incident", "", detail={"what": what}) for what in self.trainer.incidents]
        self.trainer.incidents.clear()
        with self.stopwatch.measure("clustering"):
            after, clusters, more = self._cluster(after, heard)
        after = self._continue_conventional(state, after)
        last = self.finished(after) is not None
        evaluate = round_ % self.config.run.evaluate_every == 0 or last
        record = RoundRecord(
            round=round_,
            start_seconds=state.seconds,
            seconds=duration,
            broadcast_seconds=broadcast,
            deadline_seconds=deadline,
            timeline=timeline,
            computed=computing,
            links=links,
            device_joules=energy,
            clusters=clusters,
            events=events + more,
            evaluation=self.evaluate(after) if evaluate else None,
        )
        return after, record

    def plan(self, round_: int, links: Links, state: ServerState | None = None) -> Allocation:
        """Selection, timeline and allocation alone, at first or from a state.

        Where a policy looks at norms, as if all were equal.
        """
        tree = Tree.planted(len(self.samples)) if state is None else state.tree
        last_heard = np.zeros(len(self.samples), dtype=np.int64) if state is None else state.last_heard
        situation = self._situation(tree, last_heard, round_, links)
        chosen = self._checked(self.policy.select(situation))
        ready = links.compute_seconds
        if self.policy.choose_uploads is not None:
            ready = np.full_like(ready, ready[chosen].max(initial=0.0))
            chosen = self._checked(self.policy.choose_uploads(situation, chosen, np.ones(len(chosen))), chosen)
        return self._plan(chosen, ready, links, self._deadline(tree))

    # -------------------------------------------------------------------------------- before training

    def _train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        with self.stopwatch.measure("training"):
            updates = self.trainer.train(round_, models, devices, model_of)
        self.stopwatch.trained(len(devices), self.config.training.epochs * int(self.samples[devices].sum()))
        return updates

    def _situation(self, tree: Tree, last_heard: Ints, round_: int, links: Links) -> Situation:
        views = tuple(
            ClusterView(
                np.array(leaf.devices),
                leaf.stopped_round is None or self._recheck(leaf.stopped_round, round_),
            )
            for leaf in tree.leaves()
        )
        return Situation(
            round=round_,
            seed=self.config.run.seed,
            subchannels=self.edge.subchannels,
            samples=self.samples,
            rate_bps=links.rate_bps,
            mean_rate_bps=links.rate_bps if links.mean_rate_bps is None else links.mean_rate_bps,
            compute_seconds=links.compute_seconds,
            upload_seconds=links.upload_seconds,
            reachable=links.reachable,
            last_heard=last_heard,
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

    def _deadline(self, tree: Tree) -> float | None:
        """T_r: long at first, shorter as clusters stop and only their quick members go on."""
        first, final = self.config.scheduling.deadline_seconds, self.config.scheduling.deadline_final_seconds
        if first is None or final is None:
            return first
        leaves = tree.leaves()
        still = sum(len(leaf.devices) for leaf in leaves if leaf.stopped_round is None) / len(self.samples)
        return final + (first - final) * still

    def _plan(self, devices: Ints, ready: Floats, links: Links, deadline: float | None) -> Allocation:
        scheduling = self.config.scheduling
        timeline = plan_timeline(
            devices,
            ready[devices],
            links.upload_seconds[devices],
            self.edge.subchannels,
            order=scheduling.order,
            pairing=scheduling.pairing,
            deadline=deadline,
        )
        effort = _effort(links, scheduling.allocation, ready).of(timeline.device)
        return allocate(scheduling.allocation, timeline, effort, self.edge.subchannels)

    @staticmethod
    def _duration(broadcast: float, timeline: Timeline, deadline: float | None) -> float:
        """Models out, uploads in; where nobody can upload, the deadline is waited for in vain."""
        idle = 0.0 if len(timeline.arrived) else deadline or 0.0
        return broadcast + timeline.makespan + idle

    def _over_budget(self, state: ServerState, duration: float) -> bool:
        budget = self.config.run.time_budget_seconds
        return budget is not None and state.seconds + duration > budget

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
        loss = np.where(np.isnan(answer.loss), np.inf, answer.loss).reshape(len(leaves), len(new))
        for device, choice, least in zip(new.tolist(), loss.argmin(axis=0), loss.min(axis=0), strict=True):
            old, to = tree.leaf_of()[device], leaves[choice]
            if old != to and np.isfinite(least) and len(tree.nodes[old].devices) > 1:
                tree = tree.move(device, to)
                events.append(Event("placed", to, device, {"from": old, "by": "smallest loss"}))
        return tree, events

    # -------------------------------------------------------------------------------- after training

    def _cluster(self, state: ServerState, heard: Ints) -> tuple[ServerState, list[ClusterRecord], list[Event]]:
        """For each cluster: norms, then stop, split or go on; then each (new) cluster's model is averaged."""
        clusters, events = [], []
        for leaf in state.tree.leaves():
            present = np.intersect1d(heard, np.array(leaf.devices))
            norms = self._norms(state, self._recent(state, np.array(leaf.devices)))
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
            if verdict == "split" and (cut := self._split(state, leaf.name)) is not None:
                tree, similarity = cut
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
                        similarity=similarity,
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

    def _recent(self, state: ServerState, members: Ints) -> Ints:
        """Those whose last known update is young enough to tell of them; without ``max_age`` those just heard."""
        heard = state.last_heard[members]
        return members[(heard > 0) & (state.round - heard <= self.config.clustering.max_age)]

    def _norms(self, state: ServerState, recent: Ints) -> Norms:
        if len(recent) == 0:
            return Norms(0.0, 0.0, 0)
        clustering, training = self.config.clustering, self.config.training
        updates = _rows(state.updates, recent)
        if clustering.norm == "per-step":
            rate = training.learning_rate * training.learning_rate_decay ** (state.last_heard[recent] - 1.0)
            updates = np.asarray(updates / (rate * self.steps[recent])[:, None], dtype=np.float32)
        weights = self._trust(state, recent)
        if clustering.weighting == "samples":
            weights = weights * self.samples[recent]
        return Norms(mean_update_norm(updates, weights), float(update_norms(updates).max()), len(recent))

    def _trust(self, state: ServerState, devices: Ints) -> Floats:
        """1 for an update of this round, less the older it is."""
        return self.config.clustering.age_discount ** (state.round - state.last_heard[devices]).astype(np.float64)

    def _judge(self, norms: Norms, members: int, round_: int) -> Verdict:
        if not self.config.clustering.enabled or norms.heard == 0:
            return "go-on"
        return judge(norms, members, round_, self.config.clustering)

    def _split(self, state: ServerState, name: str) -> tuple[Tree, tuple[Ints, Singles]] | None:
        """Cut by similarity, which is given too; None if no cut is possible or the γ test refuses it."""
        config = self.config.clustering
        members = state.tree.members(name)
        rows = self._recent(state, members)
        updates = _rows(state.updates, rows)
        similarity = discounted(cosine_similarity(updates), self._trust(state, rows))
        side = bipartition(similarity, config.bipartition, config.min_cluster_size)
        if side is None:
            return None
        facts = cut_facts(similarity, side, updates, config)
        if not gamma_test(facts):
            return None
        first, second = rows[~side], rows[side]
        known = state.last_heard[members] > 0
        old = np.setdiff1d(members[known], rows)
        to_second = mean_similarity_to(state.updates, old, second) > mean_similarity_to(state.updates, old, first)
        joining = [second, old[to_second]]
        if len(second) > len(first):  # whoever was never heard waits in the larger child until first heard
            joining.append(members[~known])
        tree = state.tree.split(name, np.concatenate(joining).tolist(), state.round, state.seconds, facts)
        return tree, (rows, similarity)

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
        updates = self._train(after.round, before.conventional[None], everyone, np.zeros_like(everyone))
        sound = np.flatnonzero(np.isfinite(update_norms(updates)))
        weights = (self.samples[sound] / max(1, self.samples[sound].sum())).astype(np.float32)
        moved = np.asarray(before.conventional + weights @ updates[sound], dtype=np.float32)
        return replace(after, conventional=moved)

    # -------------------------------------------------------------------------------- evaluation

    def evaluate(self, state: ServerState) -> EvaluationRecord:
        """Test accuracy and loss of every device under its own model, and under the conventional one."""
        with self.stopwatch.measure("evaluation"):
            return self._evaluate(state)

    def _evaluate(self, state: ServerState) -> EvaluationRecord:
        everyone = np.arange(len(self.samples))
        leaf_of = state.tree.leaf_of()
        names = sorted(set(leaf_of))
        models, own = self._stack(state.models, names), self._index(leaf_of, everyone, names)
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
    def reason(device: int) -> str:
        if links.away is not None and links.away[device]:
            return "away"
        return "deadline" if np.isfinite(links.upload_seconds[device]) else "unreachable"

    return [(device, reason(device)) for device in timeline.device[timeline.missed].tolist()]


def _effort(links: Links, allocation: str, ready: Floats) -> Effort:
    """What the links say of every device; who waits after computing, for all norms to be known, keeps its speed."""
    given = (links.compute_seconds, links.upload_seconds, links.compute_joules, links.upload_joules, links.snr)
    if links.limits is None:
        if allocation != "fixed":
            raise UserError(f'scheduling.allocation = "{allocation}": this edge does not tell its devices\' limits')
        compute, upload = links.compute_seconds, links.upload_seconds
        return Effort(*given, compute, compute, upload, upload)
    limits = links.limits
    bound = ready > links.compute_seconds
    return Effort(
        *given,
        np.where(bound, links.compute_seconds, limits.compute_shortest),
        np.where(bound, links.compute_seconds, limits.compute_longest),
        limits.upload_shortest,
        limits.upload_longest,
    )
