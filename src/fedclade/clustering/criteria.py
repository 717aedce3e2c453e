"""When a cluster goes on, stops or should split, and whether a proposed cut is accepted.

Three questions, kept apart so that each can be exchanged: ``judge`` proposes (Algorithm 1, line 19; eqs. 14, 15 and
21), ``bipartition`` cuts (line 21), ``gamma_test`` accepts (lines 23, 24).
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedclade.clustering.method import Norms
from fedclade.config import NormThresholdsConfig
from fedclade.core.arrays import Bools, Singles
from fedclade.core.updates import update_norms

JACKKNIFE = 10  # parts
ONE_SIDED = 1.645  # standard errors, for 95 %
MIN_HEARD = 3  # fewer members' updates say nothing about groups

Proposal: TypeAlias = Literal["go-on", "stop", "split"]
Gamma: TypeAlias = float | Literal["off", "estimated"]


def enough_heard(norms: Norms, members: int) -> bool:
    """Whether so many of a cluster were heard that their norms tell of all."""
    return norms.heard >= min(MIN_HEARD, members)


def judge(norms: Norms, members: int, round_: int, config: NormThresholdsConfig) -> Proposal:
    """Standing still while someone pulls hard: split. Standing still and nobody pulls: stop."""
    if round_ <= config.warmup_rounds or not enough_heard(norms, members) or norms.mean >= config.epsilon1:
        return "go-on"
    if norms.max < config.epsilon2:
        return "stop"
    if norms.max > config.epsilon2 and norms.heard >= MIN_HEARD:
        return "split"
    return "go-on"


@dataclass(frozen=True)
class CutFacts:
    """How good a cut is: eqs. (22) to (24) and the limit of line 24."""

    within_min: float  # smallest similarity inside a child
    cross_max: float  # largest across the cut
    gap: float  # within_min - cross_max
    gamma_bound: float  # sqrt((1 - cross_max) / 2)
    gamma_max: float | None  # None where γ is not tested
    gamma_error: float | None = None  # its standard error where it is estimated

    def evidence(self) -> dict[str, float | None]:
        """As plain data, by the names that reports use."""
        return {
            "sim_within_min": self.within_min,
            "sim_cross_max": self.cross_max,
            "gap": self.gap,
            "gamma_bound": self.gamma_bound,
            "gamma_max": self.gamma_max,
            "gamma_error": self.gamma_error,
        }


def cut_facts(similarity: Singles, side: Bools, updates: Singles | None = None, gamma: Gamma = "off") -> CutFacts:
    """Measure a cut; where γ is estimated, from the updates of the devices."""
    return facts_of(*extremes(similarity, side), side, updates, gamma)


def extremes(similarity: Singles, side: Bools) -> tuple[float, float]:
    """The smallest similarity within a child of a cut, and the largest across it."""
    children = np.flatnonzero(side), np.flatnonzero(~side)
    cross = float(max(similarity[member, children[1]].max() for member in children[0]))  # line by line: K² is large
    within = float(
        min(
            similarity[member, child[position + 1 :]].min(initial=1.0)
            for child in children
            for position, member in enumerate(child)
        )
    )
    return within, cross


def facts_of(within: float, cross: float, side: Bools, updates: Singles | None, gamma: Gamma) -> CutFacts:
    """What there is to say of a cut with such similarities."""
    largest: float | None = None if isinstance(gamma, str) else gamma
    error: float | None = None
    if gamma == "estimated" and updates is not None:
        estimates = [estimated_gamma(updates[child]) for child in (side, ~side)]
        largest, error = max(estimates, key=lambda one: (one[0] + ONE_SIDED * one[1], one[0]))
    return CutFacts(within, cross, within - cross, math.sqrt((1.0 - cross) / 2.0), largest, error)


def gamma_test(facts: CutFacts) -> bool:
    """Line 24: accept the cut if max γ_k < sqrt((1 - sim_cross_max) / 2), an estimate with 95 % confidence."""
    if facts.gamma_max is None:
        return True
    return facts.gamma_max + ONE_SIDED * (facts.gamma_error or 0.0) < facts.gamma_bound


def estimated_gamma(updates: Singles) -> tuple[float, float]:
    """max γ_k of a child and its standard error.

    In place of the distribution's unknown gradient stands the mean update of the other members: with a device's own in
    it, γ_k came out too small. The error is the jackknife's, leaving out a tenth of the members at a time.
    """
    count = len(updates)
    if count < 2:
        return math.inf, 0.0
    whole, parts = _largest_gamma(updates), np.arange(count) % min(JACKKNIFE, count)
    if count < 3:
        return whole, math.inf
    left_out = np.array([_largest_gamma(updates[parts != part]) for part in np.unique(parts)])
    groups = len(left_out)
    return whole, float(np.sqrt((groups - 1) / groups * ((left_out - left_out.mean()) ** 2).sum()))


def _largest_gamma(updates: Singles) -> float:
    count = len(updates)
    if count < 2:
        return 0.0
    others = (updates.sum(axis=0) - updates) / (count - 1)
    return float((update_norms(updates - others) / np.maximum(update_norms(others), 1e-30)).max())
