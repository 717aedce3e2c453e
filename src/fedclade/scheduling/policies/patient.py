"""Hear everybody once a period, each in a round that is not worth waiting longer for: optimal stopping.

With m rounds of a period left, a device that waits until the best moment it can hope for takes on average

    v_1 = E[T],    v_m = E[min(T, v_(m-1))]

for its upload, where T is an upload's time under Rayleigh fading. So it goes as soon as it takes no longer now than
v_(m-1) (Chow, Robbins, Siegmund: *Great Expectations*, 1971). No policy that does not know the future does better on
average as long as devices do not compete for sub-channels. E[T] leaves out fades that come once in a thousand rounds:
with them it would be infinite.
"""

from functools import lru_cache

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.edge.channel import mean_nats
from fedclade.scheduling.policies.fair import after_a_stop, hearing, window_for
from fedclade.scheduling.policies.policy import Situation, policy

SNR = np.logspace(-6, 12, 181)  # mean signal-to-noise ratios for which v is worked out; between them it is interpolated
FADINGS = -np.log1p(-(np.arange(512) + 0.5) / 512)  # as likely as one another: the power of Rayleigh fading
MEAN_NATS = mean_nats(SNR)
UNKNOWN = np.log1p(100.0)  # what is taken for an average link's nats a symbol where no SNR is known: 20 dB


@policy("fair-patient")
def fair_patient(situation: Situation) -> Ints:
    """Phase 1: everybody once in each period of ``window`` rounds, when waiting longer would not pay; then as fair."""
    ids = hearing(situation)
    period = window_for(len(ids), situation.per_round, situation.config.window)
    left = period - (situation.round - 1) % period
    begun = situation.round - (period - left)
    waiting = ids[situation.last_heard[ids] < begun]
    # with no round left nobody regrets anything
    regret = regrets(situation, upload_times(period)[left - 2])[waiting] if left > 1 else np.full(len(waiting), -np.inf)
    regret[situation.last_heard[waiting] < begun - period] = -np.inf  # whoever missed a whole period goes first
    must = max(len(waiting) - (left - 1) * situation.per_round, -(-len(waiting) // left))
    count = min(max(must, np.count_nonzero(regret <= 0)), situation.per_round)
    going = waiting[np.argsort(regret, kind="stable")[:count]]
    return np.sort(np.concatenate([going, after_a_stop(situation)]))


def regrets(situation: Situation, later: Floats) -> Floats:
    """How many seconds longer each device's upload takes now than it can hope for ``later``: a row of ``upload_times``.

    The mean SNR is what gives a link its average rate.
    """
    relative = np.maximum(situation.relative_rate, 1e-12)
    nats = np.where(np.isfinite(situation.snr), np.log1p(situation.snr), UNKNOWN * relative)
    hoped = upload_time(nats / relative, later)
    return np.asarray(np.where(nats > 0, situation.upload_seconds * (1 - nats * hoped), np.inf))


def upload_time(nats: Floats, times: Floats) -> Floats:
    """For links that carry so many nats a symbol on average: between those of a row of ``upload_times``."""
    log_snr = np.interp(nats, MEAN_NATS, np.log(SNR))
    return np.asarray(np.exp(np.interp(log_snr, np.log(SNR), np.log(times))))


@lru_cache(maxsize=8)
def upload_times(rounds: int) -> Floats:
    """v_1, v_2, … (rows) for each mean SNR of ``SNR``, in nats a symbol to the power of -1."""
    now = 1 / np.log1p(SNR[:, None] * FADINGS)
    values = [now.mean(axis=1)]
    for _ in range(1, rounds):
        values.append(np.minimum(now, values[-1][:, None]).mean(axis=1))
    return np.stack(values)
