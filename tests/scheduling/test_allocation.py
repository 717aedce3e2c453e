"""How fast and how loud: lowering speed and power saves energy, never time, and nobody could save more alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedclade import scheduling
from fedclade.scheduling import ALLOCATIONS, Effort, Slots, find_rule, plan_timeline

seeds = st.integers(0, 2**32 - 1)


def allocate(kind, plan, effort, subchannels):
    return scheduling.allocate(find_rule(kind), Slots(plan, effort, subchannels))


def random_round(seed):
    """0 to 12 devices on 1 to 5 sub-channels; ties, zero lengths, dead links, deadlines and tight limits are common."""
    rng = np.random.default_rng(seed)
    count, subchannels = int(rng.integers(0, 13)), int(rng.integers(1, 6))
    whole = rng.random() < 0.5
    compute, upload = rng.integers(0, 5, (2, count)).astype(float) if whole else rng.uniform(0, 10, (2, count))
    upload[rng.random(count) < 0.1] = np.inf
    snr = np.where(np.isinf(upload), 0.0, 10 ** rng.uniform(-2, 6, count))
    stretch, squeeze = 1 + rng.exponential(2.0, (2, count)), rng.uniform(0.2, 1, (2, count))
    with np.errstate(invalid="ignore"):
        effort = Effort(
            compute,
            upload,
            compute_joules=rng.exponential(1.0, count) * (compute > 0),
            upload_joules=rng.exponential(1.0, count) * (upload > 0),
            snr=snr,
            compute_shortest=compute * squeeze[0],
            compute_longest=compute * stretch[0],
            upload_shortest=upload * squeeze[1],
            upload_longest=upload * stretch[1],
        )
    deadline = float(rng.integers(1, 20)) if rng.random() < 0.3 else None
    order = ("latency", "compute", "longest-upload")[rng.integers(3)]
    plan = plan_timeline(np.arange(count), compute, upload, subchannels, order=order, deadline=deadline)
    return plan, effort.of(plan.device), subchannels


def slot_ends(plan):
    """By going through the plan: the start of whoever reuses the sub-channel, or the end of the round."""
    starts = {int(p): plan.start[i] for i, p in enumerate(plan.predecessor) if p >= 0}
    return np.array([starts.get(int(device), plan.makespan) for device in plan.device])


@settings(max_examples=400)
@given(seeds)
def test_every_allocation_keeps_the_order_the_sub_channels_and_everybodys_limits(seed):
    plan, effort, subchannels = random_round(seed)
    for kind in ALLOCATIONS:
        found = allocate(kind, plan, effort, subchannels).timeline
        on = ~found.missed
        for name in ("device", "aggregation_set", "subchannel", "predecessor", "missed"):
            assert np.array_equal(getattr(found, name), getattr(plan, name))
        assert (found.ready[on] <= found.start[on]).all()
        for channel in range(subchannels):
            mine = np.flatnonzero(found.subchannel == channel)
            assert all(found.end[a] <= found.start[b] + 1e-9 for a, b in itertools.pairwise(mine))
        upload = found.end[on] - found.start[on]
        low = effort.upload_shortest if kind == "boost" else effort.upload_seconds
        assert (upload >= low[on] - 1e-9).all()
        assert (upload <= effort.upload_longest[on] + 1e-9).all()
        low = effort.compute_shortest if kind == "boost" else effort.compute_seconds
        assert (found.ready >= low - 1e-9)[on].all()
        assert (found.ready <= effort.compute_longest + 1e-9)[on].all()
        assert found.makespan == max(found.end[on], default=0.0)
        assert found.makespan >= found.lower_bound


@settings(max_examples=400)
@given(seeds)
def test_slack_makes_no_round_longer_and_costs_no_device_more(seed):
    plan, effort, subchannels = random_round(seed)
    fixed, slack, boost = (allocate(kind, plan, effort, subchannels) for kind in ALLOCATIONS)
    on = ~plan.missed
    assert np.array_equal(fixed.compute_joules, np.where(on, effort.compute_joules, 0))
    assert fixed.upload_joules == pytest.approx(np.where(on, effort.upload_joules, 0))
    assert fixed.timeline == plan
    assert slack.timeline.makespan <= plan.makespan
    each = slack.compute_joules + slack.upload_joules
    assert (each <= (fixed.compute_joules + fixed.upload_joules) * (1 + 1e-12)).all()
    assert boost.timeline.makespan <= plan.makespan
    later = plan.aggregation_set > 0
    assert (boost.compute_joules + boost.upload_joules)[later].sum() <= fixed.joules + 1e-9


@settings(max_examples=100)
@given(seeds)
def test_no_device_could_save_more_alone_in_its_slot(seed):
    plan, effort, subchannels = random_round(seed)
    slack = allocate("slack", plan, effort, subchannels)
    ends = slot_ends(plan)
    for i in np.flatnonzero(~plan.missed):
        one = effort.of(np.array([i]))

        def joules(start, one=one, i=i):
            computing = np.clip([start], one.compute_seconds, np.maximum(one.compute_longest, one.compute_seconds))
            uploading = np.clip([ends[i] - start], one.upload_seconds, one.upload_longest)
            return float((one.computing(computing) + one.uploading(uploading))[0])

        mine = float(slack.compute_joules[i] + slack.upload_joules[i])
        low, high = plan.start[i], ends[i] - effort.upload_seconds[i]
        others = [joules(start) for start in np.linspace(low, max(low, high), 33)]
        if high > low:
            others.append(minimize_scalar(joules, bounds=(low, high), method="bounded", options={"xatol": 1e-10}).fun)
        assert mine <= min(others) + 1e-9


def two_devices(**changes):
    """On one sub-channel: device 0 computes 1 s and sends 2 s, device 1 computes 1 s and sends 1 s, both at SNR 3."""
    each = np.ones(2)
    plain = Effort(
        compute_seconds=each,
        upload_seconds=np.array([1.0, 2.0]),
        compute_joules=8 * each,
        upload_joules=np.array([3.0, 6.0]),
        snr=3 * each,
        compute_shortest=each / 2,
        compute_longest=4 * each,
        upload_shortest=np.array([0.5, 1.0]),
        upload_longest=np.array([1.0, 2.0]),
    )
    plan = plan_timeline(np.arange(2), plain.compute_seconds, plain.upload_seconds, 1)
    return plan, replace(plain, **changes)


def test_who_waits_for_its_slot_computes_slower_by_hand():
    # fixed: 0 uploads from 1 to 2, 1 waits until 2, uploads to 4. Slack: 1 computes for 2 s at half the speed: 8 / 4 J
    plan, effort = two_devices()
    found = allocate("slack", plan, effort, 1)
    assert found.timeline.ready.tolist() == [1, 2]
    assert found.compute_joules.tolist() == [8, 2]
    assert found.upload_joules.tolist() == [3, 6]
    assert found.timeline.makespan == 4


def test_an_upload_that_may_last_twice_as_long_needs_the_power_of_the_inverted_rate_by_hand():
    # alone until a second device on its own sub-channel is done at 3: 2 s for 1 nat·s of log(1 + 3) = 2 bit: 1 bit per
    # second and hertz needs SNR 1, a third of the power for twice the time: 3 W x 1/3 x 2 s = 2 J
    plan, effort = two_devices(compute_longest=np.ones(2), upload_longest=np.array([8.0, 8.0]))
    plan = plan_timeline(np.arange(2), effort.compute_seconds, effort.upload_seconds, 2)
    found = allocate("slack", plan, effort, 2)
    assert found.upload_joules == pytest.approx([2, 6])
    assert found.timeline.end == pytest.approx([3, 3])


def test_boost_lets_the_first_set_run_at_its_limits_and_the_next_follow():
    # 0 computes 0.5 s and uploads 0.5 s, at four times the computing energy; 1 then uploads from 1 to 3
    plan, effort = two_devices()
    found = allocate("boost", plan, effort, 1)
    assert found.timeline.start.tolist() == [0.5, 1]
    assert found.timeline.makespan == 3
    # SNR 3 in 1 s is 2 bit; in half the time 4 bit: SNR 15, five times the power for half the time
    assert found.compute_joules.tolist() == [32, 8]
    assert found.upload_joules == pytest.approx([3 * 5 / 2, 6])
    assert found.timeline.ratio == pytest.approx(1.0)


def test_boost_spends_nothing_on_a_sub_channel_that_does_not_decide():
    # two sub-channels: 1 is at its limit and ends at 3 whatever 0 does
    plan, effort = two_devices(compute_shortest=np.array([0.5, 1.0]), upload_shortest=np.array([0.5, 2.0]))
    plan = plan_timeline(np.arange(2), effort.compute_seconds, effort.upload_seconds, 2)
    slack, boost = (allocate(kind, plan, effort, 2) for kind in ("slack", "boost"))
    assert boost.timeline.makespan == 3
    assert boost.joules == pytest.approx(slack.joules)
