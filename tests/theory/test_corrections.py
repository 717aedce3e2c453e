"""Every correction of the paper's analysis, by a derivation checked symbolically or by a counterexample.

The headings are those of docs/explanation/theory.md.
"""

from itertools import combinations

import numpy as np
import pytest
import sympy as sp

from fedclade.theory import Constants, limit_floor, participation_factor, zetas

alpha, beta, eta, rho, gap, distance = sp.symbols("alpha beta eta rho F d", positive=True)
steps, devices, drawn = sp.symbols("T K Omega", integer=True, positive=True)
t = sp.symbols("t", integer=True, positive=True)
u, v, x, y, z, g = sp.symbols("u v x y z g", real=True)

ZETA1 = 1 - alpha * eta * (steps - eta * (steps - 1))
DRIFT = steps * (steps - 1) * (2 * steps - 1) / 6
ZETA2 = (
    (1 + alpha * (1 - eta)) * eta**2 * rho**2 * DRIFT
    + eta**2 * (steps**2 + steps - 1) * rho**2
    + 2 * eta * (steps - 1) * gap
)
STATEMENT_ZETA2 = (
    (1 + alpha * (1 - eta * ZETA1)) * eta**2 * rho**2 * DRIFT
    + eta**2 * (steps**2 + steps - 1) * rho**2
    + 2 * eta * ZETA1 * (steps - 1) * gap
)
CLOSING_ZETA1 = 1 - alpha * eta * (3 * steps + 1) / 2
CLOSING_ZETA2 = (alpha + beta) * eta**3 * rho**2 * DRIFT + eta**2 * steps**2 * rho**2


def same(one: sp.Expr, other: sp.Expr) -> bool:
    return sp.simplify(sp.expand(one - other)) == 0


# -------------------------------------------------------------------------------- the derivation of Theorem 1


def test_the_inequalities_of_the_proof_are_squares():
    # 2η⟨u, g⟩ ≤ ‖u‖² + η²‖g‖²
    assert same(u**2 + eta**2 * g**2 - 2 * eta * u * g, (u - eta * g) ** 2)
    # −‖u + v‖² ≤ (1/η − 1)‖u‖² − (1 − η)‖v‖²
    assert same((1 / eta - 1) * u**2 - (1 - eta) * v**2 + (u + v) ** 2, (u + eta * v) ** 2 / eta)
    # ‖z − y‖² ≤ 2‖z − x‖² + 2‖x − y‖²
    assert same(2 * (z - x) ** 2 + 2 * (x - y) ** 2 - (z - y) ** 2, (z - 2 * x + y) ** 2)


def test_the_steps_of_the_proof_add_up_to_eta_and_not_to_eta_zeta1():
    away = eta**2 * (t - 1) ** 2 * rho**2  # E‖w^t − W‖² after t − 1 steps
    first = -alpha * eta * distance
    later = (
        away + eta**2 * rho**2  # 2η⟨w^t − W, ∇F_k⟩
        + alpha * (1 - eta) * away - alpha * eta * (1 - eta) * distance  # −αη‖w^t − W*‖²
        + 2 * eta * gap  # 2η(F_k(W*) − F_k(w^t)) ≤ 2η(F_k(W*) − F_k*), on average 𝔉
    )  # fmt: skip
    total = distance + eta**2 * steps**2 * rho**2 + first + sp.summation(sp.expand(later), (t, 2, steps))
    assert same(total, ZETA1 * distance + ZETA2)
    assert not same(total, ZETA1 * distance + STATEMENT_ZETA2)


def test_the_statement_claims_more_than_its_proof_gives():
    claimed_too_much = eta * (1 - ZETA1) * (2 * (steps - 1) * gap - alpha * eta**2 * rho**2 * DRIFT)
    assert same(ZETA2 - STATEMENT_ZETA2, claimed_too_much)
    # proven 3.09, claimed 1.22
    values = {alpha: 0.5, eta: 0.5, steps: 4, gap: 1, rho: 0.1}
    assert (ZETA2.subs(values), STATEMENT_ZETA2.subs(values)) == pytest.approx((3.09125, 1.22171875))


def test_the_steps_of_the_closing_bound_add_up():
    away = eta**2 * (t - 1) ** 2 * rho**2
    first = -alpha * eta * distance
    later = -alpha * eta / 2 * distance + eta * (alpha + beta) * away
    falls = -2 * eta * steps * alpha / 2 * distance  # −2η𝒯(F(W) − F*) ≤ −αη𝒯‖W − W*‖²
    total = distance + eta**2 * steps**2 * rho**2 + falls + first + sp.summation(sp.expand(later), (t, 2, steps))
    assert same(total, CLOSING_ZETA1 * distance + CLOSING_ZETA2)


@pytest.mark.parametrize(
    ("form", "zeta1", "zeta2"),
    [
        ("theorem", ZETA1, ZETA2),
        ("statement", ZETA1, STATEMENT_ZETA2),
        ("closing", CLOSING_ZETA1, CLOSING_ZETA2),
    ],
)
def test_the_code_has_what_was_derived(form, zeta1, zeta2):
    for number in range(1, 6):
        known = Constants(0.1, 2.0, 1.5, np.ones(1), np.array([number]), np.array([0.3]))
        values = {alpha: 0.1, beta: 2.0, rho: 1.5, gap: 0.3, steps: number, eta: 0.2}
        coded = [float(part[0]) for part in zetas(known, 0.2, form)]
        assert coded == pytest.approx([float(zeta1.subs(values)), float(zeta2.subs(values))])


# -------------------------------------------------------------------------------- 𝔉 is a property of the data


def test_the_optimality_gap_does_not_vanish_when_the_optimum_is_reached():
    w = sp.symbols("w", real=True)
    first, second = (w - 1) ** 2 / 2, (w + 1) ** 2 / 2  # each device's own loss can be 0
    together = (first + second) / 2
    (best,) = sp.solve(sp.diff(together, w), w)
    assert together.subs(w, best) - 0 == sp.Rational(1, 2)  # 𝔉 at W = W* itself


# -------------------------------------------------------------------------------- who takes part


def test_a_device_is_drawn_with_probability_omega_over_k_and_a_pair_accordingly():
    single = sp.binomial(devices - 1, drawn - 1) / sp.binomial(devices, drawn)
    pair = sp.binomial(devices - 2, drawn - 2) / sp.binomial(devices, drawn)
    assert sp.combsimp(single.rewrite(sp.gamma)).equals(drawn / devices)
    assert sp.combsimp(pair.rewrite(sp.gamma)).equals(drawn * (drawn - 1) / (devices * (devices - 1)))
    assert single.subs({devices: 2, drawn: 1}) == sp.Rational(1, 2)  # the appendix's K/|Ω| = 2 is no probability
    # Σ over pairs of ⟨δ_k, δ_k'⟩ = −Σ‖δ_k‖², since the δ sum to zero
    variance = (drawn / devices - drawn * (drawn - 1) / (devices * (devices - 1))) / drawn**2 * devices
    assert same(variance, (devices - drawn) / (drawn * (devices - 1)))


def test_the_participation_factor_is_the_exact_variance_over_all_sets():
    updates = np.random.default_rng(1).normal(size=(5, 3))
    centre = updates.mean(axis=0)
    spread = ((updates - centre) ** 2).sum(axis=1).mean()
    for number in range(1, 6):
        means = np.array([updates[list(chosen)].mean(axis=0) for chosen in combinations(range(5), number)])
        assert means.mean(axis=0) == pytest.approx(centre)  # divided by |Ω|; the appendix divides by K
        variance = ((means - centre) ** 2).sum(axis=1).mean()
        assert variance == pytest.approx(participation_factor(5, number) * spread)
        # and never more than ϱ² already pays for: the average's square is at most the squares' average
        assert (means**2).sum(axis=1).mean() <= (updates**2).sum(axis=1).mean() * (1 + 1e-12)


def test_the_spread_of_updates_subtracts_k_times_their_mean_squared():
    a, b, c = sp.symbols("a b c", real=True)
    mean = (a + b + c) / 3
    spread = sum((one - mean) ** 2 for one in (a, b, c))
    assert same(spread, a**2 + b**2 + c**2 - 3 * mean**2)
    assert not same(spread, a**2 + b**2 + c**2 - mean**2)  # the appendix's


# -------------------------------------------------------------------------------- the learning rate


def test_at_the_papers_rate_zeta1_is_below_one_only_for_enough_convexity():
    zeta1 = ZETA1.subs(eta, 1 / (alpha * steps))
    assert same(zeta1, (steps - 1) / (alpha * steps**2))
    assert zeta1.subs({alpha: sp.Rational(3, 16), steps: 4}) == 1
    assert zeta1.subs({alpha: sp.Rational(4, 16), steps: 4}) < 1


def fixed_point(curvatures, centres, numbers):
    """Where federated averaging of 1-D quadratics at a constant η comes to rest: no expectation, no noise."""
    pull = [1 - (1 - eta * a) ** n for a, n in zip(curvatures, numbers, strict=True)]
    return sum(p * c for p, c in zip(pull, centres, strict=True)) / sum(pull)


def test_at_a_constant_rate_federated_averaging_does_not_rest_at_the_optimum():
    best = sp.Rational(1 * 1 + 3 * -1, 4)
    rest = fixed_point((1, 3), (1, -1), (2, 2))
    assert same(rest - best, 3 * eta / (8 - 10 * eta))
    assert sp.limit(rest, eta, 0) == best  # a rate that falls to zero gets there


def test_with_unequal_local_steps_not_even_a_vanishing_rate_rests_at_the_optimum():
    rest = sp.limit(fixed_point((1, 1), (1, -1), (1, 3)), eta, 0)
    assert rest == -sp.Rational(1, 2)  # F = ½(F_1 + F_2) is least at 0
    uneven = Constants(1.0, 1.0, 0.0, np.full(2, 0.5), np.array([1, 3]), np.array([0.5, 0.5]))
    assert limit_floor(uneven, "closing") >= float(rest) ** 2
    assert limit_floor(uneven, "theorem") >= float(rest) ** 2


def test_theorem_1_itself_does_not_go_to_zero_with_the_rate_but_the_closing_bound_does():
    assert same(sp.limit(sp.cancel(ZETA2 / (1 - ZETA1)), eta, 0), 2 * (steps - 1) * gap / (alpha * steps))
    assert sp.limit(sp.cancel(CLOSING_ZETA2 / (1 - CLOSING_ZETA1)), eta, 0) == 0
    known = Constants(0.1, 2.0, 1.5, np.ones(1), np.array([4]), np.array([0.3]))
    assert limit_floor(known) == pytest.approx(2 * 3 * 0.3 / (0.1 * 4))
    assert limit_floor(known, "closing") == 0


# -------------------------------------------------------------------------------- what the assumptions exclude


def test_a_net_with_one_hidden_unit_is_not_even_convex():
    w = sp.Matrix(sp.symbols("w1 w2", real=True))
    loss = (w[0] * w[1] - 1) ** 2 / 2  # input 1, label 1, one linear hidden unit
    assert loss.subs({w[0]: 1, w[1]: 1}) == loss.subs({w[0]: -1, w[1]: -1}) == 0  # two minimisers
    assert loss.subs({w[0]: 0, w[1]: 0}) > 0  # with a hill between them
    assert min(sp.hessian(loss, list(w)).subs({w[0]: 0, w[1]: 0}).eigenvals()) == -1


def test_no_bound_of_the_gradient_holds_everywhere_under_strong_convexity():
    w = sp.symbols("w", positive=True)
    assert sp.limit(sp.diff(alpha / 2 * w**2, w), w, sp.oo) == sp.oo  # ϱ is one of the path, not of the problem
