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
)
from fedclade.clustering.methods.cross_evaluation.memory import Known, known_of
from fedclade.clustering.methods.cross_evaluation.preference import consistent_cuts, kinship
from fedclade.clustering.methods.cross_evaluation.rehearsal import Rehearsal
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook, SplitTest
from fedclade.clustering.methods.cross_evaluation.without_own import PayTest, costs_before
from fedclade.clustering.recent import completed, known_updates, recent, similarity
from fedclade.config import Config
from fedclade.core.arrays import Bools, Ints, Singles
from fedclade.core.random import generator
from fedclade.core.records import Event
from fedclade.core.state import State
from fedclade.core.tree import Node
from fedclade.fleet.fleet import Arrival
from fedclade.fleet.questions import SurveyModels, fraction_for

Basis: TypeAlias = Literal["affinity", "similarity"]  # whose training helps whom; the directions of updates


@dataclass(frozen=True)
class Guess:
    """A cut of some devices, and what came of trying it."""

    by: Basis
    side: Bools
    test: PayTest | SplitTest


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
        self._arrival, self._talk, self._rehearsal = arrival, talk, Rehearsal(config, arrival, talk)
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
        fraction = self._affordable(known.outlook(leaf, settings), len(models))
        survey = self._talk.ask(SurveyModels(models, asked, settings.survey_least, fraction))
        affinity = known.affinity or Affinity.unknown(state.devices, survey.samples.shape[1])
        fresh = np.isin(columns, asked)
        affinity = affinity.heard(asked, columns, survey, settings=settings, fresh=fresh)
        self._talk.doubted = np.flatnonzero(affinity.doubted)
        return self._help_noted(replace(state, method=replace(known, affinity=affinity)), leaf, columns[fresh])

    def _affordable(self, outlook: Outlook, models: int) -> float:
        """The fraction of its images on which a device looks at so many models; less where nothing speaks for a cut."""
        settings = self._settings
        quiet = outlook.tests > 0 and outlook.p_value > settings.suspect_level
        work = settings.survey_work_later if quiet else settings.survey_work
        return fraction_for(work, self._config.training.passes, models)

    def _help_noted(self, state: State, leaf: Node, asked: Ints) -> Known:
        """The most good that a round of training with one's own kind would have done, if this round's is more.

        By what training together did, without what a device itself did to it: it may be long after the first rounds
        that devices turn out to differ one by one, and training does most good in these.
        """
        known, settings = known_of(state), self._settings
        if settings.controls == 0 or known.affinity is None or len(asked) == 0:
            return known
        together = self._rehearsal.help_together(state, leaf, asked)
        kin = kinship(*known.affinity.plain(asked), settings.closest_share)
        return known.helped(together * kin)

    def tried(self, state: State, leaf: Node) -> Tried:
        """Try cuts of the members heard lately on those just heard; the first that passes may be carried out."""
        settings, known = self._settings, known_of(state)
        if not self._enough_known(state, leaf):
            return self._later(state, leaf)
        devices = recent(state, state.tree.members(leaf.name), self._clustering)
        alike = similarity(state, self._arrival, devices, self._clustering)
        if known.one_by_one:
            return self._tried_without_own(state, leaf, devices, alike)
        guesses, best = self._guesses(known, devices, alike), None
        shares = {"affinity": 1.0 - settings.similarity_share, "similarity": settings.similarity_share}
        for by, side in guesses.items():
            test = self._rehearsal.split_test(state, leaf, devices, side, 1.0 / shares[by] if len(guesses) > 1 else 1.0)
            if test is None:
                continue
            if test.passed(settings):
                halved = self._differ_one_by_one(state, leaf, devices, side, test)
                if halved is not None:  # of all devices, one of another kind may do it: that is not for good
                    state = replace(state, method=replace(known, one_by_one=len(halved) < len(devices)))
                    return self._tried_without_own(state, leaf, devices, alike)
                return Tried(known, self._split(state, leaf, devices, Guess(by, side, test), alike))
            best = test if best is None or test.p_value < best.p_value else best
        if best is None:  # no cut, or none of which both sides were just heard
            return self._later(state, leaf) if guesses else self._refused(state, leaf, None)
        return self._refused(state, leaf, best)

    def _later(self, state: State, leaf: Node) -> Tried:
        """Nothing could be tried: the cluster's turn comes again in the next round."""
        known = known_of(state)
        outlook = replace(known.outlook(leaf, self._settings), next_test=state.round + 1)
        return Tried(known.with_outlook(leaf.name, outlook))

    def _refused(self, state: State, leaf: Node, test: PayTest | SplitTest | None) -> Tried:
        """The cluster waits, and it is told why."""
        known = known_of(state)
        outlook = known.outlook(leaf, self._settings)
        p_value = 1.0 if test is None else test.p_value
        outlook = outlook.refused(state.round, leaf.born_round, p_value, self._waits(state, leaf))
        note = None if test is None else Event("split-test", leaf.name, detail={"passed": False, **test.evidence()})
        return Tried(known.with_outlook(leaf.name, outlook), note=note)

    def _waits(self, state: State, leaf: Node) -> float:
        """The share of its age that a cluster waits after a cut that did not pass.

        Where devices differ one by one and half were heard, a round tells of a quarter of all pairs of devices whether
        they help each other; so it waits a quarter as long.
        """
        settings = self._settings
        if known_of(state).one_by_one:
            heard = np.isin(state.tree.members(leaf.name), self._arrival.heard).mean()
            return settings.wait_one_by_one * float(heard**2)
        return settings.wait

    def _differ_one_by_one(self, state: State, leaf: Node, devices: Ints, side: Bools, test: SplitTest) -> Ints | None:
        """The devices most alike, if random halves of them would pass as well: then groups are not all there is.

        They are of one child, if enough of it were heard: those most alike of all may be of the two groups that the cut
        is about to part, and halves of these pass for that reason.
        """
        settings, affinity, least = self._settings, known_of(state).affinity, 2 * self._clustering.min_cluster_size
        here = np.isin(devices, self._arrival.heard)
        larger = here & (side if 2 * np.count_nonzero(side & here) > np.count_nonzero(here) else ~side)
        whose = np.sort(devices[larger if np.count_nonzero(larger) >= least else here])
        if affinity is not None:
            whose = affinity.most_alike(whose, least, settings)
        draws, half = generator(self._config.run.seed, "control", state.round), np.arange(len(whose)) < len(whose) // 2
        tests = (
            self._rehearsal.split_test(state, leaf, whose, draws.permutation(half)) for _ in range(settings.controls)
        )
        told = [each for each in tests if each is not None]
        if not told:
            return None
        p_value, gain = (float(np.median([getattr(each, name) for each in told])) for name in ("p_group", "gain_group"))
        clear = p_value < settings.control_level and gain > settings.control_share * test.gain_group
        return whose if clear else None

    def _tried_without_own(self, state: State, leaf: Node, devices: Ints, alike: Singles) -> Tried:
        """A cut that paid is tried once more, by what is learnt in a later round; if it pays again, it is made.

        So the noise by which it was chosen does not speak for it. In a cluster's first rounds none is tried.
        """
        settings, known = self._settings, known_of(state)
        if state.round - leaf.born_round <= settings.pays_after:
            return self._refused(state, leaf, None)
        before, best = known.promising.get(leaf.name), None
        cuts = [] if before is None else [np.isin(devices, before)]
        for number, side in enumerate([*cuts, *self._consistent_cuts(state, devices, alike)]):
            test = self._rehearsal.pay_test(state, state.models[leaf.name], devices, side)
            if test is None:
                if number == 0 and self._may_wait(state, leaf):
                    return self._later(state, leaf)
                continue
            if test.passed(settings, known.best_help, costs_before(state.tree, leaf.name)):
                known = known.with_promise(leaf.name, None if number < len(cuts) else devices[side])
                state = replace(state, method=known)
                if number < len(cuts):
                    return Tried(known, self._split(state, leaf, devices, Guess("affinity", side, test), alike))
                return self._later(state, leaf)
            best = test if best is None or test.cost_in_class > best.cost_in_class else best
        return self._refused(replace(state, method=known.with_promise(leaf.name, None)), leaf, best)

    def _may_wait(self, state: State, leaf: Node) -> bool:
        """Whether there is time to wait for a round that hears both sides of the cut that comes first."""
        return state.round - leaf.born_round < 2 * self._clustering.age_limit

    def _consistent_cuts(self, state: State, devices: Ints, alike: Singles) -> list[Bools]:
        """By whose training helps whom; by the similarity of updates if that was not asked."""
        affinity, least = known_of(state).affinity, self._clustering.min_cluster_size
        if affinity is None:
            similar = bipartition(alike, self._settings.bipartition, least)
            return [] if similar is None else [similar]
        return consistent_cuts(*affinity.plain(devices), state.samples[devices], least, self._settings)

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
