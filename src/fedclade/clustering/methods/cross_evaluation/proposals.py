"""Which cuts are tried, and how: the devices are asked about one another's models, then about the children's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from fedclade.clustering.bipartition import bipartition
from fedclade.clustering.criteria import cut_facts
from fedclade.clustering.method import Conversation, NewSplit
from fedclade.clustering.methods.cross_evaluation.affinity import (
    Affinity,
    affinity_cut,
    best_known,
    completed_by_affinity,
    large_enough,
    likely_cuts,
)
from fedclade.clustering.methods.cross_evaluation.memory import Known, known_of
from fedclade.clustering.methods.cross_evaluation.separation import matched_halves
from fedclade.clustering.methods.cross_evaluation.split_test import PairTest, SplitTest
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
class Guess:
    """A cut of some devices, and what came of trying it."""

    by: Basis
    side: Bools
    test: PairTest | SplitTest


@dataclass(frozen=True)
class Tried:
    """What came of trying cuts of one cluster."""

    known: Known
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
        trained_on = self._talk.ask(SurveyModels(models, asked, settings.survey_images))
        nothing = Affinity.unknown(state.devices, trained_on.samples.shape[1])
        affinity = (known.affinity or nothing).heard(asked, columns, trained_on, settings=settings)
        if settings.controls == 0:
            return replace(known, affinity=affinity)
        held_out = self._talk.ask(SurveyModels(models, asked, settings.survey_images, "validation", known=True))
        beside = (known.held_out or nothing).heard(asked, columns, held_out, affinity.samples[columns], settings)
        now = float((held_out.samples * held_out.misfit[:, -1]).sum() / max(1, held_out.samples.sum()))
        first = now if known.first_misfit is None else known.first_misfit
        helped = max(known.help, settings.survey_step * (first - now))
        return replace(known, affinity=affinity, held_out=beside, first_misfit=first, help=helped)

    def tried(self, state: State, leaf: Node) -> Tried:
        """Try cuts of the members heard lately on those just heard; the first that passes may be carried out."""
        settings, known = self._settings, known_of(state)
        outlook = known.outlook(leaf, settings)
        soon = known.with_outlook(leaf.name, replace(outlook, next_test=state.round + 1))
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
                if known.one_by_one or self._differ_one_by_one(state, leaf, devices, side, alike):
                    state = replace(state, method=replace(known, one_by_one=True))
                    return self._tried_by_pairs(state, leaf, devices, alike)
                return Tried(known, self._split(state, leaf, devices, Guess(by, side, test), alike))
            best = test if best is None or test.p_value < best.p_value else best
        if best is None:  # no cut, or none of which both sides were just heard
            return Tried(soon if guesses else self._refused(state, leaf, None).known)
        return self._refused(state, leaf, best)

    def _refused(self, state: State, leaf: Node, test: PairTest | SplitTest | None) -> Tried:
        """The cluster waits, and it is told why."""
        known = known_of(state)
        outlook = known.outlook(leaf, self._settings)
        outlook = outlook.refused(state.round, leaf.born_round, 1.0 if test is None else test.p_value)
        note = None if test is None else Event("split-test", leaf.name, detail={"passed": False, **test.evidence()})
        return Tried(known.with_outlook(leaf.name, outlook), note=note)

    def _differ_one_by_one(self, state: State, leaf: Node, devices: Ints, side: Bools, alike: Singles) -> bool:
        """Whether most random halves of one side of a cut would pass as well: then groups are not all that differs."""
        settings, affinity = self._settings, known_of(state).affinity
        if settings.controls == 0:
            return False
        larger = np.flatnonzero(side if 2 * side.sum() > len(side) else ~side)
        if affinity is not None:
            alike = affinity.likeness(devices, settings)
        draws, p_values = generator(self._config.run.seed, "control", state.round), list[float]()
        for _ in range(settings.controls):
            halves = matched_halves(alike[np.ix_(larger, larger)], draws)
            test = self._test(state, leaf, devices[larger], halves)
            p_values += [] if test is None else [test.p_group]
        return bool(np.median(p_values or [1.0]) < settings.control_level)

    def _tried_by_pairs(self, state: State, leaf: Node, devices: Ints, alike: Singles) -> Tried:
        """Of the cuts by what devices say of each other, the worthiest is carried out if it passes."""
        settings, known = self._settings, known_of(state)
        guesses = self._by_pairs(state, devices)
        sure = [test.help for _, test in guesses if test.p_value < settings.pair_level]
        known = replace(known, help=max([known.help, *sure]))
        passed = [(side, test) for side, test in guesses if test.passed(settings)]
        if passed:
            side, best = max(passed, key=lambda guess: guess[1].worth)
            return Tried(known, self._split(state, leaf, devices, Guess("affinity", side, best), alike))
        worthiest = max((test for _, test in guesses), key=lambda test: test.worth, default=None)
        return self._refused(replace(state, method=known), leaf, worthiest)

    def _by_pairs(self, state: State, devices: Ints) -> list[tuple[Bools, PairTest]]:
        """The likely cuts, judged by what the devices said of one another's models.

        Of many devices those are cut about whom most is known; the others join the child that suits them better.
        """
        settings, known, least = self._settings, known_of(state), self._clustering.min_cluster_size
        if known.affinity is None or known.held_out is None:
            return []
        pairs = known.affinity.pairs(devices, settings)
        core = best_known(pairs[1], settings)
        whose, both = devices[core], (known.affinity, known.held_out)
        guesses = []
        for side in likely_cuts(*both[0].pairs(whose, settings), both[0].help(whose, known.help), least, settings):
            draws = generator(self._config.run.seed, "deals", state.round)
            test = PairTest.of(side, whose, *both, known.help, least, draws, settings)
            guesses.append((completed_by_affinity(core, side.astype(np.int64), *pairs) == 1, test))
        return guesses

    def _split(self, state: State, leaf: Node, devices: Ints, guess: Guess, alike: Singles) -> NewSplit:
        evidence = {"by": guess.by, **cut_facts(alike, guess.side).evidence(), **guess.test.evidence()}
        affinity = known_of(state).affinity if guess.by == "affinity" else None
        likeness = alike if affinity is None else affinity.likeness(devices, self._settings)
        parts = completed(state, leaf.name, devices, guess.side)
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
            cut = affinity_cut(*known.affinity.pairs(devices, self._settings), least, self._settings)
            if cut is not None:
                found["affinity"] = cut
        similar = bipartition(alike, self._settings.bipartition, least)
        if similar is not None and not ("affinity" in found and (found["affinity"] == similar).all()):
            found["similarity"] = similar
        return found

    def _test(self, state: State, leaf: Node, devices: Ints, side: Bools, cuts: float = 1.0) -> SplitTest | None:
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
        moves = [updates.sums(part, part * 0, _shares(state, part), 1)[0] for part in used]
        models = np.asarray(state.models[leaf.name] + np.stack(moves), dtype=np.float32)
        opinion = self._talk.ask(TryCut(models, asked, asked_side, settings.children_apart))
        return SplitTest.of(asked_side, opinion.preference, opinion.gain, cuts, settings)


def _shares(state: State, devices: Ints) -> Floats:
    """Each device's weight in a model made of the updates of these: by D_k."""
    samples = state.samples[devices]
    return np.asarray(samples / samples.sum())
