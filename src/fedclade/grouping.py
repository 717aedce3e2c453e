"""After training: which clusters stop, split or merge, who belongs where, and what each cluster's model becomes.

The decisions are ``fedclade.clustering``'s, pure and one by one. Here they are asked in the order of Algorithm 1, with
what they need from the devices: their updates, and on trial their opinion of a model.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from fedclade.asking import Asking
from fedclade.automatic import NO_DOUBT, WORSE, Automatic, Cut, losses_of, without_harm
from fedclade.clustering import (
    ROOT,
    Node,
    Norms,
    Tree,
    Verdict,
    absurd,
    bipartition,
    cosine_similarity,
    cut_facts,
    discounted,
    enough_heard,
    gamma_test,
    judge,
    mean_similarity_to,
    mean_update_norm,
    sketch,
    update_norms,
)
from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.random import generator
from fedclade.core.state import ClusterRecord, Event, Fresh, ServerState, rows_of, stack
from fedclade.edge.latency import local_steps
from fedclade.scheduling import recheck_due

ENOUGH_TO_COMPARE = 5  # updates of one cluster, to tell what is usual
MIN_TELLING = 2  # of devices heard before, to tell what is usual without the others


class Grouping:
    """A run's unchanging parts, as far as clusters are concerned."""

    def __init__(self, config: Config, asking: Asking, samples: Ints) -> None:
        self.config, self.asking, self.samples = config, asking, samples
        self.steps = local_steps(config.training, samples)
        width, self._signs = config.clustering.sketch, None
        if width is not None:
            draws = generator(config.run.seed, "sketch").integers(0, 2, asking.parameters, dtype=np.int8)
            self._signs = (2 * draws - 1).astype(np.float32)
        self.remembered = asking.parameters if width is None else width  # numbers of each device's last update
        by_trial = config.clustering.enabled and config.clustering.thresholds == "auto"
        self.automatic = Automatic(config, asking, samples) if by_trial else None

    def place_unheard(self, state: ServerState, computing: Ints) -> tuple[Tree, list[Event]]:
        """A device never heard before takes the leaf whose model has the smallest loss on its data.

        With automatic thresholds it joins those who prefer as it does, and so does a device not heard since its leaf
        came to be, unless that is still to be tried.
        """
        tree, events = state.tree, list[Event]()
        leaves = [leaf.name for leaf in tree.leaves()]
        if len(leaves) == 1 or len(computing) == 0:
            return tree, []
        if self.automatic:
            born = np.array([tree.nodes[name].born_round for name in tree.leaf_of()])
            waiting = computing[(state.last_heard < born)[computing]]
            known = waiting[state.last_heard[waiting] > 0]
            tree, events = self.automatic.replaced(
                tree, state.models, computing, self.automatic.settled(state, known), "placed"
            )
            new = np.setdiff1d(waiting, known)
            tree, more = self.automatic.replaced(tree, state.models, computing, new, "placed", NO_DOUBT)
            return tree, events + more
        new = computing[state.last_heard[computing] == 0]
        if len(new) == 0:
            return tree, []
        models = stack(state.models, leaves, self.asking.parameters)
        loss = losses_of(self.asking, models, new, "train")
        for device, choice, least in zip(new.tolist(), loss.argmin(axis=0), loss.min(axis=0), strict=True):
            old, to = tree.leaf_of()[device], leaves[choice]
            if (
                old != to
                and np.isfinite(least)
                and len(tree.nodes[old].devices) > 1
                and tree.nodes[to].merged_into is None
            ):
                tree = tree.move(device, to)
                events.append(Event("placed", to, device, {"from": old, "by": "smallest loss"}))
        return tree, events

    def unsound(self, state: ServerState, computing: Ints, norms: Floats, leaf_of: list[str]) -> Mapping[int, str]:
        """Devices whose updates cannot be used, each with the reason."""
        reasons = {int(device): "not finite" for device in computing[~np.isfinite(norms)]}
        if not self.automatic:
            return reasons  # the paper's rule splits by what pulls hard
        leaves = np.array(leaf_of)
        for name in np.unique(leaves[computing]):
            mine = (leaves[computing] == name) & np.isfinite(norms)
            present = computing[mine]
            silent = np.setdiff1d(np.flatnonzero((leaves == name) & (state.last_heard > 0)), computing)
            if len(present) >= ENOUGH_TO_COMPARE:
                silent = silent[:0]  # else those heard before tell what is usual, too
            known = np.concatenate([norms[mine], update_norms(state.updates[silent])])
            if len(known) < ENOUGH_TO_COMPARE:
                continue
            whose = np.concatenate([present, silent])
            accepted = state.last_heard[whose] > 0  # who never was may be so for good reason
            telling = accepted if accepted.sum() >= MIN_TELLING else np.ones_like(accepted)
            for row in np.flatnonzero(mine)[absurd(known, self.steps[whose], telling)[: len(present)]]:
                usual = np.median(known[telling])
                reasons[int(computing[row])] = f"norm {norms[row]:.3g}, usual is {usual:.3g}"
        return reasons

    def after_round(
        self, state: ServerState, heard: Ints, updates: Singles
    ) -> tuple[ServerState, list[ClusterRecord], list[Event]]:
        """For each cluster: stop, split or go on; then each (new) cluster's model is averaged."""
        fresh = Fresh(heard, updates)
        state.updates[heard] = updates if self._signs is None else sketch(updates, self._signs, self.remembered)
        clusters, events = [], []
        for leaf in state.tree.leaves():
            members = np.array(leaf.devices)
            present = np.intersect1d(heard, members)
            norms = self._norms(state, self._recent(state, members))
            decide = self._decide_by_trial if self.automatic else self._decide_by_thresholds
            state, verdict, cut, more = decide(state, leaf, norms, fresh)
            events += more
            before, averaged = state.models[leaf.name], without_harm(state, present)
            events += [Event("trimmed", leaf.name, int(device)) for device in np.setdiff1d(present, averaged)]
            covered = leaf.stopped_round is not None and self.config.scheduling.after_stop == "cover"
            among = members if covered else None  # a few devices a round must not drag a stopped cluster's model
            models = {**state.models, leaf.name: fresh.average(before, averaged, self.samples, among)}
            if cut is not None:
                tree = self._carried_out(state, leaf.name, cut)
                for child in tree.nodes[leaf.name].children:
                    mine = np.intersect1d(heard, tree.members(child))
                    models[child] = fresh.average(before, without_harm(state, mine), self.samples)
                conventional = models[ROOT].copy() if leaf.name == ROOT else state.conventional
                state = replace(state, tree=tree, conventional=conventional)
                events.append(_split_event(tree.nodes[leaf.name], cut))
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
        if self.automatic and self.automatic.review_due(state):
            state, more = self.automatic.review(state, heard)
            events += more
        return state, clusters, events

    # -------------------------------------------------------------------------------- automatic thresholds

    def _decide_by_trial(
        self, state: ServerState, leaf: Node, norms: Norms, fresh: Fresh
    ) -> tuple[ServerState, Verdict | Literal["stopped"], Cut | None, list[Event]]:
        """Note the loss; try a cut if it is time for it; stop if nothing moves any more."""
        assert self.automatic
        automatic, round_, stopped = self.automatic, state.round, leaf.stopped_round
        present = np.intersect1d(fresh.devices, np.array(leaf.devices))
        if len(present) == 0 or (stopped is not None and not recheck_due(self.config.scheduling, stopped, round_)):
            return state, "stopped" if stopped is not None else "go-on", None, []
        state = replace(state, losses=automatic.losses(state, leaf, present))
        loss = float(np.nanmean(state.losses[np.array(leaf.devices)]))
        outlook, cut, events = automatic.outlook(state, leaf).seen(round_, loss), None, list[Event]()
        outlooks = {**state.outlooks, leaf.name: outlook}
        state = replace(state, outlooks=outlooks)
        if round_ >= outlook.next_trial and enough_heard(norms, len(leaf.devices)):
            recent, similarity = self._similarity(state, leaf.name)
            state = automatic.surveyed(state, leaf, recent, fresh)
            cut, outlook, events = automatic.tried(state, leaf, recent, similarity, fresh)
            state = replace(state, outlooks={**outlooks, leaf.name: outlook})
        if cut is not None:
            return state, "split", cut, events
        grown = stopped is not None and outlook.best_loss is not None and loss > WORSE * outlook.best_loss
        if grown or (stopped is None and automatic.stands_still(outlook, round_)):
            kind, mark = ("reopen", None) if grown else ("stop", round_)
            state = replace(state, tree=state.tree.with_stop(leaf.name, mark))
            return state, "go-on" if grown else "stop", None, [*events, Event(kind, leaf.name, detail={"loss": loss})]
        return state, "go-on" if stopped is None else "stopped", None, events

    # -------------------------------------------------------------------------------- fixed thresholds

    def _decide_by_thresholds(
        self, state: ServerState, leaf: Node, norms: Norms, fresh: Fresh
    ) -> tuple[ServerState, Verdict | Literal["stopped"], Cut | None, list[Event]]:
        """Algorithm 1, lines 19 to 24, and what follows from them for the tree."""
        members, stopped = len(leaf.devices), leaf.stopped_round
        if stopped is not None and not (
            recheck_due(self.config.scheduling, stopped, state.round) and enough_heard(norms, members)
        ):
            return state, "stopped", None, []
        verdict: Verdict = "go-on"
        if self.config.clustering.enabled and norms.heard:
            verdict = judge(norms, members, state.round, self.config.clustering)
        events = []
        if (stopped is None) != (verdict != "stop"):
            tree = state.tree.with_stop(leaf.name, state.round if verdict == "stop" else None)
            detail = {"mean_norm": norms.mean, "max_norm": norms.max}
            events.append(Event("stop" if verdict == "stop" else "reopen", leaf.name, detail=detail))
            state = replace(state, tree=tree)
        cut = self._cut(state, leaf.name) if verdict == "split" else None
        if cut is not None and not gamma_test(cut.facts):
            cut = None
        return state, "go-on" if verdict == "split" and cut is None else verdict, cut, events

    def _recent(self, state: ServerState, members: Ints) -> Ints:
        """Those whose last known update is young enough to tell of them."""
        heard = state.last_heard[members]
        return members[(heard > 0) & (state.round - heard <= self.config.clustering.age_limit)]

    def _norms(self, state: ServerState, recent: Ints) -> Norms:
        if len(recent) == 0:
            return Norms(0.0, 0.0, 0)
        clustering, training = self.config.clustering, self.config.training
        updates = rows_of(state.updates, recent)
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

    # -------------------------------------------------------------------------------- cutting

    def _similarity(self, state: ServerState, name: str) -> tuple[Ints, Singles]:
        """The members whose updates are young enough, and their similarities."""
        rows = self._recent(state, state.tree.members(name))
        return rows, discounted(cosine_similarity(rows_of(state.updates, rows)), self._trust(state, rows))

    def _cut(self, state: ServerState, name: str) -> Cut | None:
        """Cut by similarity the members whose updates are young enough; None if no cut is possible."""
        config = self.config.clustering
        rows, similarity = self._similarity(state, name)
        side = bipartition(similarity, config.bipartition, config.min_cluster_size)
        if side is None:
            return None
        return Cut(rows, side, cut_facts(similarity, side, rows_of(state.updates, rows), config), similarity)

    def _carried_out(self, state: ServerState, name: str, cut: Cut) -> Tree:
        """Members whom the cut does not name go where their last known update is closer to."""
        members = state.tree.members(name)
        first, second = cut.devices[~cut.side], cut.devices[cut.side]
        known = state.last_heard[members] > 0
        old = np.setdiff1d(members[known], cut.devices)
        to_second = mean_similarity_to(state.updates, old, second) > mean_similarity_to(state.updates, old, first)
        joining = [second, old[to_second]]
        if len(second) > len(first):  # whoever was never heard waits in the larger child until first heard
            joining.append(members[~known])
        seconds = state.seconds + self.asking.seconds
        return state.tree.split(name, np.concatenate(joining).tolist(), state.round, seconds, cut.facts, cut.trial)


def _split_event(node: Node, cut: Cut) -> Event:
    assert node.split is not None
    split = node.split
    detail = {"first": list(split.first), "second": list(split.second), "by": cut.by, **vars(split.facts)}
    if cut.trial is not None:
        detail |= vars(cut.trial)
    return Event("split", node.name, detail=detail, likeness=(cut.devices, cut.likeness))
