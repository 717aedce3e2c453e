"""Hostile devices: what they upload instead of their updates, and what they answer when they are asked.

Attacks on the data itself, wrong labels and a backdoor, are in ``fedclade.data.poison``: such a device trains as others
do, on what it holds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy.special import ndtri

from fedclade.config import AttackConfig
from fedclade.core.arrays import Bools, Ints, Singles
from fedclade.core.links import Links
from fedclade.core.random import generator
from fedclade.data.poison import hostile_devices
from fedclade.fleet.answers import CutOpinion, Evaluation, Paired, Survey
from fedclade.fleet.around import AroundFleet
from fedclade.fleet.fleet import Answers, Fleet
from fedclade.fleet.questions import Examiner, Question
from fedclade.fleet.simulated.trainer import Steering, Trainer

HUGE = 100.0
INNER_PRODUCT = 3.0  # how many times the mean of all updates "inner-product" takes back
LOSS_MOST = 50.0  # what a liar says of a model that is right about everything

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Company:
    """The updates of devices that train one model in a round, and which of them are hostile: they know everything."""

    updates: Singles  # as all of them would be, if they were honest
    hostile: Bools
    noise: tuple[np.random.Generator, ...]  # of each hostile device

    @property
    def own(self) -> Singles:
        """Those of the hostile devices."""
        return np.asarray(self.updates[self.hostile])


Spoil: TypeAlias = Callable[[Company], Singles]  # what the hostile devices upload


def _not_finite(company: Company) -> Singles:
    return np.full_like(company.own, np.nan)


def _huge(company: Company) -> Singles:
    return company.own * np.float32(HUGE)


def _sign_flip(company: Company) -> Singles:
    return -company.own


def _free_rider(company: Company) -> Singles:
    """No work: the model goes back as it came."""
    return np.zeros_like(company.own)


def _sybil(company: Company) -> Singles:
    """One device under many names: the first one's update, reversed."""
    return np.repeat(-company.own[:1], len(company.own), axis=0)


def _random(company: Company) -> Singles:
    """Noise as long as the update would be."""
    own = company.own
    noise = np.stack([each.standard_normal(own.shape[1], dtype=np.float32) for each in company.noise])
    lengths = np.linalg.norm(own, axis=1) / np.linalg.norm(noise, axis=1)
    return np.asarray(noise * lengths[:, None], dtype=np.float32)


def _alie(company: Company) -> Singles:
    """A little is enough (Baruch et al., NeurIPS 2019): as far from the mean as a majority of honest devices allows.

    So many standard deviations away from it, coordinate by coordinate, that the hostile devices and those of the others
    who are further out than they are a majority.
    """
    count, hostile = len(company.updates), int(company.hostile.sum())
    supporters = count // 2 + 1 - hostile
    share = (count - hostile - supporters) / max(1, count - hostile)
    away = float(ndtri(min(max(share, 0.5), 0.999)))
    mean, deviation = company.updates.mean(axis=0), company.updates.std(axis=0)
    return np.repeat((mean - np.float32(away) * deviation)[None], hostile, axis=0)


def _inner_product(company: Company) -> Singles:
    """Inner-product manipulation (Xie et al., UAI 2020): the mean of all updates, reversed and enlarged."""
    reverse = np.float32(-INNER_PRODUCT) * company.updates.mean(axis=0)
    return np.repeat(reverse[None], int(company.hostile.sum()), axis=0)


SPOILS: Mapping[str, Spoil] = {
    "not-finite": _not_finite,
    "huge": _huge,
    "sign-flip": _sign_flip,
    "random": _random,
    "free-rider": _free_rider,
    "sybil": _sybil,
    "alie": _alie,
    "inner-product": _inner_product,
}


class HostileTrainer:
    """A Trainer that hands on what another one trains, and spoils the updates of some."""

    def __init__(self, honest: Trainer, attack: AttackConfig, devices: int, seed: int) -> None:
        self._honest, self._attack, self._seed = honest, attack, seed
        self.hostile = hostile_devices(attack, devices, seed)
        self.parameters, self.incidents = honest.parameters, honest.incidents

    @property
    def examiner(self) -> Examiner:
        """The honest trainer's: who lies when asked is a matter of ``LyingFleet``."""
        return self._honest.examiner

    def initial_model(self, variant: int = 0) -> Singles:
        """w0."""
        return self._honest.initial_model(variant)

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, as it says."""
        updates = self._honest.train(round_, models, devices, model_of, steering)
        spoil, bad = SPOILS.get(self._attack.kind), np.isin(devices, self.hostile)
        if spoil is None:
            return updates
        for model in np.unique(model_of[bad]):
            rows = np.flatnonzero(model_of == model)
            whose = rows[bad[rows]]
            noise = tuple(generator(self._seed, "attack", round_, int(device)) for device in devices[whose])
            updates[whose] = spoil(Company(updates[rows], bad[rows], noise))
        return updates

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        return self._honest.named_tensors(model)

    def close(self) -> None:
        """Let go of processes and memory."""
        self._honest.close()


class LyingFleet(AroundFleet):
    """A fleet some of whose devices answer the reverse of the truth to everything that they are asked."""

    def __init__(self, fleet: Fleet, liars: Ints) -> None:
        super().__init__(fleet)
        self._liars = liars

    def at(self, links: Links) -> Fleet:
        """As the fleet itself, with the same liars."""
        return LyingFleet(self._fleet.at(links), self._liars)

    def holding(self, kept: Singles) -> Fleet:
        """As the fleet itself, with the same liars."""
        return LyingFleet(self._fleet.holding(kept), self._liars)

    def ask(self, question: Question[Answer]) -> Answers[Answer]:
        """What is said, true or not; it costs the same."""
        answers = self._fleet.ask(question)
        return replace(answers, value=reversed_by(np.isin(question.devices, self._liars), answers.value))


def reversed_by(liars: Bools, answer: Any) -> Any:
    """An answer in which some entries say the reverse: what fits does not, and the worse of two models is the better.

    An answer of a kind that is not known here has no reverse, and stays as it is.
    """
    if isinstance(answer, Evaluation):
        fit = np.exp(answer.loss / -2)
        loss = np.minimum(-2 * np.log(np.maximum(1 - fit, 1e-30)), LOSS_MOST)
        score = np.where(liars, 1 - answer.score, answer.score)
        return replace(answer, score=score, loss=np.where(liars, loss, answer.loss))
    if isinstance(answer, Paired):
        return replace(answer, mean=np.where(liars[:, None], -answer.mean, answer.mean))
    if isinstance(answer, CutOpinion):
        return CutOpinion(reversed_by(liars, answer.preference), reversed_by(liars, answer.gain))
    if isinstance(answer, Survey):
        wrong = liars[:, None, None] & (answer.samples > 0)[:, None]
        return replace(answer, misfit=np.where(wrong, 1 - answer.misfit, answer.misfit))
    return answer
