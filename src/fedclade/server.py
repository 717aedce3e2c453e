"""Algorithm 1, repaired: one round. The numbers at the steps are the lines of the paper's listing (32 in all).

Whom to reach and how is the fleet's, how long things take the edge's, who takes part the policy's, and who shares a
model the method's. The server owns the loop, once: simulation and deployment run this code.
"""

from dataclasses import replace

import numpy as np

from fedclade.aggregation import aggregate, optimised
from fedclade.clustering.method import Decisions, Method, averaged, events_of, rearranged, regrouped, with_comparison
from fedclade.clustering.recent import Memory, cluster_norms
from fedclade.clustering.screen import too_large
from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.links import Links
from fedclade.core.objective import unchanged
from fedclade.core.records import ClusterRecord, EvaluationRecord, Event, RoundRecord, Verdict
from fedclade.core.state import CONVENTIONAL, State
from fedclade.core.stopwatch import Stopwatch
from fedclade.core.threads import on_one_thread
from fedclade.core.tree import ROOT, Node, Tree
from fedclade.core.updates import HeldUpdates
from fedclade.edge import Edge
from fedclade.fleet.evaluation import evaluated, told_losses
from fedclade.fleet.fleet import Arrival, Cost, Fleet, held
from fedclade.fleet.mishaps import mishaps, not_finite
from fedclade.scheduling.planner import Plan, Planner, cluster_views, greedy_phase


class Server:
    """One run's unchanging parts."""

    def __init__(self, config: Config, fleet: Fleet, edge: Edge, method: Method, stopwatch: Stopwatch) -> None:
        self.config, self.fleet, self.edge, self.method, self.stopwatch = config, fleet, edge, method, stopwatch
        self.planner = Planner(config.scheduling, config.run.seed, edge.subchannels)
        few = config.population.devices <= config.clustering.needs_panel  # else panels are heard in full when needed
        self.memory = Memory(config, fleet.parameters, fleet.keeps_updates and few)

    @on_one_thread
    def step(self, state: State) -> tuple[State, RoundRecord] | None:
        """One round; None where it would not end within the time budget, and then nothing has changed."""
        begun, told = self._mustered(state)
        links = self.edge.observe(begun.round + 1)
        fleet, new = held(self.fleet, begun.kept).at(links), np.arange(state.devices, begun.devices)
        begun, placed, cost = self._placed(begun, new, fleet)
        plan = self._plan(begun, links)  # lines 2 to 8: who takes part, and when each uploads
        if plan.choose is None and self._beyond_budget(begun.seconds + plan.seconds):
            return None
        begun, moved, spent = self._placed(begun, plan.computing, fleet)
        serving = begun.serving(self.method.sends_all_models)
        arrival = fleet.carry_out(plan, serving)  # lines 9 to 14: multicast, train, upload
        arrival = arrival.unsent() if self.method.alone else arrival
        if self.planner.policy.needs_losses:
            begun = replace(begun, losses=told_losses(self.fleet, begun, serving, arrival.heard))
        arrival = arrival.without(not_finite(arrival))
        arrival = arrival.without(too_large(begun, arrival, self.config))
        arrival = arrival.without(self.method.screen(begun, arrival))
        heard = self._heard(begun, arrival)
        fleet = fleet if heard.kept is None else held(self.fleet, heard.kept).at(links)
        with self.stopwatch.measure("clustering"):
            decided = self.method.after_training(heard, arrival, fleet)  # lines 17 to 28: stop, split, move, merge
            after = self._carried_out(heard, decided, arrival)  # lines 16 and 29: average each cluster's model
        cost = cost + spent + (decided.cost or Cost.nothing(begun.devices))
        after = self._clocked(state, after, arrival, cost)  # line 30: one more round
        if fleet.simulated and self._beyond_budget(after.seconds):
            return None
        after = self._continue_conventional(begun, after)
        leaf_of = begun.tree.leaf_of()
        joined = [Event("joined", leaf_of[device], device) for device in new.tolist()]
        events = [*told, *joined, *_handovers(links, leaf_of), *placed, *moved, *mishaps(arrival, leaf_of)]
        events += events_of(heard, decided, arrival.heard)
        after, evaluation = self._evaluated(after)
        return after, self._record(state, heard, arrival, decided, cost, events, evaluation)

    def initial_state(self) -> State:
        """One cluster of all devices, w0."""
        samples = self.fleet.muster(1).samples
        devices, none = len(samples), np.zeros(len(samples), dtype=np.int64)
        return State(
            round=0,
            seconds=0.0,
            tree=Tree.planted(devices),
            models={ROOT: self.fleet.initial_model()},
            conventional=None,
            samples=samples,
            memory=HeldUpdates(self.memory.width),
            last_heard=none,
            participation=none,
            energy_joules=np.zeros(devices),
            present_rounds=none,
            retry=none[:0],
            method=self.method.init(devices),
        )

    def finished(self, state: State) -> str | None:
        """Line 1: why no further round is due, or None."""
        config = self.config
        if state.round >= config.run.rounds:
            return "rounds"
        leaves = state.tree.leaves()
        if all(leaf.stopped_round is not None for leaf in leaves):
            few = config.scheduling.after_stop == "freeze" and greedy_phase(config.scheduling, len(leaves))
            nobody = few and not config.scheduling.recheck_every and self.planner.policy.name.startswith("fair")
            if config.run.end == "stopped" or nobody:
                return "stopped"
        return None

    # -------------------------------------------------------------------------------- before training

    def _mustered(self, state: State) -> tuple[State, list[Event]]:
        """The state with room for devices that came since; they wait in the largest cluster until they are placed."""
        roster, leaf_of = self.fleet.muster(state.round + 1), state.tree.leaf_of()
        events = [Event("incident", "", detail={"what": what}) for what in roster.incidents]
        events += [Event("drifted", leaf_of[device], device, detail) for device, detail in roster.drifted.items()]
        state = replace(state, best=unchanged(state.best, roster.drifted))
        more = len(roster.samples) - state.devices
        if more == 0:
            return replace(state, samples=roster.samples), events
        none = np.zeros(more, dtype=np.int64)
        grown = replace(
            state,
            tree=state.tree.grown(more),
            samples=roster.samples,
            last_heard=np.append(state.last_heard, none),
            participation=np.append(state.participation, none),
            energy_joules=np.append(state.energy_joules, np.zeros(more)),
            present_rounds=np.append(state.present_rounds, none),
            method=self.method.grown(state.method, more),
        )
        return grown, events

    def _placed(self, state: State, devices: Ints, fleet: Fleet) -> tuple[State, list[Event], Cost]:
        """Let the method decide where devices belong that are about to train."""
        if len(devices) == 0:
            return state, [], Cost.nothing(state.devices)
        with self.stopwatch.measure("clustering"):
            decided = self.method.before_training(state, devices, fleet)
        after = with_comparison(state, regrouped(state, decided))
        cost = decided.cost or Cost.nothing(state.devices)
        return rearranged(after, decided), events_of(state, decided, devices), cost

    def _plan(self, state: State, links: Links) -> Plan:
        clusters = cluster_views(state.tree.leaves(), self.config.scheduling, state.round + 1)
        called = np.union1d(state.retry, self.method.calls(state))
        return self.planner.plan(
            state.round + 1, links, clusters, state.samples, state.last_heard, called, state.losses
        )

    def _beyond_budget(self, seconds: float) -> bool:
        budget = self.config.run.time_budget_seconds
        return budget is not None and seconds > budget

    # -------------------------------------------------------------------------------- after training

    def _heard(self, state: State, arrival: Arrival) -> State:
        """The state one round on, its clusters and models as they were."""
        counted = np.isin(np.arange(state.devices), arrival.heard)
        away = arrival.plan.links.away
        return replace(
            state,
            round=state.round + 1,
            seconds=state.seconds + arrival.cost.seconds,
            memory=self.memory.renewed(state.memory, arrival.updates),
            last_heard=np.where(counted, state.round + 1, state.last_heard),
            participation=state.participation + counted,
            present_rounds=state.present_rounds + (1 if away is None else ~away),
            retry=arrival.lost,
            kept=state.kept if arrival.kept is None else arrival.kept_now,
        )

    def _carried_out(self, heard: State, decided: Decisions, arrival: Arrival) -> State:
        after = averaged(heard, regrouped(heard, decided), arrival, decided.left_out, self.config)
        return rearranged(replace(after, models={**after.models, **decided.settled}), decided)

    def _clocked(self, before: State, after: State, arrival: Arrival, asking: Cost) -> State:
        """With the time passed and the energy spent: on the round, and on questions."""
        total = arrival.cost + asking
        new = np.zeros(after.devices - before.devices)
        energy = np.append(before.energy_joules, new) + total.joules
        return replace(
            after,
            seconds=before.seconds + total.seconds,
            energy_joules=energy,
            downlink_bits=before.downlink_bits + total.downlink_bits,
            uplink_bits=before.uplink_bits + total.uplink_bits,
        )

    def _continue_conventional(self, before: State, after: State) -> State:
        """One more round of conventional federated learning by everybody, off the clock."""
        if before.conventional is None or self.config.run.conventional == "frozen":
            return after
        updates = held(self.fleet, before.kept).train_all(after.round, before.conventional)
        everyone = updates.devices
        sound = everyone[np.isfinite(updates.norms(everyone))]
        weights = after.samples[sound] / max(1, after.samples[sound].sum())
        move = aggregate(updates, sound, np.zeros_like(sound), weights, self.config.aggregation)[0]
        step, remembered = optimised(move, before.moments.get(CONVENTIONAL), self.config.aggregation)
        moments = after.moments if remembered is None else {**after.moments, CONVENTIONAL: remembered}
        return replace(after, conventional=np.asarray(before.conventional + step, np.float32), moments=moments)

    # -------------------------------------------------------------------------------- the record

    def _evaluated(self, state: State) -> tuple[State, EvaluationRecord | None]:
        """How well the devices are served, in the rounds in which that is asked; the state keeps the best models."""
        if state.round % self.config.run.evaluate_every and self.finished(state) is None:
            return state, None
        with self.stopwatch.measure("evaluation"):
            found = evaluated(held(self.fleet, state.kept), state, self.config.run)
        return (state if found.objective is None else replace(state, best=found.objective.best)), found

    def _record(
        self,
        before: State,
        heard: State,
        arrival: Arrival,
        decided: Decisions,
        asking: Cost,
        events: list[Event],
        evaluation: EvaluationRecord | None,
    ) -> RoundRecord:
        incidents = () if evaluation is None else evaluation.incidents
        return RoundRecord(
            round=heard.round,
            start_seconds=before.seconds,
            seconds=arrival.cost.seconds + asking.seconds,
            broadcast_seconds=arrival.broadcast_seconds,
            asking_seconds=asking.seconds,
            deadline_seconds=arrival.plan.deadline,
            timeline=arrival.timeline,
            computed=arrival.plan.computing,
            links=arrival.plan.links,
            device_joules=arrival.cost.joules + asking.joules,
            clusters=[self._cluster(heard, leaf, arrival, decided) for leaf in heard.tree.leaves()],
            events=[*events, *(Event("incident", "", detail={"what": what}) for what in incidents)],
            evaluation=evaluation,
        )

    def _cluster(self, heard: State, leaf: Node, arrival: Arrival, decided: Decisions) -> ClusterRecord:
        members = heard.tree.members(leaf.name)
        norms = decided.norms.get(leaf.name) or cluster_norms(heard, arrival, members, self.config)
        return ClusterRecord(
            leaf.name,
            len(members),
            len(np.intersect1d(arrival.heard, members)),
            norms.mean if norms.heard else None,
            norms.max if norms.heard else None,
            _verdict(leaf, decided),
        )


def _handovers(links: Links, leaf_of: list[str]) -> list[Event]:
    """One event for each device that another base station serves than in the round before."""
    if links.station is None or links.station_before is None:
        return []
    pairs = zip(links.station_before.tolist(), links.station.tolist(), strict=True)
    return [
        Event("handover", leaf_of[device], device, {"from": before, "to": after})
        for device, (before, after) in enumerate(pairs)
        if before != after
    ]


def _verdict(leaf: Node, decided: Decisions) -> Verdict:
    if any(split.node == leaf.name for split in decided.splits):
        return "split"
    if leaf.name in decided.stops:
        return "stop"
    at_rest = leaf.stopped_round is not None and leaf.name not in decided.reopens
    return "stopped" if at_rest else "go-on"
