"""The bounds: numbers worked out by hand, what they refuse, and that no exactly known error ever exceeds them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_builders import error_line
from fedclade.theory import (
    Constants,
    bound_to_other_optimum,
    distance_bound,
    floor,
    harmonic_rates,
    largest_shift,
    limit_floor,
    loss_bound,
    paper_rate,
    participation_factor,
    rounds_to,
    zetas,
)
from quadratics import Quadratics

FORMS = ("theorem", "closing")


def constants(steps=(3,), gaps=(0.25,), weights=(1.0,), alpha=0.5, beta=2.0, rho=2.0, **more) -> Constants:
    return Constants(alpha, beta, rho, np.array(weights), np.array(steps), np.array(gaps), **more)


def problems(even: bool = False):
    """Random quadratics with their steps, noise and rates; ``even`` gives all devices one weight and one 𝒯."""
    devices = st.integers(2, 4) if even else st.integers(1, 4)
    return devices.flatmap(
        lambda k: st.builds(
            lambda seed, size, steps, noise: Quadratics.random(
                seed, k, size, steps=[steps[0]] * k if even else steps, noise=noise, even=even
            ),
            st.integers(0, 2**32),
            st.integers(1, 3),
            st.lists(st.integers(1, 6), min_size=k, max_size=k),
            st.sampled_from([0.0, 0.1, 1.0]),
        )
    )


# -------------------------------------------------------------------------------- by hand


def test_theorem_by_hand():
    # α = ½, 𝒯 = 3, η = 0.1, ϱ² = 4, 𝔉 = ¼
    (zeta1,), (zeta2,) = zetas(constants(), 0.1)
    assert zeta1 == pytest.approx(1 - 0.5 * 0.1 * (3 - 0.1 * 2))  # 0.86
    # (1 + ½·0.9)·0.01·4·(3·2·5/6) + 0.01·(9 + 3 − 1)·4 + 2·0.1·2·¼ = 0.29 + 0.44 + 0.1
    assert zeta2 == pytest.approx(0.83)
    assert floor(constants(), 0.1) == pytest.approx(0.83 / 0.14)
    assert distance_bound(constants(), np.full(2, 0.1), 10.0) == pytest.approx([10.0, 9.43, 8.9398])
    assert loss_bound(constants(), np.array([10.0])) == pytest.approx([10.0])  # β/2 = 1


def test_closing_by_hand():
    (zeta1,), (zeta2,) = zetas(constants(), 0.1, "closing")
    assert zeta1 == pytest.approx(1 - 0.5 * 0.1 * (2 + 3))  # 0.75
    assert zeta2 == pytest.approx(2.5 * 0.001 * 4 * 5 + 0.01 * 9 * 4)  # 0.05 + 0.36, no 𝔉


def test_the_papers_statement_has_eta_zeta1_where_its_proof_has_eta():
    (zeta1,), (zeta2,) = zetas(constants(), 0.1, "statement")
    assert zeta1 == pytest.approx(0.86)
    # (1 + ½(1 − 0.086))·0.2 + 0.44 + 2·0.086·2·¼ = 0.2914 + 0.44 + 0.086: less than what is proven
    assert zeta2 == pytest.approx(0.8174)


def test_devices_with_their_own_weights_steps_and_gaps_by_hand():
    # p = (¼, ¾), 𝒯 = (1, 3): mean 2.5, Σp𝒯² = 7, Σp·𝒯(𝒯−1)(2𝒯−1)/6 = ¾·5 = 3.75
    mixed = constants(steps=(1, 3), gaps=(2.0, 0.4), weights=(0.25, 0.75))
    assert mixed.optimality_gap == pytest.approx(0.8)
    (zeta1,), (zeta2,) = zetas(mixed, 0.1)
    assert zeta1 == pytest.approx(1 - 0.05 * (2.5 - 0.15))
    assert zeta2 == pytest.approx(1.45 * 0.01 * 4 * 3.75 + 0.01 * 4 * (7 + 1.5) + 0.2 * 0.75 * 2 * 0.4)
    (zeta1,), (zeta2,) = zetas(mixed, 0.1, "closing")
    assert zeta1 == pytest.approx(1 - 0.05 * (1.75 + 1))
    assert zeta2 == pytest.approx(2.5 * 0.001 * 4 * 3.75 + 0.01 * 4 * 7 + 0.2 * 0.75 * 2 * 0.4)
    assert limit_floor(mixed, "closing") == pytest.approx(2 * 0.6 / (0.5 * 2.75))


@given(st.integers(1, 9), st.floats(0.01, 0.2))
def test_many_equal_devices_are_as_good_as_one(steps, rate):
    many = constants(steps=(steps,) * 4, gaps=(0.1, 0.2, 0.3, 0.4), weights=(0.25,) * 4, alpha=0.1)
    for form in FORMS:
        assert np.allclose(zetas(many, rate, form), zetas(constants(steps=(steps,), alpha=0.1), rate, form))


@pytest.mark.parametrize(("devices", "drawn", "factor"), [(1, 1, 0), (10, 10, 0), (10, 1, 1), (5, 2, 3 / 8)])
def test_participation_factor_by_hand(devices, drawn, factor):
    assert participation_factor(devices, drawn) == pytest.approx(factor)


def test_drawing_fewer_devices_adds_its_factor_to_the_average_s_variance():
    all_, five = (
        constants(steps=(3,) * 5, gaps=(0.25,) * 5, weights=(0.2,) * 5, participants=drawn) for drawn in (None, 2)
    )
    for form in FORMS:
        (before,), (after,) = (zetas(c, 0.1, form)[1] for c in (all_, five))
        assert after - before == pytest.approx(3 / 8 * 0.01 * 9 * 4)


# -------------------------------------------------------------------------------- floors, rounds, rates


@given(st.floats(1e-3, 0.05), st.integers(1, 9), st.floats(0.0, 2.0), st.sampled_from(FORMS))
def test_a_constant_rate_brings_the_bound_to_its_floor_and_no_further(rate, steps, gap, form):
    problem = constants(steps=(steps,), gaps=(gap,))
    lowest = floor(problem, rate, form)
    rounds = math.ceil(20 / (0.5 * rate * steps))
    above = distance_bound(problem, np.full(rounds, rate), lowest + 10.0, form)
    assert (np.diff(above) <= 0).all()
    assert above[-1] == pytest.approx(lowest, rel=1e-3, abs=1e-4)
    assert distance_bound(problem, np.full(3, rate), lowest, form) == pytest.approx([lowest] * 4)


@given(st.floats(1e-3, 0.05), st.integers(1, 9), st.floats(0.1, 50.0), st.floats(0.1, 50.0), st.sampled_from(FORMS))
def test_rounds_to_an_epsilon_are_those_of_the_recursion(rate, steps, start, epsilon, form):
    problem = constants(steps=(steps,), rho=0.5)
    rounds = rounds_to(problem, rate, start, epsilon, form)
    if rounds is None:
        assert floor(problem, rate, form) >= epsilon
        return
    reached = distance_bound(problem, np.full(rounds, rate), start, form)
    assert reached[-1] <= epsilon * (1 + 1e-6)
    assert (reached[:-1] > epsilon * (1 - 1e-6)).all()


def test_rounds_where_one_round_forgets_the_start():
    exact = constants(steps=(1,), alpha=1.0, rho=0.1)
    assert zetas(exact, 1.0)[0] == 0
    assert rounds_to(exact, 1.0, 5.0, 0.5) == 1
    assert rounds_to(exact, 1.0, 5.0, 6.0) == 0


@pytest.mark.parametrize("form", FORMS)
def test_more_local_epochs_are_fewer_rounds_but_a_higher_floor(form):
    per_epochs = [constants(steps=(5 * epochs,)) for epochs in (1, 2, 4, 8)]
    floors = [floor(problem, 1e-3, form) for problem in per_epochs]
    assert floors == sorted(floors)
    assert floors[0] < floors[-1]
    rounds = [rounds_to(problem, 1e-3, 1e3, 2 * max(floors), form) for problem in per_epochs]
    assert rounds == sorted(rounds, reverse=True)


def test_a_decreasing_rate_closes_the_closing_bound_but_not_the_theorem():
    problem = constants()
    rates = harmonic_rates(0.1, 200_000, half_after=50)
    assert distance_bound(problem, rates, 10.0, "closing")[-1] < 0.01
    left = distance_bound(problem, rates, 10.0)[-1]
    assert limit_floor(problem) == pytest.approx(2 * 2 * 0.25 / (0.5 * 3))
    assert left == pytest.approx(limit_floor(problem), rel=0.01)


def test_a_geometric_decay_never_forgets_its_start():
    rates = 0.1 * 0.9 ** np.arange(2000)  # sums to 1
    alone = constants(steps=(1,), gaps=(0.0,), rho=0.0)
    assert distance_bound(alone, rates, 10.0)[-1] == pytest.approx(10 * np.prod(1 - 0.5 * rates))
    assert distance_bound(alone, rates, 10.0)[-1] > 5.9


def test_harmonic_rates_by_hand():
    assert harmonic_rates(0.6, 3, half_after=2) == pytest.approx([0.6, 0.4, 0.3])


def test_the_papers_rate_by_hand():
    assert paper_rate(0.5, 4) == 0.5
    assert zetas(constants(steps=(4,)), paper_rate(0.5, 4))[0] == pytest.approx(3 / (0.5 * 16))  # (𝒯−1)/(α𝒯²)


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: zetas(constants(alpha=0.01), 1.5), "learning rate η = 1.5: the bound holds for η ≤ 1"),
        (lambda: zetas(constants(), 0.0), "learning rate η = 0: must be greater than 0"),
        (lambda: zetas(constants(steps=(8,)), 0.5), "learning rate η = 0.5: gives ζ1 = -0.125"),
        (lambda: zetas(constants(), 0.9, "closing"), "learning rate η = 0.9: gives ζ1 = -1.25"),
        (lambda: paper_rate(0.1, 4), "α = 0.1: η = 1/(α𝒯) gives ζ1 ≥ 1; needs α > (𝒯−1)/𝒯² = 0.188 for 𝒯 = 4"),
        (lambda: constants(alpha=0.0), "α = 0, β = 2: needs 0 < α ≤ β"),
        (lambda: constants(alpha=3.0), "α = 3, β = 2: needs 0 < α ≤ β"),
        (lambda: constants(rho=-1.0), "ϱ = -1: must be at least 0"),
        (lambda: constants(gaps=(0.1, 0.1)), "need one entry for each device"),
        (lambda: constants(weights=(0.9,)), "sum to 1, not to 0.9"),
        (lambda: constants(steps=(0,)), "steps = 0: every device makes at least 1"),
        (lambda: constants(gaps=(-0.5,)), "gaps = -0.5"),
        (lambda: participation_factor(5, 6), "|Ω| = 6: must be from 1 to K = 5"),
        (
            lambda: constants((1, 1), (0.0, 0.0), (0.4, 0.6), participants=1),
            "unbiased only if all have the same weight",
        ),
    ],
)
def test_a_bound_that_means_nothing_is_refused_in_one_line(call, complaint):
    assert complaint in error_line(call)


# -------------------------------------------------------------------------------- against what is exactly known


def rates_for(problem: Quadratics, share: float, decreasing: bool, rounds: int = 20) -> np.ndarray:
    """As large as ζ1 ≥ 0 allows of both forms, times a share."""
    values = np.linalg.eigvalsh(problem.curvatures)
    first = share * min(1.0, 1 / (values.min() * ((problem.weights @ problem.steps + 1) / 2 + problem.steps.max())))
    return harmonic_rates(first, rounds, half_after=5) if decreasing else np.full(rounds, first)


@given(problem=problems(), share=st.floats(0.02, 0.9), decreasing=st.booleans(), far=st.floats(0, 10))
def test_no_exact_error_of_a_quadratic_exceeds_its_bounds(problem, share, decreasing, far):
    rates = rates_for(problem, share, decreasing)
    distance, loss_gap, rho = problem.run(rates, problem.optimum + far)
    known = problem.constants(rho)
    for form in FORMS:
        allowed = distance_bound(known, rates, distance[0], form)
        assert (distance <= allowed * (1 + 1e-9) + 1e-12).all()
        assert (loss_gap <= loss_bound(known, allowed) * (1 + 1e-9) + 1e-12).all()


@settings(max_examples=50)
@given(problem=problems(even=True), share=st.floats(0.02, 0.9), far=st.floats(0, 10), data=st.data())
def test_nor_where_only_some_devices_are_drawn_each_round(problem, share, far, data):
    participants = data.draw(st.integers(1, len(problem.weights)))
    rates = rates_for(problem, share, decreasing=False)
    distance, _, rho = problem.run(rates, problem.optimum + far, participants)
    for form in FORMS:
        allowed = distance_bound(problem.constants(rho, participants), rates, distance[0], form)
        assert (distance <= allowed * (1 + 1e-9) + 1e-12).all()


@settings(max_examples=50)
@given(problem=problems(), share=st.floats(0.02, 0.9), far=st.floats(0, 10), data=st.data())
def test_a_greedy_device_takes_the_model_no_further_than_its_own_optimum_explains(problem, share, far, data):
    k = data.draw(st.integers(0, len(problem.weights) - 1))
    alone = Quadratics(problem.curvatures[[k]], problem.centres[[k]], np.ones(1), problem.steps[[k]], problem.noise)
    rates = rates_for(alone, share, decreasing=False)
    to_own, _, rho = alone.run(rates, problem.optimum + far)
    to_all, _, _ = alone.run(rates, problem.optimum + far, target=problem.optimum)
    shift = float(np.linalg.norm(alone.optimum - problem.optimum))
    assert shift <= largest_shift(problem.constants(rho).alpha, problem.gaps()[k]) * (1 + 1e-9) + 1e-12
    for form in FORMS:
        allowed = bound_to_other_optimum(distance_bound(alone.constants(rho), rates, to_own[0], form), shift)
        assert (to_all <= allowed * (1 + 1e-9) + 1e-12).all()
