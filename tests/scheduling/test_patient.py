"""The policy that waits for a better channel as long as that is expected to pay."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.special import exp1

from fedclade import UserError
from fedclade.config import SchedulingConfig
from fedclade.scheduling.policies.patient import FADINGS, MEAN_NATS, SNR, upload_times
from fedclade.scheduling.policies.policy import ClusterView, Situation, find_policy


def faded(devices, rounds, seed, snr=None):
    """Mean SNR of each device, and the SNR in each round (rows) under Rayleigh fading."""
    rng = np.random.default_rng(seed)
    mean = 10 ** rng.uniform(-1, 4, devices) if snr is None else np.full(devices, snr)
    return mean, mean * rng.exponential(1.0, (rounds, devices))


def seen(round_, mean, snr, last_heard, per_round, window):
    """What a policy sees: one bit over one hertz."""
    devices = np.arange(len(mean))
    return Situation(
        round=round_,
        seed=1,
        subchannels=per_round,
        samples=np.ones_like(devices),
        snr=snr,
        rate_bps=np.log1p(snr),
        mean_rate_bps=np.exp(1 / mean) * exp1(1 / mean),
        compute_seconds=np.zeros(len(mean)),
        upload_seconds=np.divide(1, np.log1p(snr), out=np.full(len(mean), np.inf), where=snr > 0),
        reachable=devices >= 0,
        last_heard=last_heard,
        losses=np.full(len(mean), np.nan),
        clusters=(ClusterView(devices, True),),
        config=SchedulingConfig(per_round=per_round, window=window),
    )


def heard(policy, mean, snr, per_round, window):
    """Who takes part in each round: rounds × devices."""
    last_heard, rows = np.zeros(len(mean), dtype=np.int64), []
    for number, now in enumerate(snr):
        situation = seen(number + 1, mean, now, last_heard, per_round, window)
        rows.append(np.isin(np.arange(len(mean)), find_policy(policy).select(situation)))
        last_heard = np.where(rows[-1], number + 1, last_heard)
    return np.array(rows)


@settings(max_examples=200)
@given(st.integers(1, 25), st.integers(1, 12), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_everybody_is_heard_once_in_each_period_and_never_more_in_a_round_than_may(devices, per_round, more, seed):
    window = -(-devices // per_round) + more
    rows = heard("fair-patient", *faded(devices, 3 * window, seed), per_round, window)
    assert (rows.sum(axis=1) <= per_round).all()
    assert (rows.reshape(3, window, devices).sum(axis=1) == 1).all()


def test_the_time_that_waiting_is_expected_to_take_is_that_of_the_best_stopping_rule():
    (at,) = np.flatnonzero(np.isclose(SNR, 100.0))
    rng = np.random.default_rng(0)
    times = 1 / np.log1p(100.0 * rng.choice(FADINGS, (200_000, 3)))
    one, two, three = upload_times(3)[:, at]
    assert one == pytest.approx(times[:, 0].mean(), rel=0.01)
    # a rule is known by its two thresholds: no pair does better than those that the values are
    first, second = (np.quantile(times, np.linspace(0.05, 1, 20)) for _ in range(2))
    stopped = [
        np.where(times[:, 0] <= a, times[:, 0], np.where(times[:, 1] <= b, times[:, 1], times[:, 2])).mean()
        for a in first
        for b in second
    ]
    assert three == pytest.approx(min(stopped), rel=0.01)
    assert three < two < one


def test_the_mean_snr_is_found_from_the_average_rate():
    rng = np.random.default_rng(1)
    for snr in (1e-4, 0.5, 30.0, 1e6):
        mean = np.log1p(snr * rng.exponential(1.0, 400_000)).mean()
        assert np.exp(np.interp(mean, MEAN_NATS, np.log(SNR))) == pytest.approx(snr, rel=0.02)


def test_it_comes_close_to_a_clairvoyant_and_to_what_anybody_else_can():
    """Everybody once in 20 rounds, 100 devices, ten at a time: seconds of all uploads."""
    ours, cover, best, bound = [], [], [], []
    for seed in range(5):
        mean, snr = faded(100, 20, seed, snr=100.0)
        times = 1 / np.log1p(snr)
        rows, columns = linear_sum_assignment(np.repeat(times, 10, axis=0).T)
        best.append(np.repeat(times, 10, axis=0).T[rows, columns].sum())
        ours.append(times[heard("fair-patient", mean, snr, 10, 20)].sum())
        others = heard("fair-cover", mean, snr, 10, 20)
        cover.append(times[others].sum() / others.sum() * 100)
        bound.append(100 * upload_times(20)[-1, np.searchsorted(SNR, 99.99)])
    assert np.mean(ours) < 1.05 * np.mean(best)
    assert np.mean(ours) < 1.02 * np.mean(bound)
    assert np.mean(ours) < 0.95 * np.mean(cover)


def test_in_a_fade_a_device_waits_and_goes_when_the_period_ends():
    mean, snr = np.full(2, 100.0), np.array([200.0, 0.5])
    first = seen(1, mean, snr, np.zeros(2, dtype=np.int64), 2, 4)
    assert find_policy("fair-patient").select(first).tolist() == [0]
    last = seen(4, mean, snr, np.array([1, 0]), 2, 4)
    assert find_policy("fair-patient").select(last).tolist() == [1]
    # device 1 missed the period before, too: it does not wait any more
    missed = seen(5, mean, snr, np.array([1, 0]), 2, 4)
    assert 1 in find_policy("fair-patient").select(missed)


def test_without_fading_or_where_no_snr_is_known_devices_take_turns_evenly():
    mean = np.full(12, 50.0)
    still = replace(seen(1, mean, mean, np.zeros(12, dtype=np.int64), 6, 4), mean_rate_bps=np.log1p(mean))
    unknown = replace(still, snr=np.full(12, np.nan))
    assert [len(find_policy("fair-patient").select(each)) for each in (still, unknown)] == [3, 3]


def test_a_link_that_carries_nothing_waits_until_the_last_round():
    mean = np.array([100.0, 100.0])
    dead = seen(1, mean, np.array([100.0, 0.0]), np.zeros(2, dtype=np.int64), 2, 3)
    assert find_policy("fair-patient").select(dead).tolist() == [0]
    assert find_policy("fair-patient").select(replace(dead, round=3)).tolist() == [0, 1]


def test_a_period_too_short_for_everybody_is_refused():
    mean, snr = faded(20, 1, 0)
    with pytest.raises(UserError, match=r"scheduling.window = 1: 20 devices at 10 a round need at least 2 rounds"):
        find_policy("fair-patient").select(seen(1, mean, snr[0], np.zeros(20, dtype=np.int64), 10, 1))
