"""L2-regularised multinomial logistic regression: the strongly convex problem on which convergence bounds hold.

F_k(W) = mean cross-entropy over device k's images + λ/2 ‖W‖². A model is a flat vector, classes × (features + 1), whose
last column is the bias, regularised like the rest.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError

HIGH_PRECISION = 1e-5  # largest certified ‖W − W*‖, relative to 1 + ‖W‖


@dataclass(frozen=True)
class LogisticProblem:
    """Some images and what is minimised over them: one device's, or a cluster's pooled, which weighs devices by D_k."""

    features: Floats  # D × (features + 1), the last column ones
    labels: Ints
    classes: int
    penalty: float  # λ

    @property
    def parameters(self) -> int:
        """How many numbers a flat model has."""
        return self.classes * int(self.features.shape[1])

    def loss(self, model: Floats) -> float:
        """F(W): the mean cross-entropy of the images plus λ/2 ‖W‖²."""
        return self.loss_and_gradient(model)[0]

    def scores(self, model: Floats) -> Floats:
        """Logarithms of the class probabilities, one row an image."""
        scores: Floats = self.features @ model.reshape(self.classes, -1).T
        scores -= scores.max(axis=1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return scores

    def loss_and_gradient(self, model: Floats) -> tuple[float, Floats]:
        """F(W) and its gradient."""
        logarithms = self.scores(model)
        rows = np.arange(len(self.labels))
        loss = -logarithms[rows, self.labels].mean() + self.penalty / 2 * (model @ model)
        residual = np.exp(logarithms)
        residual[rows, self.labels] -= 1
        gradient = (residual.T @ self.features).ravel() / len(rows) + self.penalty * model
        return float(loss), gradient

    def batch(self, positions: Ints) -> "LogisticProblem":
        """The same problem on some of the images, told by their positions."""
        return LogisticProblem(self.features[positions], self.labels[positions], self.classes, self.penalty)

    @property
    def alpha(self) -> float:
        """λ, exactly: adding one vector to all classes changes no probability, so cross-entropy alone is flat there."""
        return self.penalty

    @cached_property
    def beta(self) -> float:
        """λ + ½ λ_max(XᵀX / D): the Hessian of cross-entropy is (diag q − qqᵀ) ⊗ xxᵀ, and diag q − qqᵀ ≼ ½ I."""
        largest = np.linalg.norm(self.features, 2) ** 2 / len(self.features)
        return float(self.penalty + largest / 2)


@dataclass(frozen=True)
class Optimum:
    """A minimiser with its certificate: by strong convexity ‖model − W*‖ ≤ ‖∇F(model)‖ / α."""

    model: Floats
    loss: float
    error: float


def solve(problem: LogisticProblem, start: Floats | None = None) -> Optimum:
    """W* and F* to high precision, by L-BFGS."""
    begin = np.zeros(problem.parameters) if start is None else start
    found = minimize(
        problem.loss_and_gradient,
        begin,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "gtol": 1e-12, "ftol": 0.0},
    )
    loss, gradient = problem.loss_and_gradient(found.x)
    error = float(np.linalg.norm(gradient)) / problem.alpha
    if error > HIGH_PRECISION * (1 + float(np.linalg.norm(found.x))):
        raise UserError(f"λ = {problem.penalty:g}: too small to find W* precisely (certified only to {error:.2g})")
    return Optimum(found.x, loss, error)
