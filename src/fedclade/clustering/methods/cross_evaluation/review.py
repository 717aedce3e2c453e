"""Who belongs where, asked anew: devices move to those whose preferences they share, clusters that are one merge."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, takewhile

import numpy as np

from fedclade.clustering.method import Conversation, Merge, Move, merged_model, moved
from fedclade.clustering.methods.cross_evaluation.belonging import Belonging
from fedclade.clustering.methods.cross_evaluation.memory import Known, known_of
from fedclade.clustering.methods.cross_evaluation.rehearsal import Rehearsal
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook, group_effect
from fedclade.config import Config, CrossEvaluationConfig
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.state import State, index, stack
from fedclade.core.tree import Tree
from fedclade.fleet.fleet import Arrival
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels


def review_due(state: State, settings: CrossEvaluationConfig) -> bool:
    """Every few rounds, and before a cluster is tried: a device in the wrong place would look like a group."""
    every = settings.review_every
    return every > 0 and (state.round % every == 0 or _tried_soon(state, settings))


def _tried_soon(state: State, settings: CrossEvaluationConfig) -> bool:
    """Whether a cut of some cluster is to be tried in the next round."""
    known = known_of(state)
    return any(known.outlook(leaf, settings).next_test == state.round + 1 for leaf in state.tree.leaves())


def reviewed(
    state: State, trained: Mapping[str, Singles], arrival: Arrival, config: Config, talk: Conversation
) -> tuple[Known, tuple[Move | Merge, ...]]:
    """Move devices that prefer as another cluster's members do; then merge two clusters that are one.

    Clusters change less and less, so it is asked about mergers as often as cuts are tried. ``trained``: the models that
    the devices were sent in this round.
    """
    known, settings, heard = known_of(state), config.cross_evaluation, arrival.heard
    if len(state.tree.leaves()) < 2 or len(heard) == 0:
        return known, ()
    doubted = settled(state, heard, settings)
    if known.one_by_one:
        moves = served_better(state, doubted, settings, talk)
    else:
        moves = replaced(state.tree, state.models, heard, doubted, settings, talk)
        known = known.after_moves(moves)
    tree = state.tree
    for move in moves:
        tree = moved(tree, move)
    state, merge = replace(state, tree=tree), None
    if _tried_soon(state, settings):
        pairs = nearest_pairs(state, heard, talk)
        if known.one_by_one:
            rehearsal = Rehearsal(config, arrival, talk)
            tried = (parted_in_vain(state, trained, heard, pair, settings, rehearsal) for pair in pairs)
        else:
            tried = (_if_congruent(state, heard, pair, settings, talk) for pair in pairs)
        merge = next((each for each in tried if each is not None), None)
    if merge is None:
        return known, tuple(moves)
    outlooks = {name: value for name, value in known.outlooks.items() if name not in (merge.node, merge.into)}
    outlooks[merge.into] = Outlook(next_test=state.round + max(1, state.round // 2))
    return replace(known, outlooks=outlooks), (*moves, merge)


def settled(state: State, devices: Ints, settings: CrossEvaluationConfig) -> Ints:
    """Those in clusters of which a cut was tried in vain; before that, a cluster may be of kinds yet to part."""
    known = known_of(state)
    tried = [leaf.devices for leaf in state.tree.leaves() if known.outlook(leaf, settings).tests]
    return devices[np.isin(devices, [*chain(*tried)])]


def replaced(
    tree: Tree,
    models: Mapping[str, Singles],
    devices: Ints,
    doubted: Ints,
    settings: CrossEvaluationConfig,
    talk: Conversation,
    *,
    newcomers: bool = False,
    kind: str = "moved",
) -> list[Move]:
    """Doubted devices, among those asked, move to the leaf whose members' preferences they share, class by class.

    But none whose held-out images say that it would lose by it, whatever others say: these may lie.
    """
    if len(doubted) == 0:
        return []
    names = [leaf.name for leaf in tree.leaves()]
    stacked = stack(models, names)
    own = index(tree.leaf_of(), names)[devices]
    survey = talk.ask(SurveyModels(stacked, devices, settings.review_images))
    belonging = Belonging.of(survey, own, settings, settings.review_images)
    rows = np.flatnonzero(belonging.doubtful & np.isin(devices, doubted))
    if len(rows) == 0:
        return []
    pairs = stacked, devices[rows], own[rows], belonging.nearest[rows]
    answers = [talk.ask(Compare(*pairs, share, sent=0)) for share in ("train", "validation")]
    level = settings.newcomer_level if newcomers else settings.move_level
    moves = []
    for place, row in enumerate(rows.tolist()):
        tests = [belonging.test(row, answer.among(np.array([place]))) for answer in answers]
        gain, p_value = min(tests, key=lambda test: test[1])
        device, to = int(devices[row]), names[int(belonging.nearest[row])]
        _, p_loses = answers[-1].among(np.array([place])).regardless_of_class().test()
        if p_value < level and p_loses >= settings.move_level and tree.nodes[to].is_leaf:
            evidence = {"from": tree.leaf_of()[device], "gain": gain, "p_value": p_value}
            moves.append(Move(device, to, evidence, kind, closing=True))
            tree = moved(tree, moves[-1])
    return moves


def served_better(state: State, devices: Ints, settings: CrossEvaluationConfig, talk: Conversation) -> list[Move]:
    """Where devices differ one by one: who is served better by another leaf's model, on held-out images, goes there.

    Its own leaf's model has learnt the images that a device trains on, so by these it would never leave. A device of
    few images was put into its leaf by as little, so it is not held there by a test.
    """
    if len(devices) == 0:
        return []
    tree, names = state.tree, [leaf.name for leaf in state.tree.leaves()]
    stacked, own = stack(state.models, names), index(tree.leaf_of(), names)[devices]
    survey = talk.ask(SurveyModels(stacked, devices, share="validation"))
    best = (survey.samples[:, None] * survey.misfit).sum(axis=2).argmin(axis=1)
    asked = np.flatnonzero((best != own) & survey.samples.any(axis=1))
    if len(asked) == 0:
        return []
    answer = talk.ask(Compare(stacked, devices[asked], best[asked], own[asked], sent=0))
    levels = np.where(state.samples[devices] < settings.sure_images, settings.newcomer_level, settings.move_level)
    moves = list[Move]()
    for place, row in enumerate(asked.tolist()):
        gain, p_value = answer.among(np.array([place])).regardless_of_class().test()
        device, to = int(devices[row]), names[int(best[row])]
        if p_value < levels[row] and tree.nodes[to].is_leaf:
            evidence = {"from": tree.leaf_of()[device], "gain": gain, "p_value": p_value}
            moves.append(Move(device, to, evidence, "moved", closing=True))
            tree = moved(tree, moves[-1])
    return moves


def nearest_pairs(state: State, heard: Ints, talk: Conversation) -> list[Merge]:
    """Of each cluster and the one whose model suits it best, both ways, the best pair first.

    Not only the best pair of all: hostile members say of every other model that it suits them better.
    """
    names = [leaf.name for leaf in state.tree.leaves()]
    own = index(state.tree.leaf_of(), names)[heard]
    if len(names) < 2 or len(np.unique(own)) < 2:
        return []
    losses = losses_of(stack(state.models, names), heard, talk)
    known = np.isfinite(losses).all(axis=0)
    heard, own, losses = heard[known], own[known], losses[:, known]
    mine = losses[own, np.arange(len(heard))]
    costs = np.full((len(names), len(names)), np.inf)
    for a in np.unique(own):
        strange = (losses - mine)[:, own == a].mean(axis=1)
        costs[a] = np.where(np.arange(len(names)) == a, np.inf, strange)
    both = costs + costs.T
    found = {tuple(sorted((a, int(b)))): float(both[a, b]) for a, b in enumerate(both.argmin(axis=1))}
    pairs = sorted((cost, pair) for pair, cost in found.items() if np.isfinite(cost))
    return [Merge(names[node], names[into]) for _, (into, node) in pairs]


def _if_congruent(
    state: State, heard: Ints, merge: Merge, settings: CrossEvaluationConfig, talk: Conversation
) -> Merge | None:
    """The merger with its evidence, unless something tells the two clusters' devices apart or one of them loses."""
    pair = merge.into, merge.node
    members = [state.tree.members(name) for name in pair]
    if min(np.isin(each, heard).mean() for each in members) < settings.merge_voices:
        return None
    asked = np.intersect1d(heard, np.concatenate(members))
    side = np.isin(asked, members[1])
    models, own = stack(state.models, pair), side.astype(np.int64)
    preference = talk.ask(Compare(models, asked, own * 0, own * 0 + 1, sent=0))  # both were sent for their losses
    _, p_groups = group_effect(side, preference, settings.shared_classes)
    if p_groups < settings.merge_level:
        return None
    models = np.concatenate([models, merged_model(state.tree, state.models, merge, state.samples)[None]])
    losing = talk.ask(Compare(models, asked, own, own * 0 + 2, sent=1))  # what it costs to give up the own model
    costs = [losing.among(child).test() for child in (~side, side)]
    if min(p for _, p in costs) < settings.merge_level or sum(cost for cost, _ in costs) >= 0:
        return None
    return replace(merge, evidence={"gain": [-cost for cost, _ in costs], "p_groups": p_groups})


def parted_in_vain(
    state: State,
    trained: Mapping[str, Singles],
    heard: Ints,
    merge: Merge,
    settings: CrossEvaluationConfig,
    rehearsal: Rehearsal,
) -> Merge | None:
    """The merger with its evidence, if the two were parted before it was known that devices differ one by one.

    The test of then is passed by any cut. So what members learnt in this round is set on top of a model that is of both
    clusters alike, and every device leaves its own update out, as cuts are tried now: unless the other side's training
    costs much, the two are one. That shows little once their models have learnt the difference, so it is only done in
    the first rounds, in which no cut would have been tried.
    """
    pair = merge.into, merge.node
    nodes, members = [state.tree.nodes[name] for name in pair], [state.tree.members(name) for name in pair]
    split, born = state.tree.nodes[_whence(*pair)].split, max(node.born_round for node in nodes)
    paid = split is None or "cost" in split.evidence
    if paid or not born < state.round <= born + settings.pays_after:
        return None
    if min(np.isin(each, heard).mean() for each in members) < settings.merge_voices:
        return None
    devices = np.intersect1d(heard, np.concatenate(members))
    start = merged_model(state.tree, trained, merge, state.samples)
    test = rehearsal.pay_test(state, start, devices, np.isin(devices, members[1]))
    if test is None or test.dear(settings, known_of(state).best_help):
        return None
    return replace(merge, evidence=test.evidence())


def _whence(name: str, other: str) -> str:
    """The cluster that two come from."""
    steps = takewhile(lambda both: both[0] == both[1], zip(name.split("."), other.split("."), strict=False))
    return ".".join(step for step, _ in steps)


def losses_of(models: Singles, devices: Ints, talk: Conversation) -> Floats:
    """Of every model on every device's held-out images; infinite where a real device is gone."""
    each = np.repeat(np.arange(len(models)), len(devices))
    loss = talk.ask(Evaluate(models, np.tile(devices, len(models)), each, "validation", sent=len(models))).loss
    return np.where(np.isnan(loss), np.inf, loss).reshape(len(models), len(devices))
