"""The verdict of a comparison: what won, by how much, and how sure that is."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedclade.core.task import SCORES
from fedclade.metrics import Metric
from fedclade.study.statistics import bootstrap_interval
from fedclade.study.summarise import Comparison

FEW_SEEDS = 5  # with fewer, even being ahead with every seed is weak evidence: it happens by chance once in 16 times
# What is asked, of which metric, and whether more of it is better.
QUESTIONS = (
    ("Best on average", "{score}_mean", True),
    ("Best for the worst-served device", "{score}_min", True),
    ("First at {target} on average", "seconds_to_target", False),
)


@dataclass(frozen=True)
class Verdict:
    """Who won one question with one number of devices."""

    question: str
    devices: int
    metric: Metric
    winners: tuple[str, ...]  # several where they came out the same with every seed; none: nobody has a value
    value: float  # the winners' mean over seeds
    runner_up: str | None  # the next best; None: there is nobody else
    margin: float  # by how much the winners are better, mean over the seeds that both have
    interval: tuple[float, float] | None  # of the margin, at 95 %; None: of fewer than two seeds
    seeds: int  # that both have
    left_out: int  # contenders that have no value with some seed, and so are out of the running

    @property
    def sure(self) -> str:
        """How sure it is, in words."""
        if self.interval is None:
            return "with one seed there is no telling how sure that is"
        low, high = (self._amount(value, "+") for value in self.interval)
        told = f"95 % interval {low} to {high}, {self.seeds} seeds"
        if self.interval[0] <= 0:
            return f"too close to call: {told}"
        return f"clear: {told}" if self.seeds >= FEW_SEEDS else f"likely, but of few seeds: {told}"

    @property
    def headline(self) -> str:
        """Who won, and with what."""
        if not self.winners:
            return "nobody"
        return f"{' = '.join(self.winners)}: {self.metric.text(self.value)}{self._unit}"

    @property
    def why(self) -> str:
        """By how much, and how sure it is."""
        out = f"; {self.left_out} did not come to it with every seed" if self.left_out else ""
        if not self.winners:
            return "no contender came to it with every seed"
        if self.runner_up is None:
            return ("the same with every seed" if len(self.winners) > 1 else "nobody else to compare with") + out
        more = "better" if self.metric.scored else "sooner"
        unit = (
            (SCORES[self.metric.scored].points or f" {SCORES[self.metric.scored].title}")
            if self.metric.scored
            else " s"
        )
        return f"{self._amount(self.margin)}{unit} {more} than {self.runner_up}; {self.sure}{out}"

    @property
    def _unit(self) -> str:
        return (
            (SCORES[self.metric.scored].unit or f" {SCORES[self.metric.scored].title}") if self.metric.scored else " s"
        )

    def _amount(self, value: float, sign: str = "") -> str:
        return self.metric.text(value, "+" if sign else "")


def verdicts(comparison: Comparison) -> Iterator[Verdict]:
    """One for each number of devices and each question."""
    score, wanted = comparison.score, comparison.config.compare.target_accuracy
    target = f"{100 * wanted:g} %" if score.factor == 100 else f"{score.title} {wanted:g}"
    for devices in comparison.sizes:
        frame = comparison.frame[comparison.frame["devices"] == devices]
        for question, name, higher in QUESTIONS:
            metric = comparison.metrics[name.format(score=score.name)]
            table = frame.pivot(index="seed", columns="contender", values=metric.name)
            yield _judged(question.format(target=target), devices, metric, table, higher)


def _judged(question: str, devices: int, metric: Metric, table: pd.DataFrame, higher: bool) -> Verdict:
    """``table`` has a row a seed and a column a contender; who has no value for some seed is out of the running."""
    there = table.dropna(axis="columns")
    ranked = there.mean().sort_values(ascending=not higher, kind="stable").index.tolist()
    if not ranked:
        return Verdict(question, devices, metric, (), float("nan"), None, 0.0, None, 0, table.shape[1])
    best = there[ranked[0]]
    winners = tuple(name for name in ranked if there[name].equals(best.rename(name)))
    runner_up = next((name for name in ranked if name not in winners), None)
    ahead = np.zeros(0) if runner_up is None else (best - there[runner_up]).to_numpy(np.float64)
    margin = ahead if higher else -ahead
    mean = float(margin.mean()) if len(margin) else 0.0
    return Verdict(
        question,
        devices,
        metric,
        winners,
        float(best.mean()),
        runner_up,
        mean,
        bootstrap_interval(margin),
        len(margin),
        table.shape[1] - there.shape[1],
    )
