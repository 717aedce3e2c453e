"""What happens in a round of cross-evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.clustering.criteria import enough_heard
from fedclade.clustering.method import BaseMethod, Conversation, Decisions, NewSplit, Norms, averaged, moved, regrouped
from fedclade.clustering.methods.cross_evaluation.memory import Known, known_of
from fedclade.clustering.methods.cross_evaluation.proposals import Proposals
from fedclade.clustering.methods.cross_evaluation.review import replaced, review_due, reviewed, settled
from fedclade.clustering.recent import cluster_norms
from fedclade.core.arrays import Ints
from fedclade.core.records import Event
from fedclade.core.state import State
from fedclade.core.tree import Node
from fedclade.fleet.fleet import Arrival, Fleet, Respondents
from fedclade.fleet.questions import Evaluate
from fedclade.scheduling.planner import heard_in_full


@dataclass(frozen=True)
class Verdict:
    """What was decided on one cluster."""

    known: Known
    split: NewSplit | None = None
    stop: Mapping[str, Any] | None = None
    reopen: Mapping[str, Any] | None = None
    note: Event | None = None


class CrossEvaluation(BaseMethod):
    """Clusters look after themselves: they try cuts, stop when their held-out loss stands still, and from time to time
    review who belongs where and whether two of them are one.
    """

    name, reveals = "cross-evaluation", "opinions"

    def init(self, devices: int) -> Known:
        """Nothing is known yet."""
        return Known.nothing(devices)

    def grown(self, own: Known, more: int) -> Known:
        """With room for new devices."""
        return own.grown(more)

    def save(self, own: Known) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """See ``Known.save``."""
        return own.save()

    def load(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Known:
        """See ``Known.load``."""
        return Known.load(facts, arrays)

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """A device never heard before joins those who prefer as it does.

        So does a device not heard since its leaf came to be, unless that is still to be tried.
        """
        tree, settings = state.tree, self.config.cross_evaluation
        if len(tree.leaves()) == 1 or len(devices) == 0:
            return Decisions(state.method)
        talk = Conversation(fleet, state.devices, known_of(state).doubted)
        born = np.array([tree.nodes[name].born_round for name in tree.leaf_of()])
        waiting = devices[(state.last_heard < born)[devices]]
        before = waiting[state.last_heard[waiting] > 0]
        doubted = settled(state, before, settings)
        moves = replaced(tree, state.models, devices, doubted, settings, talk, kind="placed")
        for move in moves:
            tree = moved(tree, move)
        never = np.setdiff1d(waiting, before)
        moves += replaced(tree, state.models, devices, never, settings, talk, newcomers=True, kind="placed")
        return Decisions(state.method, moves=tuple(moves), notes=talk.notes(), cost=talk.cost)

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """Decide on every cluster; then, on what has become of them, review who belongs where.

        In the last rounds, when devices train on what they held out, nothing is decided: they could not judge it.
        """
        settings = self.config.cross_evaluation
        if state.round >= self.config.refit_from:
            return self._settled(state, arrival)
        talk = Conversation(fleet, state.devices, known_of(state).doubted)
        proposals = Proposals(self.config, arrival, talk)
        verdicts, norms_of = dict[str, Verdict](), dict[str, Norms]()
        known = known_of(state)
        for leaf in state.tree.leaves():
            norms = cluster_norms(state, arrival, state.tree.members(leaf.name), self.config)
            norms_of[leaf.name] = norms
            verdict = self._judged(replace(state, method=known), leaf, norms, arrival, proposals, talk)
            verdicts[leaf.name], known = verdict, verdict.known
        decided = Decisions(
            known,
            stops={name: verdict.stop for name, verdict in verdicts.items() if verdict.stop is not None},
            reopens={name: verdict.reopen for name, verdict in verdicts.items() if verdict.reopen is not None},
            splits=tuple(verdict.split for verdict in verdicts.values() if verdict.split is not None),
            left_out=self._left_out(known, arrival),
            norms=norms_of,
        )
        after = averaged(state, regrouped(state, decided), arrival, decided.left_out, self.config)
        if review_due(after, settings):
            known, moves = reviewed(after, state.models, arrival, self.config, talk)
            decided = replace(decided, method=known, moves=moves)
        notes = tuple(verdict.note for verdict in verdicts.values() if verdict.note is not None)
        return replace(decided, notes=(*notes, *talk.notes()), cost=talk.cost)

    def _settled(self, state: State, arrival: Arrival) -> Decisions:
        """Every cluster trains on as it is, without those who do harm."""
        known, leaves = known_of(state), state.tree.leaves()
        norms = {
            leaf.name: cluster_norms(state, arrival, state.tree.members(leaf.name), self.config) for leaf in leaves
        }
        return Decisions(known, left_out=self._left_out(known, arrival), norms=norms)

    def _left_out(self, known: Known, arrival: Arrival) -> Ints:
        """Those just heard whose training does harm."""
        return np.setdiff1d(arrival.heard, known.without_harm(arrival.heard, self.config.cross_evaluation))

    def _judged(
        self, state: State, leaf: Node, norms: Norms, arrival: Arrival, proposals: Proposals, talk: Conversation
    ) -> Verdict:
        """Note the loss; try a cut if it is time for it; stop if nothing moves any more."""
        settings, round_, stopped = self.config.cross_evaluation, state.round, leaf.stopped_round
        present = np.intersect1d(arrival.heard, state.tree.members(leaf.name))
        if len(present) == 0 or not heard_in_full(self.config.scheduling, leaf, len(state.tree.leaves()), round_):
            return Verdict(known_of(state))
        known = self._losses_noted(state, leaf, present, talk)
        loss = float(np.nanmean(known.losses[list(leaf.devices)]))
        outlook = known.outlook(leaf, settings).seen(round_, loss, settings.progress)
        known, split, note = known.with_outlook(leaf.name, outlook), None, None
        if round_ >= outlook.next_test and enough_heard(norms, len(leaf.devices)):
            known = proposals.surveyed(replace(state, method=known), leaf)
            tried = proposals.tried(replace(state, method=known), leaf)
            known, split, note = tried.known, tried.split, tried.note
            outlook = known.outlook(leaf, settings)
        if split is not None:
            return Verdict(known, split)
        grown = stopped is not None and loss > settings.reopen_factor * (outlook.best_loss or np.inf)
        stands_still = stopped is None and outlook.stands_still(round_, settings)
        told = {"loss": loss}
        return Verdict(known, stop=told if stands_still else None, reopen=told if grown else None, note=note)

    def _losses_noted(self, state: State, leaf: Node, present: Ints, talk: Conversation) -> Known:
        """Each device's last known loss on held-out images, with those just heard under the model they trained."""
        model = state.models[leaf.name][None]
        answer = talk.ask(Evaluate(model, present, np.zeros_like(present), "validation"))
        known = known_of(state)
        losses = known.losses.copy()
        losses[present] = answer.loss
        return replace(known, losses=losses)
