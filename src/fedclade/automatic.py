"""Automatic splitting: what is asked of the devices, and when. What follows from the answers is ``clustering.trial``'s.

A run's clusters look after themselves: they try cuts, stop when their held-out loss stands still, and from time to time
review who belongs where and whether two of them are one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedclade.arrays import Bools, Floats, Ints, Singles
from fedclade.clustering import (
    CutFacts,
    Node,
    Outlook,
    Tree,
    Trial,
    agreement,
    bipartition,
    cut_facts,
    gamma_test,
    group_effect,
    refined,
    without_labels,
)
from fedclade.clustering.trial import AGREEMENT
from fedclade.config import Config
from fedclade.state import Event, Fresh, ServerState, index, stack
from fedclade.training import Share, Trainer

REFINEMENTS = 5  # at most, before a trial
FEW_DEVICES = 1000  # of more, only the similarities as they are make a guess: the rest needs K³ operations
SHARES: tuple[Share, ...] = ("validation", "train")
MOVE_LEVEL = 0.01
CONGRUENT = 0.05  # p-value above which nothing tells two clusters apart, and neither loses by a merger
WORSE = 1.2  # a stopped cluster whose loss has grown by this factor goes on


@dataclass(frozen=True)
class Cut:
    """A cut as found: of some members of a cluster."""

    devices: Ints
    side: Bools  # membership in the second child
    facts: CutFacts
    similarity: Singles  # of `rows`
    rows: Ints
    trial: Trial | None = None


class Automatic:
    """A run's unchanging parts."""

    def __init__(self, config: Config, trainer: Trainer, samples: Ints) -> None:
        self.config, self.trainer, self.samples = config.clustering, trainer, samples

    def outlook(self, state: ServerState, leaf: Node) -> Outlook:
        """What is known of a cluster's future."""
        first = leaf.born_round + self.config.warmup_rounds + 1
        return state.outlooks.get(leaf.name, Outlook(next_trial=first))

    # -------------------------------------------------------------------------------- splitting

    def tried(
        self, state: ServerState, leaf: Node, cut: Cut | None, fresh: Fresh
    ) -> tuple[Cut | None, Outlook, list[Event]]:
        """Try a cut and others like it on the devices just heard; the best is given back if it may be carried out."""
        outlook = self.outlook(state, leaf)
        refused = outlook.refused(state.round, leaf.born_round)
        found = None if cut is None else self._best(cut, state.models[leaf.name], fresh)
        if cut is None or found is None:
            return None, refused, []
        asked, side, trial = found
        second, everyone = set(asked[side].tolist()), set(asked.tolist())
        alike = agreement(second, set(outlook.passed), everyone & set(outlook.asked))
        passed = trial.passed(self.config.level)
        event = Event("trial", leaf.name, detail={"passed": passed, "agreement": alike, **vars(trial)})
        if not passed:
            return None, refused, [event]
        if alike < AGREEMENT:
            kept = replace(
                outlook,
                next_trial=state.round + 1,
                passed=tuple(sorted(second)),
                asked=tuple(sorted(everyone)),
                trials=outlook.trials + 1,
            )
            return None, kept, [event]
        here = np.flatnonzero(np.isin(cut.devices, asked))
        facts = cut_facts(cut.similarity[np.ix_(here, here)], side, state.updates[asked], self.config)
        if not gamma_test(facts):
            return None, refused, [event]
        return replace(cut, devices=asked, side=side, facts=facts, trial=trial), outlook, []

    def _best(self, cut: Cut, model: Singles, fresh: Fresh) -> tuple[Ints, Bools, Trial] | None:
        """The most convincing of some cuts of the devices just heard."""
        here = np.isin(cut.devices, fresh.devices)
        asked = cut.devices[here]
        guesses, pair = [cut.side[here]], np.ix_(here, here)
        if len(asked) <= FEW_DEVICES:
            own = np.zeros_like(asked)
            counts = self.trainer.compare(model[None], asked, own, own, "train").samples
            again = bipartition(
                without_labels(cut.similarity[pair], counts), self.config.bipartition, self.config.min_cluster_size
            )
            guesses += [] if again is None else [again]
        guesses += [self._refined(side, asked, model, fresh) for side in guesses]
        cuts = {_canonical(side).tobytes(): side for side in guesses if self._large_enough(side)}
        trials = [(self._trial(asked, side, model, fresh), side) for side in cuts.values()]
        if not trials:
            return None
        trial, side = min(trials, key=lambda pair: (not pair[0].passed(1.0), pair[0].p_group))
        return asked, side, replace(trial, cuts=len(trials))

    def _refined(self, side: Bools, asked: Ints, model: Singles, fresh: Fresh) -> Bools:
        """The cut as the devices' training images would have it, with the children's models made anew each time."""
        for _ in range(REFINEMENTS):
            if not self._large_enough(side):
                break
            first = np.zeros_like(asked)
            children = self._children(asked, side, model, fresh)
            better = refined(side, self.trainer.compare(children, asked, first, first + 1, "train"))
            if (better == side).all():
                break
            side = better
        return side

    def _large_enough(self, side: Bools) -> bool:
        return min(int(side.sum()), int((~side).sum())) >= self.config.min_cluster_size

    def _children(self, asked: Ints, side: Bools, model: Singles, fresh: Fresh) -> Singles:
        return np.stack([fresh.average(model, asked[child], self.samples) for child in (~side, side)])

    def _trial(self, asked: Ints, side: Bools, model: Singles, fresh: Fresh) -> Trial:
        parent = fresh.average(model, asked, self.samples)
        models = np.concatenate([self._children(asked, side, model, fresh), parent[None]])
        first, own = np.zeros_like(asked), side.astype(np.int64)
        preference = self.trainer.compare(models, asked, first, first + 1)
        return Trial.of(side, preference, self.trainer.compare(models, asked, own, first + 2))

    # -------------------------------------------------------------------------------- stopping

    def losses(self, state: ServerState, leaf: Node, present: Ints) -> Floats:
        """Each device's last known loss on held-out images, with those just heard under the model they trained."""
        answer = self.trainer.evaluate(state.models[leaf.name][None], present, np.zeros_like(present), "validation")
        losses = state.losses.copy()
        losses[present] = answer.loss
        return losses

    def stands_still(self, outlook: Outlook, round_: int) -> bool:
        """No progress for some rounds, and no cut that was worth it."""
        return outlook.trials > 0 and not outlook.passed and round_ - outlook.best_round >= self.config.patience

    # -------------------------------------------------------------------------------- reviewing

    def review_due(self, state: ServerState) -> bool:
        """Every few rounds, and before a cluster is tried: a device in the wrong place would look like a group."""
        every = self.config.review_every
        soon = (self.outlook(state, leaf).next_trial == state.round + 1 for leaf in state.tree.leaves())
        return every > 0 and (state.round % every == 0 or any(soon))

    def review(self, state: ServerState, heard: Ints) -> tuple[ServerState, list[Event]]:
        """Move devices that another cluster's model serves better; then merge two clusters that are one."""
        names = [leaf.name for leaf in state.tree.leaves()]
        if len(names) < 2 or len(heard) == 0:
            return state, []
        tree, moves = self.replaced(state.tree, state.models, heard, "moved")
        state, merges = self._merged(replace(state, tree=tree), heard)
        return state, moves + merges

    def replaced(self, tree: Tree, models: Mapping[str, Singles], devices: Ints, kind: str) -> tuple[Tree, list[Event]]:
        """Each device in the leaf that serves its images best, if that is beyond doubt.

        Held-out images are few but unbiased; training images speak for the leaf they were trained in, so if even they
        prefer another one, and the others do not object, that counts.
        """
        names = [leaf.name for leaf in tree.leaves()]
        stacked = stack(models, names, self.trainer.parameters)
        events = []
        own = index(tree.leaf_of(), devices, names)
        held_out, trained = (losses_of(self.trainer, stacked, devices, share) for share in SHARES)
        for row, device in enumerate(devices.tolist()):
            for share, losses in zip(SHARES, (held_out, trained), strict=True):
                to = int(losses[:, row].argmin())
                if to == own[row] or not held_out[to, row] <= held_out[own[row], row] < np.inf:
                    continue
                ask = stacked, devices[[row]], np.array([to]), own[[row]]
                gain, p_value = self.trainer.compare(*ask, share).test()
                source, target = tree.leaf_of()[device], tree.nodes[names[to]]
                if p_value >= MOVE_LEVEL or target.merged_into is not None:
                    continue
                last = len(tree.nodes[source].devices) == 1
                tree = tree.merge(source, target.name) if last else tree.move(device, target.name)
                events.append(Event(kind, target.name, device, {"from": source, "gain": gain, "p_value": p_value}))
                break
        return tree, events

    def _merged(self, state: ServerState, heard: Ints) -> tuple[ServerState, list[Event]]:
        """The two clusters whose models suit each other's devices best become one if nothing speaks against it."""
        names = [leaf.name for leaf in state.tree.leaves()]
        own = index(state.tree.leaf_of(), heard, names)
        if len(names) < 2 or len(np.unique(own)) < 2:
            return state, []
        models = stack(state.models, names, self.trainer.parameters)
        losses = losses_of(self.trainer, models, heard, "validation")
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
        weights = np.array([self.samples[each].sum() for each in members], dtype=np.float64)
        both = np.stack([state.models[name] for name in pair])
        together = ((weights / weights.sum()).astype(np.float32) @ both).astype(np.float32)
        asked = np.intersect1d(heard, np.concatenate(members))
        side = np.isin(asked, members[1])
        models, own = np.concatenate([both, together[None]]), side.astype(np.int64)
        _, p_groups = group_effect(side, self.trainer.compare(models, asked, own * 0, own * 0 + 1))
        losing = self.trainer.compare(models, asked, own, own * 0 + 2)  # what it costs to give up the own model
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


def losses_of(trainer: Trainer, models: Singles, devices: Ints, share: Share) -> Floats:
    """Of every model on a share of every device's images; infinite where a real device is gone."""
    each = np.repeat(np.arange(len(models)), len(devices))
    loss = trainer.evaluate(models, np.tile(devices, len(models)), each, share).loss
    return np.where(np.isnan(loss), np.inf, loss).reshape(len(models), len(devices))


def _canonical(side: Bools) -> Bools:
    """The same cut has one name, whichever child is called the second."""
    return ~side if side[0] else side
