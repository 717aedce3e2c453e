"""What a metric is: one number of a run, with its name, its title and the places where it is shown."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from fedclade.core.errors import UserError
from fedclade.core.plugins import users_code
from fedclade.metrics.outcome import Outcome

OWN = "own"  # the table and the figure of metrics that name no other
Compute = Callable[[Outcome], float | None]


@dataclass(frozen=True)
class Metric:
    """One number of a run. It stands in ``summary.json`` and on the run's page, and wherever else it says."""

    name: str  # in summary.json, run.db and CSV files
    title: str  # in tables and figures, with its unit
    meaning: str  # one sentence
    compute: Compute | None  # None: not from an Outcome; a comparison finds it, or it was read from a run
    factor: float = 1.0  # from the number to its unit
    decimals: int | None = 1  # shown; None: three digits that matter
    table: str | None = OWN  # of a comparison, see ``registry.TABLES``; None: in no comparison
    figure: str | None = OWN  # of a comparison; None: in none
    every_round: bool = False  # also computed whenever devices are evaluated: a curve in TensorBoard
    curve: str = ""  # TensorBoard's name of the curve, if not metrics/<name>
    scored: str = ""  # told only of runs whose devices are scored by this: accuracy or r2; empty: of all

    def __call__(self, outcome: Outcome) -> float | None:
        """The number; None where it does not exist, or is not a number because no device answered."""
        assert self.compute is not None, f"{self.name} is not computed from an outcome"
        with users_code(f"metric {self.name!r}"):
            value: object = self.compute(outcome)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isinf(value):
            raise UserError(f"metric {self.name!r} gave {value!r}: must be a finite number, or None where it has none")
        if math.isnan(value):
            return None
        return int(value) if isinstance(value, numbers.Integral) else float(value)

    def text(self, value: float | None, sign: Literal["", "+"] = "") -> str:
        """A value as it is read in a table; a count is shown as it is, a mean of counts with decimals."""
        if value is None:
            return "–"
        scaled = self.factor * value
        decimals = 0 if isinstance(value, int) and self.factor == 1 else self.decimals
        if decimals is None:
            decimals = 2 if scaled == 0 else max(0, 2 - math.floor(math.log10(abs(scaled))))
        return f"{scaled:{sign}.{decimals}f}"

    @property
    def tag(self) -> str:
        """TensorBoard's name of its curve."""
        return self.curve or f"metrics/{self.name}"

    def to_json(self) -> dict[str, Any]:
        """All but how it is computed: enough to show its values where its code is not there."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "compute"}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        """The inverse of ``to_json``."""
        return cls(compute=None, **facts)


def metric(
    name: str,
    title: str,
    *,
    factor: float = 1.0,
    decimals: int | None = 1,
    table: str | None = OWN,
    figure: str | None = OWN,
    every_round: bool = False,
    curve: str = "",
    scored: str = "",
) -> Callable[[Compute], Metric]:
    """Turn a function of an ``Outcome`` into a ``Metric``; its docstring's first line becomes the meaning."""

    def register(compute: Compute) -> Metric:
        meaning = (compute.__doc__ or title).strip().splitlines()[0]
        return Metric(name, title, meaning, compute, factor, decimals, table, figure, every_round, curve, scored)

    return register
