"""Which cuts are tried, and how: the devices are asked about one another's models, then about the children's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from fedclade.clustering.bipartition import bipartition
from fedclade.clustering.criteria import cut_facts
from fedclade.clustering.method import Conversation, NewSplit
from fedclade.clustering.methods.cross_evaluation.affinity import Affinity, affinity_cut, large_enough
from fedclade.clustering.methods.cross_evaluation.memory import Known, known_of
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook, SplitTest
from fedclade.clustering.recent import completed, known_updates, recent, similarity
from fedclade.config import Config
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.random import generator
from fedclade.core.records import Event
from fedclade.core.state import State
from fedclade.core.tree import Node
from fedclade.fleet.fleet import Arrival
from fedclade.fleet.questions import SurveyModels, TryCut

Basis: TypeAlias = Literal["affinity", "similarity"]  # whose training helps whom; the directions of updates


@dataclass(frozen=True)
class Tried:
    """What came of trying cuts of one cluster."""

    outlook: Outlook
    split: NewSplit | None = None
    note: Event | None = None


class Proposals:
    """Proposes cuts of a cluster and has them tried, in one round."""

    def __init__(self, config: Config, arrival: Arrival, talk: Conversation) -> None:
        self._config, self._settings, self._clustering = config, config.cross_evaluation, config.clustering
        self._arrival, self._talk = arrival, talk
        self._whole = config.clustering.remembered is None  # updates of devices not heard now are known whole

    def surveyed(self, state: State, leaf: Node) -> Known:
        """Ask the devices just heard what they think of one another's models, and of those of devices heard lately."""
        settings, known = self._settings, known_of(state)
        members = state.tree.members(leaf.name)
        asked = np.intersect1d(self._arrival.heard, members)
        columns = recent(state, members, self._clustering) if self._whole else asked
        if state.devices > settings.survey_devices or len(columns) < 2 * self._clustering.min_cluster_size:
            return known
        if len(columns) > settings.survey_columns:
            draws = generator(self._config.run.seed, "survey", state.round)
            columns = np.sort(draws.choice(columns, settings.survey_columns, replace=False))
        updates = known_updates(state, self._arrival, columns).rows(columns)
        model = state.models[leaf.name][None]
        models = np.concatenate([model + np.float32(settings.survey_step) * updates, model])
        survey = self._talk.ask(SurveyModels(models, asked, settings.survey_images))
        affinity = known.affinity or Affinity.unknown(state.devices, survey.samples.shape[1])
        return replace(known, affinity=affinity.heard(asked, columns, survey, settings))

    def tried(self, state: State, leaf: Node) -> Tried:
        """Try cuts of the members heard lately on those just heard; the first that passes may be carried out."""
        settings, known = self._settings, known_of(state)
        outlook = known.outlook(leaf, settings)
        soon = replace(outlook, next_test=state.round + 1)
        if not self._enough_known(state, leaf):
            return Tried(soon)
        devices = recent(state, state.tree.members(leaf.name), self._clustering)
        alike = similarity(state, self._arrival, devices, self._clustering)
        guesses, best = self._guesses(known, devices, alike), None
        shares = {"affinity": 1.0 - settings.similarity_share, "similarity": settings.similarity_share}
        for by, side in guesses.items():
            test = self._test(state, leaf, devices, side, 1.0 / shares[by] if len(guesses) > 1 else 1.0)
            if test is None:
                continue
            if test.passed(settings):
                return Tried(outlook, self._split(state, leaf, devices, side, alike, by, test))
            best = test if best is None or test.p_value < best.p_value else best
        if best is None:  # no cut, or none of which both sides were just heard
            return Tried(soon if guesses else outlook.refused(state.round, leaf.born_round))
        refused = outlook.refused(state.round, leaf.born_round, best.p_value)
        note = Event("split-test", leaf.name, detail={"passed": False, **best.evidence()})
        return Tried(refused, note=note)

    def _split(
        self, state: State, leaf: Node, devices: Ints, side: Bools, alike: Singles, by: Basis, test: SplitTest
    ) -> NewSplit:
        evidence = {"by": by, **cut_facts(alike, side).evidence(), **test.evidence()}
        affinity = known_of(state).affinity if by == "affinity" else None
        likeness = alike if affinity is None else affinity.likeness(devices, self._settings)
        parts = completed(state, leaf.name, devices, side)
        return NewSplit(leaf.name, parts, evidence, (devices, likeness), self._talk.cost.seconds)

    def _enough_known(self, state: State, leaf: Node) -> bool:
        """Whether all members answered, or had time enough to: who did not would be dealt blindly."""
        affinity = known_of(state).affinity
        if affinity is None:
            return True
        answered = affinity.weight[list(leaf.devices)].any(axis=1)
        return bool(answered.all()) or state.round - leaf.born_round >= self._clustering.age_limit

    def _guesses(self, known: Known, devices: Ints, alike: Singles) -> Mapping[Basis, Bools]:
        """By what the devices said of one another's models; by the similarity of their updates, if that differs."""
        least, found = self._clustering.min_cluster_size, dict[Basis, Bools]()
        if known.affinity is not None:
            cut = affinity_cut(*known.affinity.among(devices), least, self._settings)
            if cut is not None:
                found["affinity"] = cut
        similar = bipartition(alike, self._settings.bipartition, least)
        if similar is not None and not ("affinity" in found and (found["affinity"] == similar).all()):
            found["similarity"] = similar
        return found

    def _test(self, state: State, leaf: Node, devices: Ints, side: Bools, cuts: float) -> SplitTest | None:
        """Both children's models, and their parent's, on the held-out images of the devices just heard.

        The models are made of all members' last updates, where these are kept whole: that is for the test alone.
        """
        settings = self._settings
        here = np.isin(devices, self._arrival.heard)
        asked, asked_side = devices[here], side[here]
        if not large_enough(asked_side, self._clustering.min_cluster_size):
            return None
        if not self._whole:
            devices, side = asked, asked_side
        known, updates = known_of(state), known_updates(state, self._arrival, devices)
        parts = devices[~side], devices[side], devices
        sound = [known.without_harm(part, settings) for part in parts]  # another kind looks like harm before the cut
        used = [each if len(each) else part for each, part in zip(sound, parts, strict=True)]
        share = np.stack([_shares(state, part) for part in used])
        start = state.models[leaf.name]
        moves = [updates.sums(part, part * 0, of[part], 1)[0] for part, of in zip(used, share, strict=True)]
        models = np.asarray(start + np.stack(moves), dtype=np.float32)
        own = share[:, asked].T if settings.units == "devices" else np.zeros((len(asked), len(models)))
        question = TryCut(models, start, asked, asked_side, own, settings.children_apart, self._arrival.updates)
        opinion = self._talk.ask(question)
        return SplitTest.of(asked_side, opinion.preference, opinion.gain, cuts, settings)


def _shares(state: State, devices: Ints) -> Floats:
    """Each device's weight in a model made of the updates of these: by D_k; 0 for the others."""
    shares = np.zeros(state.devices)
    shares[devices] = state.samples[devices] / state.samples[devices].sum()
    return shares
