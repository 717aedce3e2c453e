"""Which devices share a model: what a clustering method is, and what follows from its decisions.

A method looks at a round and decides; it changes nothing. ``regrouped``, ``averaged`` and ``rearranged`` carry its
decisions out, the same way for every method. So a method is one file: see ``clustering/methods``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol, TypeVar

import numpy as np

from fedclade.aggregation import aggregate, optimised
from fedclade.clustering.trust import unheard
from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.records import Event
from fedclade.core.state import CONVENTIONAL, State
from fedclade.core.tree import ROOT, Tree
from fedclade.fleet.fleet import Answers, Arrival, Cost, Fleet, Respondents
from fedclade.fleet.questions import Question
from fedclade.scheduling.planner import greedy_phase

Answer = TypeVar("Answer")
NOBODY: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Norms:
    """How far a cluster's updates pull: of their mean, and of the largest one; of so many members."""

    mean: float
    max: float
    heard: int


@dataclass(frozen=True)
class NewSplit:
    """A leaf is to be cut into parts, which share out all its members.

    ``evidence`` is plain data that ends up in tree.json and in the split's event. ``likeness`` is what showed the
    groups, from -1 to 1: the devices that decided, and a matrix of them. ``seconds`` passed since the updates arrived.
    """

    node: str
    parts: tuple[Ints, ...]
    evidence: Mapping[str, Any] = field(default_factory=dict)
    likeness: tuple[Ints, Singles] | None = field(default=None, compare=False)
    seconds: float = 0.0


@dataclass(frozen=True)
class Move:
    """A device is to be in another leaf; ``kind`` is "placed" for one that was nowhere at home yet.

    ``closing``: if it is the last of its leaf, that leaf ends with it and counts as merged into the other.
    """

    device: int
    to: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "moved"
    closing: bool = False


@dataclass(frozen=True)
class Merge:
    """A leaf is to give its devices to another; their models are averaged by their data."""

    node: str
    into: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decisions:
    """What a method decided, as plain data, in the order in which it is carried out.

    First clusters stop, go on again or split; then every cluster's model is averaged; then devices move and clusters
    merge.
    """

    method: Any = None  # the method's own next state
    stops: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # leaf -> evidence
    reopens: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    splits: tuple[NewSplit, ...] = ()
    left_out: Ints = field(default_factory=lambda: NOBODY)  # devices whose updates are not averaged this round
    moves: tuple[Move | Merge, ...] = ()
    models: Mapping[str, Singles] = field(default_factory=dict)  # models that the method sets itself, e.g. at first
    settled: Mapping[str, Singles] = field(default_factory=dict)  # leaf -> what it has in place of the averaged model
    norms: Mapping[str, Norms] = field(default_factory=dict)  # of the leaves, where the method looked at them
    notes: tuple[Event, ...] = ()  # what else is worth telling
    cost: Cost | None = None  # of the questions asked; None: none were


class Method(Protocol):
    """A way to find out which devices share a model.

    ``state`` is the server's, with the method's own part in ``state.method``. A method is made anew for every run by
    its factory, ``factory(config, groups)``, where ``groups`` are the planted ones, as far as they are known.
    """

    name: str
    sends_all_models: bool  # before training it asks every device about all models: they need no second multicast
    alone: bool  # every device trains by itself: nothing is sent in either direction
    reveals: str  # in a word, what the server sees of a single device; "sums": of nobody alone

    def init(self, devices: int) -> Any:
        """The method's own state at the beginning."""
        ...

    def grown(self, own: Any, more: int) -> Any:
        """Its own state with room for so many devices that joined."""
        ...

    def calls(self, state: State) -> Ints:
        """Devices that must take part in the next round, whatever the policy says."""
        ...

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """Decide for devices that are about to train: ``state`` is that of the round before."""
        ...

    def screen(self, state: State, arrival: Arrival) -> Mapping[int, str]:
        """Devices whose updates are not to be used at all, each with the reason; ``state`` as above."""
        ...

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """Decide on a round: ``state`` knows who was heard in it, its clusters and models are still as before."""
        ...

    def save(self, own: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Its own state as plain data for a JSON file, and as arrays."""
        ...

    def load(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        """The inverse of ``save``."""
        ...


class BaseMethod:
    """A method that decides nothing and remembers nothing: one's own overrides what it needs."""

    name, sends_all_models, alone, reveals = "none", False, False, "sums"

    def __init__(self, config: Config, groups: Ints | None = None) -> None:
        self.config, self.groups = config, groups

    def init(self, devices: int) -> Any:
        """Nothing is remembered."""
        return None

    def grown(self, own: Any, more: int) -> Any:
        """Nothing is remembered."""
        return own

    def calls(self, state: State) -> Ints:
        """The policy alone decides."""
        return NOBODY

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """Nothing to decide."""
        return Decisions(state.method)

    def screen(self, state: State, arrival: Arrival) -> Mapping[int, str]:
        """All updates are used."""
        return {}

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """Nothing to decide."""
        return Decisions(state.method)

    def save(self, own: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Nothing to save."""
        return {}, {}

    def load(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
        """Nothing was saved."""
        return None


class Conversation:
    """One exchange with the fleet: what a method asks in one decision, and what all of it cost.

    What the ``doubted`` devices answer does not count.
    """

    def __init__(self, fleet: Respondents, devices: int, doubted: Ints = NOBODY) -> None:
        self._fleet, self.doubted = fleet, doubted
        self.cost, self.incidents = Cost.nothing(devices), list[str]()

    def ask(self, question: Question[Answer]) -> Answer:
        """Put a question, and add its cost."""
        answers: Answers[Answer] = self._fleet.ask(question)
        self.cost = self.cost + answers.cost
        self.incidents += answers.incidents
        return answers.value if len(self.doubted) == 0 else self._believed(question, answers.value)

    def _believed(self, question: Question[Answer], answer: Answer) -> Answer:
        """An answer without what doubted devices say, unless nobody else was asked."""
        silent = np.isin(question.devices, self.doubted)
        heard: Answer = answer if silent.all() else unheard(answer, silent)
        return heard

    def notes(self) -> tuple[Event, ...]:
        """What went wrong on the way."""
        return tuple(Event("incident", "", detail={"what": what}) for what in self.incidents)


# -------------------------------------------------------------------------------- carrying decisions out


def regrouped(state: State, decided: Decisions) -> State:
    """With clusters stopped, open again and split; a child's model is its parent's for now, or the method's own.

    A child also inherits what the optimiser remembers of its parent's model, which it goes on from.
    """
    tree, models, moments = state.tree, {**state.models, **decided.models}, dict(state.moments)
    for name in decided.stops:
        tree = tree.with_stop(name, state.round)
    for name in decided.reopens:
        tree = tree.with_stop(name, None)
    for split in decided.splits:
        parts = [part.tolist() for part in split.parts]
        tree = tree.split(split.node, parts, state.round, state.seconds + split.seconds, split.evidence)
        children = tree.nodes[split.node].children
        if split.node in moments:
            moments |= {child: moments[split.node] for child in children if child not in models}
        models |= {child: models.get(child, models[split.node]) for child in children}
    return replace(state, tree=tree, models=models, moments=moments, method=decided.method)


def with_comparison(before: State, after: State) -> State:
    """With the one-model comparison begun, where the first split has just been made: from how the root stands."""
    if before.tree.nodes[ROOT].split is not None or after.tree.nodes[ROOT].split is None:
        return after
    moments = {**after.moments, CONVENTIONAL: after.moments[ROOT]} if ROOT in after.moments else after.moments
    return replace(after, conventional=after.models[ROOT], moments=moments)


def averaged(before: State, after: State, arrival: Arrival, left_out: Ints, config: Config) -> State:
    """With every cluster's model moved by the fresh updates of its members, weighted by D_k (line 16).

    That is the mean; ``aggregation.rule`` may name another rule, and ``aggregation.optimiser`` make a step of it.
    ``before`` has the clusters as they trained, ``after`` as they are now. A cluster that was just split is averaged
    once more as a whole, beside its children. With ``after_stop = "cover"``, an update to a cluster that had stopped
    counts by its share of all the cluster's data, so that the few devices that go on do not drag its model along.
    """
    heard = np.setdiff1d(arrival.heard, left_out)
    leaves = before.tree.leaves()
    holding = config.scheduling.after_stop == "cover" and greedy_phase(config.scheduling, len(leaves))
    held = {leaf.name for leaf in leaves if holding and leaf.stopped_round is not None}
    parents = [leaf.name for leaf in leaves]
    children = [child for name in parents for child in after.tree.nodes[name].children]
    models, moments = {**after.models}, {**after.moments}
    for names in (parents, children):
        moved, remembered = _moved(after, names, arrival, heard, held, config)
        models, moments = models | moved, moments | remembered
    averages = with_comparison(before, replace(after, models=models, moments=moments))
    used = {CONVENTIONAL, *(leaf.name for leaf in after.tree.leaves())}
    return replace(averages, moments={name: known for name, known in averages.moments.items() if name in used})


def _moved(
    state: State, names: list[str], arrival: Arrival, heard: Ints, held: set[str], config: Config
) -> tuple[dict[str, Singles], dict[str, Singles]]:
    """The models of some clusters that share no device, each moved by its members' updates; and the new moments.

    An optimiser is told the mean update, and the model moves by as much of its step as the devices count for.
    """
    group, weight = np.full(state.devices, -1), np.zeros(state.devices)
    for row, name in enumerate(names):
        members = state.tree.members(name)
        mine = np.intersect1d(heard, members)
        group[mine] = row
        weight[mine] = state.samples[mine] / max(1, state.samples[members if name in held else mine].sum())
    devices = np.flatnonzero(group >= 0)
    if len(devices) == 0:
        return {}, {}
    moves = aggregate(arrival.updates, devices, group[devices], weight[devices], config.aggregation)
    if config.aggregation.optimiser == "none":
        return {names[row]: np.asarray(state.models[names[row]] + move, np.float32) for row, move in moves.items()}, {}
    models, moments = dict[str, Singles](), dict[str, Singles]()
    for row, move in moves.items():
        name, share = names[row], np.float32(weight[group == row].sum())
        if share == 0:  # devices without data
            continue
        step, remembered = optimised(move / share, state.moments.get(name), config.aggregation)
        models[name] = np.asarray(state.models[name] + share * step, dtype=np.float32)
        moments |= {} if remembered is None else {name: remembered}
    return models, moments


def rearranged(state: State, decided: Decisions) -> State:
    """With devices moved and clusters merged."""
    models, moments = dict(state.models), dict(state.moments)
    plain = list(takewhile(lambda step: isinstance(step, Move) and not step.closing, decided.moves))
    tree = state.tree.moved({step.device: step.to for step in plain if isinstance(step, Move)})  # many, all at once
    for step in decided.moves[len(plain) :]:
        if isinstance(step, Move):
            tree = moved(tree, step)
        else:
            models[step.into] = merged_model(tree, models, step, state.samples)
            if {step.into, step.node} <= moments.keys():
                moments[step.into] = merged_model(tree, moments, step, state.samples)
            tree = tree.merge(step.node, step.into)
    return replace(state, tree=tree, models=models, moments=moments)


def moved(tree: Tree, move: Move) -> Tree:
    """With one device in another leaf."""
    source = tree.leaf_of()[move.device]
    if move.closing and source != move.to and tree.nodes[source].devices == (move.device,):
        return tree.merge(source, move.to)
    return tree.move(move.device, move.to)


def merged_model(tree: Tree, models: Mapping[str, Singles], merge: Merge, samples: Ints) -> Singles:
    """The mean of two clusters' models, weighted by their data."""
    pair = merge.into, merge.node
    weights = np.array([samples[tree.members(name)].sum() for name in pair], dtype=np.float64)
    both = np.stack([models[name] for name in pair])
    return np.asarray((weights / weights.sum()).astype(np.float32) @ both, dtype=np.float32)


def events_of(before: State, decided: Decisions, heard: Ints) -> list[Event]:
    """What to tell of decisions: cluster by cluster, then who moved where, then what merged."""
    told = list[Event]()
    splits = {split.node: split for split in decided.splits}
    for leaf in before.tree.leaves():
        told += [note for note in decided.notes if note.node == leaf.name]
        for kind, which in (("stop", decided.stops), ("reopen", decided.reopens)):
            told += [Event(kind, leaf.name, detail=which[leaf.name])] if leaf.name in which else []
        left_out = np.intersect1d(np.intersect1d(decided.left_out, heard), np.array(leaf.devices, dtype=np.int64))
        told += [Event("trimmed", leaf.name, int(device)) for device in left_out]
        if split := splits.get(leaf.name):
            detail = {"parts": [part.tolist() for part in split.parts], **split.evidence}
            told.append(Event("split", leaf.name, detail=detail, likeness=split.likeness))
    for step in decided.moves:
        if isinstance(step, Move):
            told.append(Event(step.kind, step.to, step.device, step.evidence))
        else:
            told.append(Event("merge", step.into, detail={"merged": step.node, **step.evidence}))
    leaves = {leaf.name for leaf in before.tree.leaves()}
    return told + [note for note in decided.notes if note.node not in leaves]
