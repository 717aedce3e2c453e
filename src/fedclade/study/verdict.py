"""The verdict of a comparison: what won, by how much, and how sure that is."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedclade.core.task import SCORES
from fedclade.metrics import Metric
from fedclade.study.statistics import bootstrap_interval
from fedclade.study.summarise import Comparison

FEW_SEEDS = 5  # with fewer, being ahead with every seed happens by chance once in 16 times, and no interval is told
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
    interval: tuple[float, float] | None  # of the margin, at 95 %; None: there are too few seeds for one
    seeds: int  # that both have
    ahead: int  # of these, those with which the winners are better
    left_out: int  # contenders that have no value with some seed, and so are out of the running

    @property
    def sure(self) -> str:
        """How sure it is, in words."""
        if self.interval is not None:
            low, high = (self._amount(value, "+") for value in self.interval)
            told = "clear" if self.interval[0] > 0 else "too close to call"
            return f"{told}: 95 % interval {low} to {high}, {self.seeds} seeds"
        if self.seeds == 1:
            return "one seed says nothing of chance"
        if self.ahead < self.seeds:
            return f"too close to call: ahead with {self.ahead} of {self.seeds} seeds"
        return f"ahead with each of {self.seeds} seeds, which are too few to be sure"

    @property
    def headline(self) -> str:
        """Who won, and with what."""
        if not self.winners:
            return "nobody"
        return f"{' = '.join(self.winners)}: {self.metric.text(self.value)}{self._unit}"

    @property
    def why(self) -> str:
        """By how much, and how sure it is."""
        if not self.winners:
            return "nobody got there with every seed"
        others = (
            f"of the others, {self.left_out}" if self.runner_up else f"{self.left_out} other{'s' * (self.left_out > 1)}"
        )
        out = f"; {others} did not get there with every seed" if self.left_out else ""
        if self.runner_up is None:
            told = "all the same with every seed" if len(self.winners) > 1 else "" if out else "nobody to compare with"
            return (told + out).removeprefix("; ")
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
        return Verdict(question, devices, metric, (), float("nan"), None, 0.0, None, 0, 0, table.shape[1])
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
        bootstrap_interval(margin) if len(margin) >= FEW_SEEDS else None,
        len(margin),
        int((margin > 0).sum()),
        table.shape[1] - there.shape[1],
    )
