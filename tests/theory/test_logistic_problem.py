"""The logistic problem's constants and optimum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from data_builders import error_line
from fedclade.theory import LogisticProblem, solve


def random_problem(seed: int, count: int = 12, size: int = 3, classes: int = 4, penalty: float = 0.1):
    rng = np.random.default_rng(seed)
    features = np.c_[rng.normal(size=(count, size)), np.ones(count)]
    return LogisticProblem(features, rng.integers(0, classes, count), classes, penalty)


seeds = st.integers(0, 2**32)


def test_loss_and_gradient_by_hand():
    # one image with feature 2 and bias 1 of class 0 among two; at W = 0 both have probability ½
    problem = LogisticProblem(np.array([[2.0, 1.0]]), np.array([0]), 2, 0.5)
    loss, gradient = problem.loss_and_gradient(np.zeros(4))
    assert loss == pytest.approx(np.log(2))
    assert gradient == pytest.approx([-1.0, -0.5, 1.0, 0.5])
    loss, gradient = problem.loss_and_gradient(np.array([0.0, 1.0, 0.0, 1.0]))  # equal biases: only λ is felt
    assert loss == pytest.approx(np.log(2) + 0.5)
    assert gradient == pytest.approx([-1.0, 0.0, 1.0, 1.0])
    assert (problem.alpha, problem.beta) == pytest.approx((0.5, 0.5 + 5 / 2))


@given(seeds)
def test_the_gradient_is_that_of_the_loss(seed):
    problem = random_problem(seed)
    point = np.random.default_rng(seed).normal(size=problem.parameters)
    assert problem.loss_and_gradient(point)[1] == pytest.approx(approx_fprime(point, problem.loss), abs=1e-5)


def hessian(problem: LogisticProblem, point: np.ndarray) -> np.ndarray:
    """By differences of the gradient."""
    return approx_fprime(point, lambda w: problem.loss_and_gradient(w)[1])


@given(seeds, st.floats(0, 5))
def test_every_curvature_lies_between_alpha_and_beta(seed, scale):
    problem = random_problem(seed)
    point = scale * np.random.default_rng(seed).normal(size=problem.parameters)
    values = np.linalg.eigvalsh(hessian(problem, point))
    assert values[0] == pytest.approx(problem.alpha, abs=1e-5)  # along equal shifts of all classes, everywhere
    assert values[-1] <= problem.beta + 1e-5


def test_beta_is_reached_by_two_classes_at_the_start():
    problem = LogisticProblem(np.array([[2.0, 1.0]]), np.array([0]), 2, 0.5)
    assert np.linalg.eigvalsh(hessian(problem, np.zeros(4)))[-1] == pytest.approx(problem.beta, abs=1e-5)


@given(seeds, st.sampled_from([0.01, 0.1, 1.0]))
def test_the_optimum_is_certified_and_found_from_anywhere(seed, penalty):
    problem = random_problem(seed, penalty=penalty)
    optimum = solve(problem)
    assert optimum.error < 1e-5
    other = solve(problem, np.random.default_rng(seed).normal(size=problem.parameters))
    assert np.linalg.norm(optimum.model - other.model) <= optimum.error + other.error
    assert problem.loss(optimum.model + 1e-3) > optimum.loss


def test_a_pooled_problem_is_the_devices_mean_weighted_by_their_data():
    one, two = random_problem(1, count=5), random_problem(2, count=15)
    pooled = LogisticProblem(
        np.concatenate([one.features, two.features]), np.concatenate([one.labels, two.labels]), 4, 0.1
    )
    point = np.random.default_rng(3).normal(size=one.parameters)
    assert pooled.loss(point) == pytest.approx(0.25 * one.loss(point) + 0.75 * two.loss(point))


def test_a_problem_without_enough_convexity_is_refused():
    assert "too small to find W* precisely" in error_line(solve, random_problem(1, penalty=1e-13))
