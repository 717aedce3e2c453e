"""Convergence bounds against reality: Algorithm 1 on the strongly convex case, every cluster beside its bounds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedclade import config as configuration
from fedclade.clustering import find_method
from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.state import State
from fedclade.core.stopwatch import Stopwatch
from fedclade.core.tree import ROOT
from fedclade.data import build_population
from fedclade.edge import SimulatedEdge
from fedclade.edge.latency import local_steps
from fedclade.fleet.evaluation import evaluated
from fedclade.fleet.simulated.fleet import SimulatedFleet
from fedclade.metrics.groups import adjusted_rand_index
from fedclade.server import Server
from fedclade.theory import (
    Constants,
    LogisticProblem,
    Optimum,
    bound_to_other_optimum,
    distance_bound,
    floor,
    harmonic_rates,
    limit_floor,
    rounds_to,
    solve,
)
from fedclade.theory.trainer import LogisticTrainer

ONE_MODEL = "one model"
# A measured value may exceed its bound by this share and still count as under it. At a model's birth both are the same
# number by construction, worked out in two ways; which of the two is larger is up to the rounding of the processor.
ROUNDING = 1e-9
STEEP, HALF_AFTER = 3.0, 0.1  # a decreasing rate starts at 3 η and has come to half of that after a tenth of the rounds


@dataclass(frozen=True)
class Curve:
    """A model's distance from an optimum over rounds, measured and bounded; NaN where no bound holds."""

    rounds: Ints
    distance: Floats  # ‖W(r) − W*‖²
    loss_gap: Floats  # F(W(r)) − F*
    theorem: Floats  # the bound of the distance by Theorem 1
    closing: Floats  # and by the closing bound
    beta: float

    @property
    def violations(self) -> int:
        """How often a measured value lies above a bound of it by more than rounding.

        The bounds are of means over all draws of the batches; this is one run.
        """
        pairs = [(self.distance, self.theorem), (self.distance, self.closing)]
        pairs += [(self.loss_gap, self.beta / 2 * allowed) for allowed in (self.theorem, self.closing)]
        return sum(int((measured > allowed * (1 + ROUNDING)).sum()) for measured, allowed in pairs)


@dataclass(frozen=True)
class ClusterBound:
    """A cluster's own model from its birth on, measured against the cluster's own optimum beside its bounds."""

    name: str
    members: Ints
    constants: Constants
    optimum: Floats  # W*
    rate: float
    curve: Curve

    def floor(self, form: Literal["theorem", "closing"]) -> float:
        """The least that a bound ever allows at the run's constant rate."""
        return floor(self.constants, self.rate, form)

    def limit_floor(self, form: Literal["theorem", "closing"]) -> float:
        """The least that it allows at any rate, however small."""
        return limit_floor(self.constants, form)

    def rounds_to_half(self, form: Literal["theorem", "closing"]) -> int | None:
        """Rounds until a bound says half of the squared distance at birth; None: never."""
        start = float(self.curve.distance[0])
        return rounds_to(self.constants, self.rate, start, start / 2, form)


@dataclass(frozen=True)
class LeafStory:
    """A leaf's devices through the whole run, always measured against the leaf's own optimum."""

    name: str
    members: Ints
    born_round: int
    served: Curve  # by the model that served them: an ancestor's before the split, then their own
    one_model: Curve  # had there been no split
    decreasing: Curve  # their own model again from its birth, under a decreasing rate
    accuracy: float
    one_model_accuracy: float


@dataclass(frozen=True)
class BoundReport:
    """All that ``fedclade bound`` shows."""

    name: str
    config: Config
    clusters: list[ClusterBound]  # every node of the tree, parents first
    one_model: ClusterBound
    leaves: list[LeafStory]
    adjusted_rand_index: float

    @property
    def curves(self) -> list[Curve]:
        """Every curve of the report: the clusters', the one model's and the leaves'."""
        own = [cluster.curve for cluster in (*self.clusters, self.one_model)]
        return own + [curve for leaf in self.leaves for curve in (leaf.served, leaf.one_model, leaf.decreasing)]


def check_bounds(
    source: str | Path | Mapping[str, Any] | Config = "bound-digits", overrides: Iterable[str] = ()
) -> BoundReport:
    """Run Algorithm 1 on a strongly convex case and hold every cluster's model against its convergence bounds."""
    config = source if isinstance(source, Config) else configuration.load(source, overrides)
    _require_strong_convexity(config)
    name = Path(source).stem if isinstance(source, str | Path) else "bound"
    return _Check(config).report(name)


def _require_strong_convexity(config: Config) -> None:
    training = config.training
    wrong = [
        ("model.name", config.model.name, "logistic", config.model.name != "logistic"),
        ("training.weight_decay", training.weight_decay, "greater than 0", training.weight_decay == 0),
        ("training.momentum", training.momentum, "0.0", training.momentum != 0),
        ("training.proximal", training.proximal, "0.0", training.proximal != 0),
        ("training.scaffold", training.scaffold, "false", training.scaffold),
        ("training.ditto", training.ditto, "0.0", training.ditto != 0),
        ("aggregation.optimiser", config.aggregation.optimiser, "none", config.aggregation.optimiser != "none"),
        ("clustering.method", config.clustering.method, "one that splits", config.clustering.method == "none"),
    ]
    for field, value, right, is_wrong in wrong:
        if is_wrong:
            raise UserError(
                f"{field} = {value}: the bounds are of L2-regularised logistic regression trained by plain SGD in "
                f"clusters; must be {right} (try: fedclade bound bound-digits)"
            )


@dataclass(frozen=True)
class _Kept:
    """What is remembered of a round."""

    state: State
    one_model: Singles


class _Check:
    """One run with all that was seen on the way."""

    def __init__(self, config: Config) -> None:
        # the one-model comparison must go on, and the bounds are of training, not of the time it takes
        run = config.run.model_copy(update={"conventional": "continued", "time_budget_seconds": None})
        self.config = config.model_copy(update={"run": run})
        self.population = build_population(config)
        self.samples = self.population.samples
        self.steps = local_steps(config.training, self.samples)
        self.trainer = LogisticTrainer(config, self.population, self.steps)
        self.kept: dict[int, _Kept] = {}
        self.gradients: dict[str, Floats] = {}  # by model: the largest ‖gradient‖² of each device
        self.whole_until: dict[str, int] = {}  # by cluster: the last round before a member was left out
        self._run()

    # -------------------------------------------------------------------------------- the run

    def _run(self) -> None:
        trainer = self.trainer
        edge = SimulatedEdge(self.config, self.samples, self.population.bits_per_sample, trainer.parameters)
        stopwatch = Stopwatch()
        fleet = SimulatedFleet(self.config, trainer, edge, self.samples, stopwatch)
        server = Server(self.config, fleet, edge, find_method(self.config, self.population.group), stopwatch)
        state = server.initial_state()
        while server.finished(state) is None:
            before, result = state, server.step(state)
            assert result is not None  # there is no time budget
            state, record = result
            for tree in (before.tree, state.tree):  # the round of a split is its parent's last and a child's first
                leaf_of = tree.leaf_of()
                self._note([leaf_of[device] for device in record.computed], record.computed)
            all_train = record.computed if before.conventional is None else np.arange(len(self.samples))
            self._note([ONE_MODEL] * len(all_train), all_train)
            for cluster in record.clusters:
                if cluster.heard < cluster.members:
                    self._left_out(cluster.node, record.round)
            split = any(event.kind == "split" for event in record.events)
            for kept in [before, state] if split else [state]:
                if split or state.round % self.config.run.evaluate_every == 0:
                    self._keep(kept)
            trainer.squared_gradients.clear()
        self._keep(server.initial_state())
        self._keep(state)
        self.tree, self.last, self.accuracy = state.tree, state.round, evaluated(fleet, state, self.config.run)

    def _note(self, models: list[str], devices: Ints) -> None:
        """Remember the gradients of the first (the clusters') or the last (the one model's) training of a round."""
        seen = self.trainer.squared_gradients[-1 if ONE_MODEL in models else 0]
        for model, device, squared in zip(models, devices, seen, strict=True):
            noted = self.gradients.setdefault(model, np.zeros(len(self.samples)))
            noted[device] = max(noted[device], squared)

    def _left_out(self, node: str, round_: int) -> None:
        """From here on the cluster's bound, which is of rounds of everybody, says nothing."""
        if round_ == 1:
            raise UserError(
                f'scheduling.policy = "{self.config.scheduling.policy}": left devices out of round 1, but the bounds '
                "are of rounds of everybody; must be full or fair"
            )
        self.whole_until.setdefault(node, round_ - 1)
        if node == ROOT:
            self.whole_until.setdefault(ONE_MODEL, round_ - 1)

    def _keep(self, state: State) -> None:
        one_model = state.models[ROOT] if state.conventional is None else state.conventional
        self.kept[state.round] = _Kept(state, one_model)

    # -------------------------------------------------------------------------------- optima and constants

    @cached_property
    def _alone(self) -> list[Optimum]:
        """Every device's own optimum, for F_k*."""
        return [solve(problem) for problem in self.trainer.problems]

    def _pooled(self, members: Ints) -> LogisticProblem:
        mine = [self.trainer.problems[k] for k in members]
        features, labels = (
            np.concatenate(parts) for parts in zip(*((p.features, p.labels) for p in mine), strict=True)
        )
        return LogisticProblem(features, labels, mine[0].classes, mine[0].penalty)

    @cached_property
    def _solved(self) -> dict[str, tuple[LogisticProblem, Optimum]]:
        """F and W* of every node of the tree."""
        problems = {name: self._pooled(self.tree.members(name)) for name in self.tree.nodes}
        return {name: (problem, solve(problem)) for name, problem in problems.items()}

    def _constants(self, members: Ints, optimum: Optimum, squared_gradients: Floats) -> Constants:
        problems = [self.trainer.problems[k] for k in members]
        gaps = [problem.loss(optimum.model) - self._alone[k].loss for k, problem in zip(members, problems, strict=True)]
        return Constants(
            alpha=problems[0].alpha,
            beta=max(problem.beta for problem in problems),
            rho=float(np.sqrt(squared_gradients[members].max())),
            weights=self.samples[members] / self.samples[members].sum(),
            steps=self.steps[members],
            gaps=np.maximum(gaps, 0.0),
        )

    # -------------------------------------------------------------------------------- measuring

    def report(self, name: str) -> BoundReport:
        """Measure everything."""
        one_model = self._cluster_bound(ROOT, ONE_MODEL)
        clusters = {node: self._cluster_bound(node, node) for node in sorted(self.tree.nodes)}
        leaves = [leaf.name for leaf in self.tree.leaves()]
        return BoundReport(
            name=name,
            config=self.config,
            clusters=list(clusters.values()),
            one_model=one_model,
            leaves=[self._story(leaf, clusters, one_model) for leaf in leaves],
            adjusted_rand_index=adjusted_rand_index(self.population.group, self.tree.leaf_of()),
        )

    def _cluster_bound(self, node: str, model: str) -> ClusterBound:
        """A node's own model, or the one model of all, over the rounds of its life."""
        members, (problem, optimum) = self.tree.members(node), self._solved[node]
        known = self._constants(members, optimum, self.gradients[model])
        split = self.tree.nodes[node].split
        end = self.last if split is None or model == ONE_MODEL else split.round
        start = max(0, self.tree.nodes[node].born_round - 1)
        rounds = np.array([r for r in sorted(self.kept) if start <= r <= end])
        models = [self.kept[r].one_model if model == ONE_MODEL else self._serving(r, node) for r in rounds]
        first = float(((models[0] - optimum.model) ** 2).sum())
        rates = np.array([self.config.training.rate(r) for r in range(start + 1, end + 1)])
        bounds = [distance_bound(known, rates, first, form)[rounds - start] for form in ("theorem", "closing")]
        partly = rounds > self.whole_until.get(model, end)
        curve = _measure(problem, optimum, rounds, models, np.where(partly, np.nan, bounds), known.beta)
        return ClusterBound(model, members, known, optimum.model, self.config.training.rate(start + 1), curve)

    def _serving(self, round_: int, node: str) -> Singles:
        """The model of a node in a round: its own, or before its birth that of the ancestor it then was part of."""
        return self.kept[round_].state.models[self._ancestor(round_, node)]

    def _ancestor(self, round_: int, node: str) -> str:
        nodes = self.kept[round_].state.tree.nodes
        while node not in nodes:
            node = node.rpartition(".")[0]
        return node

    def _story(self, leaf: str, clusters: Mapping[str, ClusterBound], one_model: ClusterBound) -> LeafStory:
        members, (problem, optimum) = self.tree.members(leaf), self._solved[leaf]
        rounds, beta = np.array(sorted(self.kept)), clusters[leaf].constants.beta

        def shifted(other: ClusterBound, round_: int) -> Floats:
            """Both bounds of a model that was trained for ``other``, as seen from this leaf's optimum."""
            at = int(np.searchsorted(other.curve.rounds, round_))
            shift = float(np.linalg.norm(other.optimum - optimum.model))
            both = np.array([other.curve.theorem[at], other.curve.closing[at]])
            return bound_to_other_optimum(both, shift)

        born = self.tree.nodes[leaf].born_round
        served = [shifted(clusters[self._ancestor(r, leaf)], r) for r in rounds]
        single = [shifted(one_model, r) for r in rounds]
        accuracy = self.accuracy
        return LeafStory(
            name=leaf,
            members=members,
            born_round=born,
            served=_measure(
                problem, optimum, rounds, [self._serving(r, leaf) for r in rounds], np.array(served).T, beta
            ),
            one_model=_measure(
                problem, optimum, rounds, [self.kept[r].one_model for r in rounds], np.array(single).T, beta
            ),
            decreasing=self._follow_decreasing(leaf, problem, optimum),
            accuracy=float(accuracy.score[members].mean()),
            one_model_accuracy=float(accuracy.conventional_score[members].mean()),
        )

    def _follow_decreasing(self, leaf: str, problem: LogisticProblem, optimum: Optimum) -> Curve:
        """The leaf's model once more from its birth, everybody in every round, under a rate that falls to zero."""
        members, start = self.tree.members(leaf), max(0, self.tree.nodes[leaf].born_round - 1)
        count = self.last - start
        allowed = min(1.0, 1 / (2 * problem.alpha * int(self.steps.max())))  # ζ1 ≥ 0 in either form
        first_rate = min(STEEP * self.config.training.rate(start + 1), allowed)
        rates = harmonic_rates(first_rate, count, HALF_AFTER * self.last)
        weights = (self.samples[members] / self.samples[members].sum()).astype(np.float32)
        models, largest = [self._serving(start, leaf)], np.zeros(len(self.samples))
        for r, rate in enumerate(rates):
            updates = self.trainer.train_at(
                float(rate), start + r + 1, models[-1][None], members, np.zeros_like(members)
            )
            largest[members] = np.maximum(largest[members], self.trainer.squared_gradients.pop())
            models.append(np.asarray(models[-1] + weights @ updates, dtype=np.float32))
        known = self._constants(members, optimum, largest)
        first = float(((models[0] - optimum.model) ** 2).sum())
        rounds = np.array([r for r in sorted(self.kept) if r >= start])
        bounds = [distance_bound(known, rates, first, form)[rounds - start] for form in ("theorem", "closing")]
        return _measure(problem, optimum, rounds, [models[r - start] for r in rounds], np.array(bounds), known.beta)


def _measure(
    problem: LogisticProblem, optimum: Optimum, rounds: Ints, models: list[Singles], bounds: Floats, beta: float
) -> Curve:
    distance = np.array([((model - optimum.model) ** 2).sum() for model in models])
    gap = np.array([problem.loss(model.astype(np.float64)) - optimum.loss for model in models])
    return Curve(rounds, distance, np.maximum(gap, 0.0), bounds[0], bounds[1], beta)
