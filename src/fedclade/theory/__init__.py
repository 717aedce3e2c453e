"""The convergence analysis, computable: bounds from a problem's constants, and the constants of a logistic problem."""

from fedclade.theory.bounds import (
    Constants,
    Form,
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
from fedclade.theory.logistic import LogisticProblem, Optimum, solve

__all__ = [
    "Constants",
    "Form",
    "LogisticProblem",
    "Optimum",
    "bound_to_other_optimum",
    "distance_bound",
    "floor",
    "harmonic_rates",
    "largest_shift",
    "limit_floor",
    "loss_bound",
    "paper_rate",
    "participation_factor",
    "rounds_to",
    "solve",
    "zetas",
]
