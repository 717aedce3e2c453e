"""A rehearsal of cuts: the models that the children would have, put to the devices that would have them."""

from dataclasses import replace

import numpy as np

from fedclade.clustering.method import Conversation
from fedclade.clustering.methods.cross_evaluation.affinity import large_enough
from fedclade.clustering.methods.cross_evaluation.memory import known_of
from fedclade.clustering.methods.cross_evaluation.split_test import SplitTest
from fedclade.clustering.methods.cross_evaluation.without_own import (
    PayTest,
    mean_misfits,
    smaller_child,
    with_shorter_steps,
)
from fedclade.clustering.recent import known_updates
from fedclade.config import Config
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.state import State
from fedclade.core.tree import Node
from fedclade.fleet.fleet import Arrival
from fedclade.fleet.questions import SurveyModels, TryCut


class Rehearsal:
    """Makes models of what arrived in a round, and asks the devices just heard about them."""

    def __init__(self, config: Config, arrival: Arrival, talk: Conversation) -> None:
        self._settings, self._clustering = config.cross_evaluation, config.clustering
        self._arrival, self._talk = arrival, talk
        self._whole = config.clustering.remembered is None  # updates of devices not heard now are known whole

    def help_together(self, state: State, leaf: Node, asked: Ints) -> float:
        """The good that this round's training together did to devices, without what each did itself; in misfit."""
        models, own = self._made_by([asked], state, state.models[leaf.name], asked)
        images, updates = self._settings.review_images, self._arrival.updates
        question = SurveyModels(models, asked, images, own=own, updates=updates)
        together, before = mean_misfits([self._talk.ask(question)]).mean(axis=0)
        return float(before - together)

    def split_test(self, state: State, leaf: Node, devices: Ints, side: Bools, cuts: float = 1.0) -> SplitTest | None:
        """Both children's models, and their parent's, on the held-out images of the devices just heard."""
        settings = self._settings
        here = np.isin(devices, self._arrival.heard)
        asked, asked_side = devices[here], side[here]
        if not large_enough(asked_side, self._clustering.min_cluster_size):
            return None
        models, _ = self._children(state, state.models[leaf.name], devices, side, asked)
        opinion = self._talk.ask(TryCut(models[:-1], asked, asked_side, settings.children_apart))
        return SplitTest.of(asked_side, opinion.preference, opinion.gain, cuts, settings)

    def _children(
        self, state: State, start: Singles, devices: Ints, side: Bools, asked: Ints
    ) -> tuple[Singles, Floats]:
        """The models of both children, of their parent and of the start; and what part those asked have in each.

        They are made of all members' last updates, where these are kept whole: that is for tests alone.
        """
        if not self._whole:
            side, devices = side[np.isin(devices, asked)], asked
        return self._made_by([devices[~side], devices[side], devices], state, start, asked)

    def _made_by(self, parts: list[Ints], state: State, start: Singles, asked: Ints) -> tuple[Singles, Floats]:
        """The models that each part's updates make of the start, and this one; what part those asked have in each."""
        known = known_of(state)
        sound = [known.without_harm(part, self._settings) for part in parts]  # another kind looks like harm at first
        used = [each if len(each) else part for each, part in zip(sound, parts, strict=True)]
        updates = known_updates(state, self._arrival, np.unique(np.concatenate(parts)))
        moves = [updates.sums(part, part * 0, _shares(state, part), 1)[0] for part in used]
        own = [np.where(np.isin(asked, part), state.samples[asked] / state.samples[part].sum(), 0.0) for part in used]
        models = [*np.asarray(start + np.stack(moves), dtype=np.float32), start]
        return np.stack(models), np.stack([*own, np.zeros(len(asked))], axis=1)

    def pay_test(self, state: State, start: Singles, devices: Ints, side: Bools) -> PayTest | None:
        """What a cut is worth to the devices just heard, by what they learnt, without what they themselves did.

        ``start``: the model that either side goes on from.
        """
        here, smaller = np.isin(devices, self._arrival.heard), smaller_child(side)
        devices, side = devices[here], side[here]
        if not large_enough(side, self._clustering.min_cluster_size):
            return None
        models, own = with_shorter_steps(*self._children(state, start, devices, side, devices), side)
        question = SurveyModels(models, devices, own=own, updates=self._arrival.updates)
        again = replace(question, share="validation", known=True)
        return PayTest.of(side, [self._talk.ask(question), self._talk.ask(again)], smaller)


def _shares(state: State, devices: Ints) -> Floats:
    """Each device's weight in a model made of the updates of these: by D_k."""
    samples = state.samples[devices]
    return np.asarray(samples / samples.sum())
