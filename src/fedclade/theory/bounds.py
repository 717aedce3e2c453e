"""Convergence bounds: Theorem 1 and its corollary, repaired, and a second one that closes.

docs/explanation/theory.md derives all of them.

One round of a cluster: each device k makes 𝒯_k steps of SGD on its own F_k from the shared model W(r), and the server
averages the results with weights p_k. With F = Σ p_k F_k, W* its minimiser and d(r) = E‖W(r) − W*‖²,

    d(r+1) ≤ ζ1(r) d(r) + ζ2(r).

Three forms of ζ1 and ζ2, all for any weights and any local steps:

- ``theorem``: what the paper's appendix proves. Needs no smoothness, but keeps a term of first order in η.
- ``closing``: uses smoothness too, and so falls to zero with a decreasing rate if all devices make equally many steps.
- ``statement``: Theorem 1 as the paper prints it, with ηζ1 where its own proof has η. To be looked at, not relied on.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError

Form: TypeAlias = Literal["theorem", "closing", "statement"]


@dataclass(frozen=True)
class Constants:
    """What convergence bounds know of a cluster; ``weights``, ``steps`` and ``gaps`` have an entry for each device."""

    alpha: float  # every F_k is α-strongly convex
    beta: float  # and β-smooth
    rho: float  # ϱ: E‖stochastic gradient‖² ≤ ϱ² wherever the devices come by
    weights: Floats  # p_k of the average, summing to 1
    steps: Ints  # 𝒯_k = E · ceil(D_k / b)
    gaps: Floats  # F_k(W*) − F_k*: what device k loses by sharing a model
    participants: int | None = None  # |Ω|, drawn uniformly anew each round; None: everybody

    def __post_init__(self) -> None:
        """Refuse what no problem can have."""
        if not 0 < self.alpha <= self.beta:
            raise UserError(f"α = {self.alpha:g}, β = {self.beta:g}: needs 0 < α ≤ β (strongly convex and smooth)")
        if not self.rho >= 0:
            raise UserError(f"ϱ = {self.rho:g}: must be at least 0")
        if not len(self.weights) == len(self.steps) == len(self.gaps) > 0:
            raise UserError("weights, steps and gaps: need one entry for each device")
        if self.weights.min() < 0 or not math.isclose(self.weights.sum(), 1.0, rel_tol=1e-9):
            raise UserError(f"weights: must be at least 0 and sum to 1, not to {self.weights.sum():g}")
        if self.steps.min() < 1:
            raise UserError(f"steps = {self.steps.min()}: every device makes at least 1 local step")
        if self.gaps.min() < 0:
            raise UserError(f"gaps = {self.gaps.min():g}: no F_k(W*) is below F_k*")
        if self.participants is not None and self.participants < self.devices and not self._alike():
            raise UserError("participants: a part of the devices is unbiased only if all have the same weight")

    def _alike(self) -> bool:
        return bool(np.allclose(self.weights, 1.0 / self.devices))

    @property
    def devices(self) -> int:
        """K of this cluster."""
        return len(self.weights)

    @property
    def optimality_gap(self) -> float:
        """𝔉 = F* − Σ p_k F_k* (eq. 25): zero if and only if one model is best for every device."""
        return float(self.weights @ self.gaps)

    @property
    def participation_factor(self) -> float:
        """What drawing only some devices adds to the variance of the average."""
        return 0.0 if self.participants is None else participation_factor(self.devices, self.participants)


def participation_factor(devices: int, participants: int) -> float:
    """(K − |Ω|) / (|Ω|(K − 1)): 0 for everybody, 1 for a single one.

    E‖mean over Ω − mean of all‖² is exactly this times the mean squared distance of the updates from their mean: a
    device is drawn with probability |Ω|/K (the appendix has K/|Ω|), a pair with |Ω|(|Ω|−1)/(K(K−1)).
    """
    if not 1 <= participants <= devices:
        raise UserError(f"|Ω| = {participants}: must be from 1 to K = {devices}")
    return 0.0 if devices == 1 else (devices - participants) / (participants * (devices - 1))


def zetas(constants: Constants, rates: Floats | float, form: Form = "theorem") -> tuple[Floats, Floats]:
    """ζ1 and ζ2 at each learning rate; raises UserError where they mean nothing: for η ≤ 0, or ζ1 outside 0 … 1."""
    contraction, zeta2 = _contraction_and_zeta2(constants, rates, form)
    return 1 - contraction, zeta2


def _contraction_and_zeta2(constants: Constants, rates: Floats | float, form: Form) -> tuple[Floats, Floats]:
    """1 − ζ1, which for small η is lost in rounding ζ1, and ζ2."""
    eta = np.atleast_1d(np.asarray(rates, dtype=np.float64))
    if not eta.min(initial=1.0) > 0:
        raise UserError(f"learning rate η = {eta.min():g}: must be greater than 0")
    alpha, rho2, p, steps = constants.alpha, constants.rho**2, constants.weights, constants.steps.astype(np.float64)
    mean_steps = float(p @ steps)
    drift = rho2 * float(p @ (steps * (steps - 1) * (2 * steps - 1))) / 6  # Σ_t ‖w_k^t − W‖² ≤ η² × this
    move = rho2 * float(p @ steps**2) * (1 + constants.participation_factor)  # ‖W(r+1) − W(r)‖² ≤ η² × this
    if form == "closing":
        fewest = float(steps.min())
        slope = (mean_steps + 1) / 2 + fewest
        contraction = alpha * eta * slope
        uneven = float(p @ ((steps - fewest) * constants.gaps))
        zeta2 = (alpha + constants.beta) * eta**3 * drift + eta**2 * move + 2 * eta * uneven
    else:
        if eta.max(initial=0.0) > 1 and mean_steps > 1:
            raise UserError(f"learning rate η = {eta.max():g}: the bound holds for η ≤ 1")
        slope = mean_steps
        contraction = alpha * eta * (mean_steps - eta * (mean_steps - 1))
        inner = eta * (1 - contraction) if form == "statement" else eta
        zeta2 = (1 + alpha * (1 - inner)) * eta**2 * drift + eta**2 * (move + rho2 * (mean_steps - 1))
        zeta2 += 2 * inner * float(p @ ((steps - 1) * constants.gaps))
    if contraction.max(initial=0.0) > 1 + 1e-12:
        worst = int(contraction.argmax())
        raise UserError(
            f"learning rate η = {eta[worst]:g}: gives ζ1 = {1 - contraction[worst]:.3g}, but the bound means something "
            f"only for 0 ≤ ζ1 < 1; with α = {alpha:g} and 𝒯 = {mean_steps:g} take η ≤ {1 / (alpha * slope):.3g}"
        )
    return np.minimum(contraction, 1.0), zeta2


def distance_bound(constants: Constants, rates: Floats, start: float, form: Form = "theorem") -> Floats:
    """The convergence bound of E‖W(r) − W*‖² for r = 0 … R (Theorem 1, eq. 29).

    ``rates[r]`` is η of the r-th of R rounds, ``start`` is ‖W(0) − W*‖².
    """
    distance = np.empty(len(rates) + 1)
    distance[0] = start
    for r, (zeta1, zeta2) in enumerate(zip(*zetas(constants, rates, form), strict=True)):
        distance[r + 1] = zeta1 * distance[r] + zeta2
    return distance


def loss_bound(constants: Constants, distance: Floats) -> Floats:
    """The corollary (eq. 30): E[F(W)] − F* ≤ β/2 · E‖W − W*‖², for each entry of ``distance``."""
    return constants.beta / 2 * distance


def floor(constants: Constants, rate: float, form: Form = "theorem") -> float:
    """ζ2 / (1 − ζ1): what a constant rate never gets the bound below."""
    (contraction,), (zeta2,) = _contraction_and_zeta2(constants, rate, form)
    return float(zeta2 / contraction)


def limit_floor(constants: Constants, form: Literal["theorem", "closing"] = "theorem") -> float:
    """The floor as η → 0: what is left of the bound under any decreasing rate whose sum diverges.

    Theorem 1 keeps 2(𝒯−1)𝔉/(α𝒯), so it does not prove the paper's limit of zero. ``closing`` keeps only what unequal
    numbers of local steps cost, and with equal ones nothing.
    """
    p, steps = constants.weights, constants.steps.astype(np.float64)
    if form == "theorem":
        return float(2 * (p @ ((steps - 1) * constants.gaps)) / (constants.alpha * (p @ steps)))
    fewest = steps.min()
    slope = constants.alpha * ((p @ steps + 1) / 2 + fewest)
    return float(2 * (p @ ((steps - fewest) * constants.gaps)) / slope)


def rounds_to(constants: Constants, rate: float, start: float, epsilon: float, form: Form = "theorem") -> int | None:
    """The first round at which the bound of a constant rate is at most ε; None if its floor is not below ε."""
    if start <= epsilon:
        return 0
    lowest = floor(constants, rate, form)
    if lowest >= epsilon:
        return None
    zeta1 = float(zetas(constants, rate, form)[0][0])
    if zeta1 == 0:
        return 1
    return math.ceil(math.log((epsilon - lowest) / (start - lowest)) / math.log(zeta1) - 1e-9)


def paper_rate(alpha: float, steps: int) -> float:
    """Theorem 1's η = 1/(α𝒯), where the bound means something at it."""
    least = (steps - 1) / steps**2
    if alpha <= least:
        raise UserError(f"α = {alpha:g}: η = 1/(α𝒯) gives ζ1 ≥ 1; needs α > (𝒯−1)/𝒯² = {least:.3g} for 𝒯 = {steps}")
    return 1 / (alpha * steps)


def harmonic_rates(first: float, rounds: int, half_after: float) -> Floats:
    """η_r = first / (1 + r / half_after): goes to zero, yet its sum does not stay finite.

    A geometric decay (``learning_rate_decay``) does stay finite, and then even the start is never quite forgotten.
    """
    return np.asarray(first / (1 + np.arange(rounds) / half_after))


# -------------------------------------------------------------------------------- models trained for others


def largest_shift(alpha: float, gap: float) -> float:
    """‖W_k* − W*‖ ≤ √(2 (F_k(W*) − F_k*) / α), by strong convexity of F_k."""
    return math.sqrt(2 * gap / alpha)


def bound_to_other_optimum(distance: Floats, shift: float) -> Floats:
    """E‖W − V*‖² ≤ (√E‖W − W*‖² + ‖W* − V*‖)²: how far a model trained towards W* is from another optimum V*.

    Two uses. Before a split, devices are served by their parent's model: W* is the parent's optimum, V* the child's. In
    the greedy phase one device (or a fixed few) trains the cluster's model: W* is its optimum, V* the cluster's. Either
    way the model settles around W*, and the shift is a floor that no learning rate removes.
    """
    return np.asarray((np.sqrt(distance) + shift) ** 2)
