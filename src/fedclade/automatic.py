"""Automatic splitting: what is asked of the devices, and when. What follows from the answers is ``clustering.trial``'s.

A run's clusters look after themselves: they try cuts, stop when their held-out loss stands still, and from time to time
review who belongs where and whether two of them are one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeAlias

import numpy as np

from fedclade.asking import Asking
from fedclade.clustering import (
    Belonging,
    CutFacts,
    Kinship,
    Node,
    Outlook,
    Tree,
    Trial,
    bipartition,
    cut_facts,
    gamma_test,
    group_effect,
    kindred_cut,
)
from fedclade.clustering.kinship import CORE, STEP, large_enough
from fedclade.config import Config
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.random import generator
from fedclade.core.state import Event, Fresh, ServerState, index, rows_of, stack
from fedclade.fleet.simulated import Share

IMAGES = 256  # of a device, about, on which it looks at the others' models
FEW_DEVICES = 1000  # more in all are cut by similarity alone: kinship is K × K
APART = 3.0  # times as far from their parent's: a preference is seen better, and without groups there is still none
MOVE_LEVEL = 0.05
NO_DOUBT = 0.5  # level for devices that are nowhere at home yet
CONGRUENT = 0.05  # p-value above which nothing tells two clusters apart, and neither loses by a merger
VOICES = 0.5  # of the members of either cluster, at least, are asked about a merger
SUSPECT, LONGER = 0.05, 3  # p-value of a cut up to which a cluster waits so many times as long: more rounds may tell
WORSE = 1.2  # a stopped cluster whose loss has grown by this factor goes on


Basis: TypeAlias = Literal["similarity", "kinship"]  # of updates; or by whose training helps whom
COUNTS_AS: Mapping[Basis, float] = {"kinship": 1.25, "similarity": 5.0}  # cuts, if both are tried: 4/5 and 1/5 of level


@dataclass(frozen=True)
class Cut:
    """A cut as found: of some members of a cluster."""

    devices: Ints
    side: Bools  # membership in the second child
    facts: CutFacts
    likeness: Singles  # of the devices, from -1 to 1: what showed the groups
    by: Basis = "similarity"
    trial: Trial | None = None


class Automatic:
    """A run's unchanging parts."""

    def __init__(self, config: Config, asking: Asking, samples: Ints) -> None:
        self.config, self.asking, self.samples = config.clustering, asking, samples
        self.seed = config.run.seed

    def outlook(self, state: ServerState, leaf: Node) -> Outlook:
        """What is known of a cluster's future."""
        first = leaf.born_round + self.config.warmup_rounds + 1
        return state.outlooks.get(leaf.name, Outlook(next_trial=first))

    # -------------------------------------------------------------------------------- splitting

    def surveyed(self, state: ServerState, leaf: Node, recent: Ints, fresh: Fresh) -> ServerState:
        """Ask the devices just heard what they think of one another's models, and of those of devices heard lately."""
        asked = np.intersect1d(fresh.devices, np.array(leaf.devices))
        columns = recent if self.config.sketch is None else asked
        if len(state.last_heard) > FEW_DEVICES or len(columns) < 2 * self.config.min_cluster_size:
            return state
        if len(columns) > CORE:
            draws = generator(self.seed, "survey", state.round)
            columns = np.sort(draws.choice(columns, CORE, replace=False))
        updates = (
            fresh.updates[np.isin(fresh.devices, columns)] if self.config.sketch else rows_of(state.updates, columns)
        )
        model = state.models[leaf.name][None]
        models = np.concatenate([model + np.float32(STEP) * updates, model])
        survey = self.asking.survey(models, asked, IMAGES)
        known = state.kinship or Kinship.unknown(len(state.last_heard), survey.samples.shape[1])
        return replace(state, kinship=known.heard(asked, columns, survey))

    def tried(
        self, state: ServerState, leaf: Node, recent: Ints, similarity: Singles, fresh: Fresh
    ) -> tuple[Cut | None, Outlook, list[Event]]:
        """Try cuts of the members heard lately on those just heard; the first that passes may be carried out."""
        outlook = self.outlook(state, leaf)
        soon = replace(outlook, next_trial=state.round + 1)
        if not self._enough_known(state, leaf):
            return None, soon, []
        guesses, best = self._guesses(state, recent, similarity), None
        for by, side in guesses.items():
            trial = self._trial(state, leaf, recent, side, fresh, COUNTS_AS[by] if len(guesses) > 1 else 1.0)
            if trial is None:
                continue
            if trial.passed(self.config.level):
                facts = cut_facts(similarity, side, rows_of(state.updates, recent), self.config)
                if gamma_test(facts):
                    known = state.kinship if by == "kinship" else None
                    likeness = similarity if known is None else known.likeness(recent)
                    return Cut(recent, side, facts, likeness, by, trial), outlook, []
            best = trial if best is None or trial.p_value < best.p_value else best
        if best is None:  # no cut, or none of which both sides were just heard
            return None, soon if guesses else outlook.refused(state.round, leaf.born_round), []
        refused = outlook.refused(state.round, leaf.born_round, best.p_value)
        return None, refused, [Event("trial", leaf.name, detail={"passed": False, **vars(best)})]

    def _enough_known(self, state: ServerState, leaf: Node) -> bool:
        """Whether all members answered, or had time enough to: who did not would be dealt blindly."""
        if state.kinship is None:
            return True
        answered = state.kinship.weight[list(leaf.devices)].any(axis=1)
        return bool(answered.all()) or state.round - leaf.born_round >= self.config.age_limit

    def _guesses(self, state: ServerState, recent: Ints, similarity: Singles) -> dict[Basis, Bools]:
        """By what the devices said of one another's models; by the similarity of their updates, if that differs."""
        least, found = self.config.min_cluster_size, dict[Basis, Bools]()
        if state.kinship is not None and (kin := kindred_cut(*state.kinship.among(recent), least)) is not None:
            found["kinship"] = kin
        similar = bipartition(similarity, self.config.bipartition, least)
        if similar is not None and not ("kinship" in found and (found["kinship"] == similar).all()):
            found["similarity"] = similar
        return found

    def _trial(
        self, state: ServerState, leaf: Node, devices: Ints, side: Bools, fresh: Fresh, cuts: float
    ) -> Trial | None:
        """Both children's models, and their parent's, on the held-out images of the devices just heard.

        The models are made of all members' last updates, where these are kept whole: that is for the trial alone. To
        tell the groups, the children's are set apart further than one round's training does.
        """
        here = np.isin(devices, fresh.devices)
        asked, asked_side = devices[here], side[here]
        if not large_enough(asked_side, self.config.min_cluster_size):
            return None
        if self.config.sketch is None:
            fresh = Fresh(devices, rows_of(state.updates, devices))
        else:
            devices, side = asked, asked_side
        parts = devices[~side], devices[side], devices
        sound = [without_harm(state, part) for part in parts]  # what is of another kind looks like harm before the cut
        averaged = [each if len(each) else part for each, part in zip(sound, parts, strict=True)]
        models = np.stack([fresh.average(state.models[leaf.name], part, self.samples) for part in averaged])
        first, own = np.zeros_like(asked), asked_side.astype(np.int64)
        apart = models[2] + np.float32(APART) * (models[:2] - models[2])
        preference = self.asking.compare(apart, asked, first, first + 1)
        return Trial.of(asked_side, preference, self.asking.compare(models, asked, own, first + 2), cuts)

    # -------------------------------------------------------------------------------- stopping

    def losses(self, state: ServerState, leaf: Node, present: Ints) -> Floats:
        """Each device's last known loss on held-out images, with those just heard under the model they trained."""
        answer = self.asking.evaluate(state.models[leaf.name][None], present, np.zeros_like(present), "validation")
        losses = state.losses.copy()
        losses[present] = answer.loss
        return losses

    def stands_still(self, outlook: Outlook, round_: int) -> bool:
        """No progress for some rounds, and no cut that was worth it or may soon be."""
        patience = self.config.patience * (1 if outlook.p_value > SUSPECT else LONGER)
        return outlook.trials > 0 and round_ - outlook.best_round >= patience

    # -------------------------------------------------------------------------------- reviewing

    def review_due(self, state: ServerState) -> bool:
        """Every few rounds, and before a cluster is tried: a device in the wrong place would look like a group."""
        every = self.config.review_every
        soon = (self.outlook(state, leaf).next_trial == state.round + 1 for leaf in state.tree.leaves())
        return every > 0 and (state.round % every == 0 or any(soon))

    def review(self, state: ServerState, heard: Ints) -> tuple[ServerState, list[Event]]:
        """Move devices that prefer as another cluster's members do; then merge two clusters that are one."""
        names = [leaf.name for leaf in state.tree.leaves()]
        if len(names) < 2 or len(heard) == 0:
            return state, []
        tree, moves = self.replaced(state.tree, state.models, heard, self.settled(state, heard))
        state, merges = self._merged(replace(state, tree=tree), heard)
        return state, moves + merges

    def settled(self, state: ServerState, devices: Ints) -> Ints:
        """Those in clusters of which a cut was tried in vain; before that, a cluster may be of kinds yet to part."""
        tried = [leaf.devices for leaf in state.tree.leaves() if self.outlook(state, leaf).trials]
        return devices[np.isin(devices, [*chain(*tried)])]

    def replaced(
        self,
        tree: Tree,
        models: Mapping[str, Singles],
        devices: Ints,
        doubted: Ints,
        kind: Literal["moved", "placed"] = "moved",
        level: float = MOVE_LEVEL,
    ) -> tuple[Tree, list[Event]]:
        """Doubted devices, among those asked, in the leaf whose members' preferences they share, class by class."""
        if len(doubted) == 0:
            return tree, []
        names = [leaf.name for leaf in tree.leaves()]
        stacked = stack(models, names, self.asking.parameters)
        own = index(tree.leaf_of(), devices, names)
        belonging = Belonging.of(self.asking.survey(stacked, devices), own)
        events = []
        rows = np.flatnonzero(belonging.doubtful & np.isin(devices, doubted))
        if len(rows) == 0:
            return tree, []
        ask = stacked, devices[rows], own[rows], belonging.nearest[rows]
        answers = [self.asking.compare(*ask, share) for share in ("train", "validation")]
        for place, row in enumerate(rows.tolist()):
            device, to = int(devices[row]), int(belonging.nearest[row])
            tests = [belonging.test(row, answer.among(np.array([place]))) for answer in answers]
            gain, p_value = min(tests, key=lambda test: test[1])
            source, target = tree.leaf_of()[device], tree.nodes[names[to]]
            if p_value >= level or target.merged_into is not None:
                continue
            last = len(tree.nodes[source].devices) == 1
            tree = tree.merge(source, target.name) if last else tree.move(device, target.name)
            events.append(Event(kind, target.name, device, {"from": source, "gain": gain, "p_value": p_value}))
        return tree, events

    def _merged(self, state: ServerState, heard: Ints) -> tuple[ServerState, list[Event]]:
        """The two clusters whose models suit each other's devices best become one if nothing speaks against it."""
        names = [leaf.name for leaf in state.tree.leaves()]
        own = index(state.tree.leaf_of(), heard, names)
        if len(names) < 2 or len(np.unique(own)) < 2:
            return state, []
        models = stack(state.models, names, self.asking.parameters)
        losses = losses_of(self.asking, models, heard, "validation")
        known = np.isfinite(losses).all(axis=0)
        heard, own, losses = heard[known], own[known], losses[:, known]
        mine = losses[own, np.arange(len(heard))]
        costs = np.full((len(names), len(names)), np.inf)
        for a in np.unique(own):
            strange = (losses - mine)[:, own == a].mean(axis=1)
            costs[a] = np.where(np.arange(len(names)) == a, np.inf, strange)
        first, second = np.unravel_index(np.argmin(costs + costs.T), costs.shape)
        if not np.isfinite(costs[first, second] + costs[second, first]):
            return state, []
        return self._merge_if_congruent(state, heard, (names[min(first, second)], names[max(first, second)]))

    def _merge_if_congruent(
        self, state: ServerState, heard: Ints, pair: tuple[str, str]
    ) -> tuple[ServerState, list[Event]]:
        members = [state.tree.members(name) for name in pair]
        if min(np.isin(each, heard).mean() for each in members) < VOICES:
            return state, []
        weights = np.array([self.samples[each].sum() for each in members], dtype=np.float64)
        both = np.stack([state.models[name] for name in pair])
        together = ((weights / weights.sum()).astype(np.float32) @ both).astype(np.float32)
        asked = np.intersect1d(heard, np.concatenate(members))
        side = np.isin(asked, members[1])
        models, own = np.concatenate([both, together[None]]), side.astype(np.int64)
        _, p_groups = group_effect(side, self.asking.compare(models, asked, own * 0, own * 0 + 1))
        losing = self.asking.compare(models, asked, own, own * 0 + 2)  # what it costs to give up the own model
        costs = [losing.among(child).test() for child in (~side, side)]
        if min(p_groups, *(p for _, p in costs)) < CONGRUENT or sum(cost for cost, _ in costs) >= 0:
            return state, []
        into, name = pair
        outlooks = {key: value for key, value in state.outlooks.items() if key not in pair}
        state = replace(
            state,
            tree=state.tree.merge(name, into),
            models={**state.models, into: together},
            outlooks={**outlooks, into: Outlook(next_trial=state.round + max(1, state.round // 2))},
        )
        detail = {"merged": name, "gain": [-cost for cost, _ in costs], "p_groups": p_groups}
        return state, [Event("merge", into, detail=detail)]


def without_harm(state: ServerState, devices: Ints) -> Ints:
    """Whose updates are averaged."""
    return devices if state.kinship is None else devices[~state.kinship.harmful[devices]]


def losses_of(asking: Asking, models: Singles, devices: Ints, share: Share) -> Floats:
    """Of every model on a share of every device's images; infinite where a real device is gone."""
    each = np.repeat(np.arange(len(models)), len(devices))
    loss = asking.evaluate(models, np.tile(devices, len(models)), each, share).loss
    return np.where(np.isnan(loss), np.inf, loss).reshape(len(models), len(devices))
