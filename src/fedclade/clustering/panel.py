"""Many devices: a clustering method is put to a panel of them, and everybody else is placed by the outcome.

What a method needs to know grows with the square of the number of devices, so of a large cluster only a panel is heard.
It is drawn at random, half of it among those whom the cluster's model fits worst: that is where a small group is, once
the model has learnt what most devices need. Of the panel the method sees a small federation of its own, with all
updates whole. If it cuts the panel, every other member of the cluster is asked about the children's models, and goes
where its images fit best.

After a split everybody is asked again where it belongs, until hardly anybody moves; only then are panels of all
clusters asked whether two of them are one, and the next cuts tried, for devices in the wrong place would look like a
group. A panel is drawn anew when the cluster is twice as old, and later every few rounds, so a group that was missed
has another chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedclade.clustering.method import BaseMethod, Conversation, Decisions, Merge, Method, Move, NewSplit, averaged
from fedclade.clustering.panel_size import panel_size
from fedclade.clustering.placing import best_fitting, torn
from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.random import generator
from fedclade.core.state import State, index, stack
from fedclade.core.tree import ROOT, Node, Tree
from fedclade.core.updates import HeldUpdates
from fedclade.fleet.fleet import Answers, Arrival, Cost, Fleet, Respondents
from fedclade.fleet.questions import Evaluate, Question, SurveyModels

Answer = TypeVar("Answer")
LEAST_HEARD = 0.5  # share of a panel that must be heard in a round; else the round says nothing of its cluster


@dataclass(frozen=True)
class Panel:
    """Some devices of a cluster, since when they were drawn, and what the method remembers of them."""

    devices: Ints
    drawn_round: int
    own: Any


@dataclass(frozen=True)
class Panels:
    """What is remembered: the panel of each leaf, by name, and whether devices are still finding their places."""

    of_leaf: Mapping[str, Panel]
    settled: bool = True


class Panelled(BaseMethod):
    """A method for many devices, made of one for few."""

    def __init__(self, method: Method, config: Config) -> None:
        super().__init__(config)
        self._method, self.name = method, method.name
        self._size, self._rounds = panel_size(config.clustering), config.clustering.panel_rounds

    def init(self, devices: int) -> Panels:
        """No panel yet."""
        return Panels({})

    def screen(self, state: State, arrival: Arrival) -> Mapping[int, str]:
        """As the method itself: norms of all devices are known."""
        return self._method.screen(replace(state, method=self._method.init(state.devices)), arrival)

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """A device never heard before takes the leaf whose model fits its images best."""
        new = devices[state.last_heard[devices] == 0]
        if len(state.tree.leaves()) == 1 or len(new) == 0:
            return Decisions(state.method)
        talk = Conversation(fleet, state.devices)
        moves = self._moved(state, state.models, new, talk, kind="placed")
        return Decisions(state.method, moves=moves, notes=talk.notes(), cost=talk.cost)

    def after_training(self, state: State, arrival: Arrival, fleet: Respondents) -> Decisions:
        """Put the method to a panel of every cluster; while devices find their places, ask them about these instead."""
        talk, own = Conversation(fleet, state.devices), panels_of(state)
        every, several = self.config.clustering.panel_review, len(state.tree.leaves()) > 1
        if several and (not own.settled or (every and state.round % every == 0)):
            return self._settling(state, arrival, talk)
        panels, found = dict[str, Panel](), Decisions()
        for leaf in state.tree.leaves():
            panel = self._panel(state, leaf, arrival, talk)
            if panel is None:
                continue
            small = _Small(panel, state, leaf, arrival, talk)
            decided = self._method.after_training(small.state, small.arrival, small)
            panels[leaf.name] = replace(panel, own=decided.method)
            found = _joined(found, self._grown(decided, leaf, panel, small, talk))
        after = Panels(panels, settled=not found.splits)
        return replace(found, method=after, notes=(*found.notes, *talk.notes()), cost=talk.cost)

    def _settling(self, state: State, arrival: Arrival, talk: Conversation) -> Decisions:
        """Ask everybody where it belongs; if hardly anybody moves, ask panels whether two clusters are one."""
        heard, settings = arrival.heard, self.config.clustering
        models = averaged(state, state, arrival, heard[:0], self.config).models
        moves: tuple[Move | Merge, ...] = self._moved(state, models, heard, talk)
        settled = len(moves) <= settings.panel_restless * len(heard)
        if settled and state.round < self.config.refit_from:  # later devices train on what they would look at
            merge = torn(
                state.tree, models, {leaf.name: self._some(state, leaf, heard) for leaf in state.tree.leaves()}, talk
            )
            moves += () if merge is None else (merge,)
        after = replace(panels_of(state), settled=settled)
        return Decisions(after, moves=moves, notes=talk.notes(), cost=talk.cost)

    def save(self, own: Panels) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Every panel: its devices, and what the method saves of its own."""
        panels, arrays = dict[str, Any](), dict[str, np.ndarray]()
        for name, panel in own.of_leaf.items():
            inner, tables = self._method.save(panel.own)
            panels[name] = {"drawn_round": panel.drawn_round, "own": inner}
            arrays |= {f"{name}/devices": panel.devices, **{f"{name}/own/{key}": one for key, one in tables.items()}}
        return {"panels": panels, "settled": own.settled}, arrays

    def load(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Panels:
        """The inverse of ``save``."""
        panels = dict[str, Panel]()
        for name, told in facts["panels"].items():
            start = f"{name}/own/"
            tables = {key.removeprefix(start): one for key, one in arrays.items() if key.startswith(start)}
            own = self._method.load(told["own"], tables)
            panels[name] = Panel(arrays[f"{name}/devices"], told["drawn_round"], own)
        return Panels(panels, facts["settled"])

    def _panel(self, state: State, leaf: Node, arrival: Arrival, talk: Conversation) -> Panel | None:
        """The leaf's panel, drawn anew if it is old, or if a member left the leaf; None: too few of it were heard."""
        members = np.array(leaf.devices, dtype=np.int64)
        there = members[np.isin(members, arrival.heard)]
        panel = panels_of(state).of_leaf.get(leaf.name)
        if panel is not None and self._serves(panel, state, leaf, members):
            return panel if np.isin(panel.devices, arrival.heard).mean() >= LEAST_HEARD else None
        if len(there) < max(2, LEAST_HEARD * min(self._size, len(members))):
            return None
        devices = self._drawn(state, leaf, there, talk)
        return Panel(devices, state.round, self._method.init(len(devices)))

    def _serves(self, panel: Panel, state: State, leaf: Node, members: Ints) -> bool:
        """Whether a panel is still the cluster's: not too old, unless it is all of it, and of nobody who left."""
        lasts = min(self._rounds, panel.drawn_round - leaf.born_round)
        fresh = state.round - panel.drawn_round < lasts or len(panel.devices) == len(members)
        return fresh and bool(np.isin(panel.devices, members).all())

    def _some(self, state: State, leaf: Node, heard: Ints) -> Ints:
        """As many members of a cluster as a panel has, drawn from all who were heard."""
        members = np.intersect1d(heard, np.array(leaf.devices, dtype=np.int64))
        draws = generator(self.config.run.seed, "panel-merger", state.round, leaf.devices[0])
        return np.sort(draws.permutation(members)[: self._size])

    def _drawn(self, state: State, leaf: Node, there: Ints, talk: Conversation) -> Ints:
        """A panel: half of it from everybody, half from those whom the cluster's model fits worst."""
        draws, worst = generator(self.config.run.seed, "panel", state.round, int(there[0])), there[:0]
        count = int(self.config.clustering.panel_worst * len(there))
        if count and len(there) > self._size:
            answer = talk.ask(Evaluate(state.models[leaf.name][None], there, np.zeros_like(there), "train"))
            ill_fitted = there[np.argsort(-np.nan_to_num(answer.loss), kind="stable")[:count]]
            worst = draws.permutation(ill_fitted)[: self._size // 2]
        others = draws.permutation(np.setdiff1d(there, worst))[: self._size - len(worst)]
        return np.sort(np.concatenate([worst, others]))

    def _grown(self, decided: Decisions, leaf: Node, panel: Panel, small: "_Small", talk: Conversation) -> Decisions:
        """What was decided on a panel, as decisions on its whole cluster."""
        splits = tuple(self._whole(split, leaf, panel, small, talk) for split in decided.splits)
        notes = tuple(
            replace(note, node=leaf.name, device=None if note.device is None else int(panel.devices[note.device]))
            for note in decided.notes
            if note.kind != "incident"  # those were told to the conversation
        )
        return replace(
            decided,
            stops=_renamed(decided.stops, leaf.name),
            reopens=_renamed(decided.reopens, leaf.name),
            splits=splits,
            left_out=panel.devices[decided.left_out],
            norms={},
            notes=notes,
            moves=(),
        )

    def _whole(self, split: NewSplit, leaf: Node, panel: Panel, small: "_Small", talk: Conversation) -> NewSplit:
        """A cut of a panel as a cut of its cluster: the others go where the children's models fit their images best."""
        models = small.children(split.parts, self.config.clustering.panel_apart)
        others = np.setdiff1d(np.array(leaf.devices, dtype=np.int64), panel.devices)
        side = best_fitting(models, np.array([len(part) for part in split.parts]), others, talk)
        parts = tuple(
            np.sort(np.concatenate([panel.devices[part], others[side == child]]))
            for child, part in enumerate(split.parts)
        )
        likeness = split.likeness and (panel.devices[split.likeness[0]], split.likeness[1])
        evidence = {**split.evidence, "panel": len(panel.devices)}
        return NewSplit(leaf.name, parts, evidence, likeness, talk.cost.seconds)

    def _moved(
        self, state: State, models: Mapping[str, Singles], devices: Ints, talk: Conversation, kind: str = "moved"
    ) -> tuple[Move, ...]:
        """Devices whose images another leaf's model fits better than their own's."""
        names, leaf_of = [leaf.name for leaf in state.tree.leaves()], state.tree.leaf_of()
        own = index(leaf_of, names)[devices]
        left = np.array([len(state.tree.nodes[name].devices) for name in names])
        best = best_fitting(stack(models, names), left, devices, talk)
        moves = list[Move]()
        for row in np.flatnonzero(best != own).tolist():
            if left[own[row]] > 1:  # no leaf is emptied
                left[own[row]] -= 1
                moves.append(Move(int(devices[row]), names[best[row]], {"from": names[own[row]]}, kind))
        return tuple(moves)


def panels_of(state: State) -> Panels:
    """This method's own part of the server's state."""
    assert isinstance(state.method, Panels)
    return state.method


def panel_config(config: Config) -> Config:
    """What a method is told that is put to a panel: there are so few devices that all may be asked about all."""
    devices = panel_size(config.clustering)
    population = config.population.model_copy(update={"devices": devices})
    asking = config.cross_evaluation.model_copy(update={"survey_columns": devices})
    return config.model_copy(update={"population": population, "cross_evaluation": asking})


def _renamed(of_root: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Mapping[str, Any]]:
    """What was decided on the panel's only cluster, under the name of its own."""
    return {name: of_root[ROOT]} if ROOT in of_root else {}


def _joined(one: Decisions, other: Decisions) -> Decisions:
    """Both decisions, on clusters that share no device."""
    return Decisions(
        stops={**one.stops, **other.stops},
        reopens={**one.reopens, **other.reopens},
        splits=one.splits + other.splits,
        left_out=np.union1d(one.left_out, other.left_out),
        notes=one.notes + other.notes,
    )


class _Small:
    """The federation of a panel alone: its state, what arrived, and its devices to be asked, numbered from 0."""

    def __init__(self, panel: Panel, state: State, leaf: Node, arrival: Arrival, talk: Conversation) -> None:
        self._devices, self._talk = panel.devices, talk
        count, model = len(panel.devices), state.models[leaf.name]
        heard = np.flatnonzero(np.isin(panel.devices, arrival.heard))
        rows = arrival.updates.rows(panel.devices[heard])
        updates, self._updates = HeldUpdates.of(heard, rows), HeldUpdates.of(panel.devices[heard], rows)
        nobody = np.zeros(0, dtype=np.int64)
        self.arrival = replace(
            arrival, updates=updates, cost=Cost.nothing(count), lost=nobody, failed={}, rejected={}, incidents=()
        )
        root = Node(ROOT, leaf.born_round, tuple(range(count)), stopped_round=leaf.stopped_round)
        self.state = replace(
            state,
            tree=Tree({ROOT: root}, count),
            models={ROOT: model},
            conventional=None,
            samples=state.samples[panel.devices],
            memory=updates,
            last_heard=np.where(np.isin(np.arange(count), heard), state.round, 0),
            participation=state.participation[panel.devices],
            energy_joules=state.energy_joules[panel.devices],
            present_rounds=state.present_rounds[panel.devices],
            retry=nobody,
            method=panel.own,
            best={},
        )

    def children(self, parts: tuple[Ints, ...], apart: float) -> Singles:
        """The models of the parts of a panel, set ``apart`` times as far from their parent's as they are."""
        heard, samples = self.arrival.heard, self.state.samples
        groups = [np.intersect1d(part, heard) for part in parts]
        devices, child = np.concatenate(groups), np.repeat(np.arange(len(parts)), [len(group) for group in groups])
        shares = samples[devices] / np.bincount(child, samples[devices], len(parts))[child]
        moves = self.arrival.updates.sums(devices, child, shares, len(parts))
        middle = moves.mean(axis=0)
        return np.asarray(self.state.models[ROOT] + middle + np.float32(apart) * (moves - middle), dtype=np.float32)

    def ask(self, question: Question[Answer]) -> Answers[Answer]:
        """Put a question to the panel's devices under their own numbers; the conversation about all of them pays."""
        before = self._talk.cost
        changes: dict[str, Any] = {"devices": self._devices[question.devices]}
        if isinstance(question, SurveyModels) and question.updates is not None:
            changes["updates"] = self._updates
        answer = self._talk.ask(replace(question, **changes))  # type: ignore[type-var]
        spent = self._talk.cost.joules - before.joules
        cost = Cost(self._talk.cost.seconds - before.seconds, spent[self._devices])
        return Answers(answer, cost)
