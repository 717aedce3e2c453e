"""Differential privacy of what devices answer: every answer has Gaussian noise in it before it leaves the device.

What is protected is one sample: whoever sees all answers of a device can hardly tell whether one of its samples was
another one. How many samples a device has is told when it comes, and not protected; updates are not protected either.

An answer is, for each class, a number of samples and sums over them. Before it is summed up every term is moved to lie
from -1/2 to 1/2 (from -1 to 1 for differences), so a sample adds a vector to its class whose squared length is at most
some b, the 1 that it adds to the count included. Another sample in its place changes the answer by at most the root of
max(4 (b - 1), 2 b): the first if it is of the same class, the second if it is of another one. Noise has so many times
that as its standard deviation (``privacy.noise``). All that happens afterwards, rounding and keeping to the range of an
answer, looks at no sample any more.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.fleet.answers import CutOpinion, Evaluation, Paired, Survey
from fedclade.fleet.questions import Examiner, Question, SurveyModels, WrappedExaminer

LOSS_MOST = 10.0  # a larger loss of one sample counts as this

Answer = TypeVar("Answer")
Draws = Callable[[int], np.random.Generator]  # a fresh generator for a device's next answer


class Private:
    """Finds answers and makes them private. ``answers`` counts, by device, how often noise was drawn."""

    def __init__(self, noise: float, draws: Draws) -> None:
        self._noise, self._draws = noise, draws
        self.answers: dict[int, int] = {}

    def run(self, question: Question[Answer], examiner: Examiner) -> Answer:
        """The answer with noise in it. Surveys look at all samples: which ones are chosen would tell of the others."""
        asked: Any = replace(question, images=None) if isinstance(question, SurveyModels) else question
        noisy: Answer = self._noisy(asked.run(Clipped(examiner)), question.devices)
        return noisy

    def _noisy(self, answer: Any, devices: Ints) -> Any:
        if isinstance(answer, CutOpinion):
            return CutOpinion(self._noisy(answer.preference, devices), self._noisy(answer.gain, devices))
        if isinstance(answer, Survey):
            rows = [
                self._cells(device, counts, misfit - 0.5, 1 + len(misfit) / 4)
                for device, counts, misfit in zip(devices.tolist(), answer.samples, answer.misfit, strict=True)
            ]
            samples, means = np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
            return Survey(samples, np.where(samples[:, None] > 0, (means + 0.5).clip(0.0, 1.0), 0.0))
        if isinstance(answer, Paired):
            terms = np.stack([answer.mean, answer.squares - 0.5], axis=1)
            rows = [self._cells(*row, 2.25) for row in zip(devices.tolist(), answer.samples, terms, strict=True)]
            samples, means = np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
            mean, squares = means[:, 0].clip(-1.0, 1.0), (means[:, 1] + 0.5).clip(0.0, 1.0)
            return Paired(samples, mean, np.maximum(squares, mean**2))
        if isinstance(answer, Evaluation):
            terms = np.stack([answer.score.clip(0.0, 1.0), answer.loss / LOSS_MOST], axis=1)[:, :, None] - 0.5
            rows = [
                self._cells(*row, 1.5) for row in zip(devices.tolist(), answer.samples[:, None], terms, strict=True)
            ]
            means = (np.stack([row[1][:, 0] for row in rows]) + 0.5).clip(0.0, 1.0)
            return Evaluation(means[:, 0], LOSS_MOST * means[:, 1], answer.samples)
        raise UserError(f"privacy.noise = {self._noise:g}: how to make a {type(answer).__name__} private is not known")

    def _cells(self, device: int, counts: Ints, terms: Floats, bound: float) -> tuple[Ints, Floats]:
        """Counts and means (term × class) of one device's answer, with noise; in all as many samples as it has."""
        self.answers[device] = self.answers.get(device, 0) + 1
        deviation, draws = self._noise * np.sqrt(max(4 * (bound - 1), 2 * bound)), self._draws(device)
        noisy = np.maximum(counts + deviation * draws.standard_normal(counts.shape), 0.0)
        sums = counts * terms + deviation * draws.standard_normal(terms.shape)
        samples = np.floor(noisy * min(1.0, counts.sum() / max(noisy.sum(), 1e-9))).astype(np.int64)
        return samples, np.where(samples > 0, sums / np.maximum(noisy, 1.0), 0.0)


class Clipped(WrappedExaminer):
    """An Examiner for whom no sample's loss exceeds ``LOSS_MOST``."""

    def scores(self, model: Singles, positions: Ints) -> tuple[Floats, Floats]:
        """For each image whether a model is right (1 or 0), and its loss."""
        right, losses = self._examiner.scores(model, positions)
        return right, np.minimum(losses, LOSS_MOST)

    def losses(self, models: Singles, positions: Ints) -> Floats:
        """The loss of each model (row) on each image (column)."""
        return np.minimum(self._examiner.losses(models, positions), LOSS_MOST)


def epsilon(noise: float, answers: int, delta: float) -> float:
    """ε of so many answers together, at a δ: by Rényi differential privacy of the Gaussian mechanism (Opacus)."""
    try:
        from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent
    except ImportError:
        raise UserError("to account for privacy, install Opacus: pip install 'fedclade[privacy]'") from None
    orders = [1 + step / 10 for step in range(1, 100)] + list(range(11, 512))
    spent = compute_rdp(q=1.0, noise_multiplier=noise, steps=answers, orders=orders)
    return float(get_privacy_spent(orders=orders, rdp=spent, delta=delta)[0])
