"""Selection policies of other papers, from their equations, each for N devices a round.

What a policy wants to know of devices and the server does not see by itself, their losses, each tells with its update:
it is the loss that the device met while it trained, one number, and counts as nothing on the clock.
"""

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.random import generator
from fedclade.scheduling.policies.policy import Situation, policy
from fedclade.scheduling.timeline import plan_timeline

TIERS = 5  # of TiFL
CANDIDATES = 2  # of power-of-choice: so many times as many are looked at as are picked
EXPLORING, EXPLORING_DECAY, EXPLORING_LEAST = 0.9, 0.98, 0.2  # Oort's ε: at first, each round times this, at least
SLOWNESS = 2.0  # Oort's α: how much a device that is slower than most loses
CUTOFF = 0.95  # of Oort: devices this close to the last that would be picked may be picked in its place
STALENESS = 0.1  # of Oort's bonus for devices that were not heard for long


@policy("fedcs")
def fedcs(situation: Situation) -> Ints:
    """FedCS (Nishio, Yonetani; ICC 2019): the quickest first, as many as fit into the deadline.

    Without ``scheduling.deadline_seconds`` it is the N quickest.
    """
    quickest = np.argsort(situation.total_seconds, kind="stable")
    deadline = situation.config.deadline_seconds
    if deadline is None:
        return np.sort(quickest[: situation.per_round])
    fit = 0
    for count in range(1, situation.devices + 1):
        chosen = quickest[:count]
        ready, upload = situation.compute_seconds[chosen], situation.upload_seconds[chosen]
        placed = plan_timeline(chosen, ready, upload, situation.subchannels, order="latency", deadline=deadline)
        if placed.missed.any():
            break
        fit = count
    return np.sort(quickest[:fit])


@policy("tifl")
def tifl(situation: Situation) -> Ints:
    """TiFL (Chai et al.; HPDC 2020): devices in five tiers by their usual speed; each round N of one tier, at random.

    This is the paper's uniform choice of tiers; its adaptive one needs each tier's test accuracy, which nobody sends.
    """
    there = np.isfinite(situation.upload_seconds)
    usual = situation.compute_seconds + np.where(there, situation.upload_seconds, 0.0) * situation.relative_rate
    order = np.argsort(np.where(there, usual, np.inf), kind="stable")
    tiers = [tier for tier in np.array_split(order, TIERS) if len(tier)]
    rng = generator(situation.seed, "tifl", situation.round)
    tier = tiers[rng.integers(len(tiers))]
    return np.sort(rng.choice(tier, min(situation.per_round, len(tier)), replace=False))


@policy("power-of-choice", needs_losses=True)
def power_of_choice(situation: Situation) -> Ints:
    """Power-of-choice (Cho, Wang, Joshi; AISTATS 2022): of some drawn by their data, the N with the largest losses.

    The losses are those last told (the paper's variant rpow-d); of whom none is known, it counts as the largest.
    """
    rng = generator(situation.seed, "power-of-choice", situation.round)
    count = min(situation.devices, CANDIDATES * situation.per_round)
    drawn = rng.choice(situation.devices, count, replace=False, p=situation.samples / situation.samples.sum())
    loss = np.where(np.isnan(situation.losses), np.inf, situation.losses)[drawn]
    return np.sort(drawn[np.argsort(-loss, kind="stable")[: situation.per_round]])


@policy("oort", needs_losses=True)
def oort(situation: Situation) -> Ints:
    """Oort (Lai et al.; OSDI 2021): those that are useful and quick, and a share of those not tried yet.

    Useful is D_k times the loss, here the mean one; whoever is slower than the median loses by (T/t)^α; not heard for
    long is a bonus. The paper's pacer, which lengthens T when usefulness falls, is left out.
    """
    rng = generator(situation.seed, "oort", situation.round)
    known = np.flatnonzero(~np.isnan(situation.losses))
    new = np.flatnonzero(np.isnan(situation.losses))
    share = max(EXPLORING_LEAST, EXPLORING * EXPLORING_DECAY ** (situation.round - 1))
    explored = min(len(new), max(round(share * situation.per_round), situation.per_round - len(known)))
    quick = new[np.argsort(situation.total_seconds[new], kind="stable")[:explored]]
    return np.sort(np.concatenate([quick, _useful(situation, known, situation.per_round - explored, rng)]))


def _useful(situation: Situation, known: Ints, count: int, rng: np.random.Generator) -> Ints:
    """So many of the known devices, drawn by their usefulness among those close to the best."""
    count = min(count, len(known))
    if count == 0:
        return known[:0]
    utility = _utility(situation)[known]
    cutoff = CUTOFF * np.sort(utility)[-count]
    close = known[utility >= cutoff]
    weights = np.maximum(utility[utility >= cutoff], 1e-12)
    return rng.choice(close, count, replace=False, p=weights / weights.sum())


def _utility(situation: Situation) -> Floats:
    seconds = np.where(np.isfinite(situation.total_seconds), situation.total_seconds, 1e300)
    usual = float(np.median(seconds))
    late = np.minimum(1.0, usual / np.maximum(seconds, 1e-300))
    useful = situation.samples * np.nan_to_num(situation.losses)
    bonus = np.sqrt(STALENESS * np.log(max(1, situation.round)) / np.maximum(1, situation.last_heard))
    return np.asarray((useful / max(useful.max(initial=0.0), 1e-30) + bonus) * late**SLOWNESS)
