"""Strongly convex quadratics on which everything the bounds speak of is known exactly, expectations included.

F_k(w) = ½ (w − c_k)ᵀ A_k (w − c_k), and a stochastic gradient is the gradient plus noise of mean 0 and covariance s²I.
Such a round is an affine map with added noise, so mean and covariance of W(r) follow exactly: nothing is sampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fedclade.theory import Constants


@dataclass(frozen=True)
class Quadratics:
    curvatures: np.ndarray  # K × P × P
    centres: np.ndarray  # K × P
    weights: np.ndarray
    steps: np.ndarray
    noise: float  # s

    @classmethod
    def random(cls, seed: int, devices: int, size: int, *, steps: Sequence[int], noise: float, even: bool = False):
        rng = np.random.default_rng(seed)
        turns = [np.linalg.qr(rng.normal(size=(size, size)))[0] for _ in range(devices)]
        curvatures = np.array([q @ np.diag(rng.uniform(0.3, 3.0, size)) @ q.T for q in turns])
        weights = np.ones(devices) if even else rng.uniform(0.5, 2.0, devices)
        return cls(curvatures, rng.normal(size=(devices, size)), weights / weights.sum(), np.array(steps), noise)

    @property
    def optimum(self) -> np.ndarray:
        total = np.einsum("k,kij->ij", self.weights, self.curvatures)
        return np.linalg.solve(total, np.einsum("k,kij,kj->i", self.weights, self.curvatures, self.centres))

    def gaps(self) -> np.ndarray:
        """F_k(W*) − F_k*, where F_k* = 0."""
        away = self.optimum - self.centres
        return np.einsum("ki,kij,kj->k", away, self.curvatures, away) / 2

    def constants(self, rho: float, participants: int | None = None) -> Constants:
        values = np.linalg.eigvalsh(self.curvatures)
        return Constants(
            values.min(), values.max(), rho, self.weights, self.steps, self.gaps(), participants=participants
        )

    def run(self, rates: np.ndarray, start: np.ndarray, participants: int | None = None, target=None):
        """E‖W(r) − W*‖² and E[F(W(r))] − F* for r = 0 … R, and ϱ: the largest √E‖gradient‖² on the way.

        A ``target`` other than W* is measured from if given.
        """
        target = self.optimum if target is None else target
        mean, covariance = start, np.zeros((len(start),) * 2)
        moments, largest = [(mean, covariance)], 0.0
        for rate in rates:
            local = [self._local(k, rate, mean, covariance) for k in range(len(self.weights))]
            largest = max(largest, *(squared for *_, squared in local))
            mean, covariance = self._averaged(local, covariance, participants)
            moments.append((mean, covariance))
        total = np.einsum("k,kij->ij", self.weights, self.curvatures)
        distance = np.array([(m - target) @ (m - target) + np.trace(c) for m, c in moments])
        gap = [(m - target) @ total @ (m - target) + np.trace(total @ c) for m, c in moments]
        return distance, np.array(gap) / 2, float(np.sqrt(largest))

    def _local(self, k: int, rate: float, mean: np.ndarray, covariance: np.ndarray):
        """After 𝒯_k steps from W: mean, the map's linear part, the noise gathered, and the largest E‖gradient‖²."""
        curvature, one = self.curvatures[k], np.eye(len(mean))
        linear, gathered, squared = one, np.zeros_like(one), 0.0
        for _ in range(self.steps[k]):
            spread = curvature @ (linear @ covariance @ linear.T + gathered) @ curvature
            gradient = curvature @ (mean - self.centres[k])
            squared = max(squared, gradient @ gradient + np.trace(spread) + self.noise**2 * len(mean))
            once = one - rate * curvature
            mean, linear = mean - rate * gradient, once @ linear
            gathered = once @ gathered @ once + rate**2 * self.noise**2 * one
        return mean, linear, gathered, squared

    def _averaged(self, local, covariance: np.ndarray, participants: int | None):
        """Mean and covariance of the average over a random set of devices, by going through all sets."""
        devices = len(local)
        parts = []
        for chosen in combinations(range(devices), participants or devices):
            share = self.weights[list(chosen)] / self.weights[list(chosen)].sum()
            linear = sum(p * local[k][1] for p, k in zip(share, chosen, strict=True))
            noise = sum(p**2 * local[k][2] for p, k in zip(share, chosen, strict=True))
            mean = sum(p * local[k][0] for p, k in zip(share, chosen, strict=True))
            parts.append((mean, linear @ covariance @ linear.T + noise))
        mean = np.mean([m for m, _ in parts], axis=0)
        return mean, np.mean([c + np.outer(m - mean, m - mean) for m, c in parts], axis=0)
