"""Measured latencies, and rounds as they happened."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.deployment.measured_edge import SMOOTHING, MeasuredEdge, RecordedEdge, Span, as_happened
from fedclade.scheduling import plan_timeline


def edge_of(*latencies: tuple[float, float], subchannels: int = 2, grace: float = 10.0) -> MeasuredEdge:
    edge = MeasuredEdge(subchannels, model_bits=800.0, grace_seconds=grace, cap_seconds=1000.0, slowest=10.0)
    for compute, upload in latencies:
        edge.admit(compute, upload)
    edge.present[:] = True
    return edge


def test_the_first_estimate_counts_until_something_was_measured_and_then_fades():
    edge = edge_of((1.0, 4.0))
    assert (edge.observe(1).compute_seconds, edge.observe(1).upload_seconds) == ([1.0], [4.0])
    for _ in range(20):
        edge.measured(0, 3.0, 8.0)
    assert edge.observe(2).compute_seconds == pytest.approx([3.0], abs=1e-4)
    assert edge.observe(2).rate_bps == pytest.approx([100.0], abs=1e-2)
    edge.measured(0, 5.0, 8.0)
    assert edge.observe(3).compute_seconds == pytest.approx([3.0 + SMOOTHING * 2.0], abs=1e-4)


def test_whoever_is_not_there_cannot_upload():
    edge = edge_of((1.0, 1.0), (1.0, 1.0))
    edge.present[1] = False
    links = edge.observe(1)
    assert links.away.tolist() == [False, True]
    assert links.reachable.tolist() == [True, False]
    assert links.upload_seconds.tolist() == [1.0, np.inf]
    assert links.rate_bps[1] == 0.0


def test_a_round_may_take_three_times_what_is_expected_and_some_grace():
    # two at once, then the third: 1 + 2 + 2 seconds
    assert edge_of((1.0, 2.0), (1.0, 2.0), (1.0, 2.0)).allowed_seconds(np.arange(3)) == pytest.approx(10 + 3 * 5)
    assert edge_of((1.0, 2.0)).allowed_seconds(np.arange(0)) == 10


def test_who_was_late_is_given_more_time():
    edge = edge_of((1.0, 2.0))
    edge.overdue(0, 30.0)
    assert edge.allowed_seconds(np.arange(1)) == pytest.approx(10 + 3 * 30)
    edge.overdue(0, 5.0)
    assert edge.allowed_seconds(np.arange(1)) == pytest.approx(10 + 3 * 30)


def test_who_never_answers_is_waited_for_as_the_slowest_that_is_believed_however_often():
    edge = edge_of(*[(1.0, 0.5)] * 4)
    for _ in range(9):
        edge.overdue(3, edge.allowed_seconds(np.arange(4)))
    assert edge.allowed_seconds(np.arange(4)) == pytest.approx(10 + 3 * (10 * 1.0 + 0.5))
    assert edge.observe(1).compute_seconds[3] > 10  # what is planned with is what was seen


def test_a_recorded_round_is_played_back_and_the_last_one_goes_on():
    rounds = {1: (np.array([1.0, 2.0]), np.array([3.0, np.inf])), 2: (np.array([5.0, 6.0]), np.array([7.0, 8.0]))}
    edge = RecordedEdge(rounds, 2, 80.0)
    assert edge.observe(1).away.tolist() == [False, True]
    assert edge.observe(9).upload_seconds.tolist() == [7.0, 8.0]
    assert edge.broadcast_seconds(3) == 0.0


def test_a_round_by_hand_as_it_happened():
    plan = plan_timeline(np.array([4, 7, 9]), np.ones(3), np.ones(3), 1)
    spans = {9: Span(1.0, 1.5, 3.0, 0), 4: Span(2.0, 3.0, 6.0, 0)}
    real = as_happened(plan, spans, 20.0, 1)
    assert real.device.tolist() == plan.device.tolist() == [4, 7, 9]
    assert real.missed.tolist() == [False, True, False]
    assert real.start.tolist() == [3.0, np.inf, 1.5]
    assert real.end.tolist() == [6.0, np.inf, 3.0]
    assert real.subchannel.tolist() == [0, -1, 0]
    assert real.predecessor.tolist() == [9, -1, -1]
    assert real.aggregation_set.tolist() == [1, -1, 0]
    assert real.arrived.tolist() == [9, 4]
    assert (real.makespan, real.largest_latency) == (20.0, 5.0)


@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9), st.booleans()), min_size=1, max_size=8), st.integers(1, 3)
)
def test_a_round_that_went_as_planned_is_the_plan_for_those_who_arrived(devices, subchannels):
    ready, upload = (np.array([device[i] for device in devices]) for i in (0, 1))
    plan = plan_timeline(np.arange(len(devices)), ready, upload, subchannels)
    spans = {
        int(k): Span(plan.ready[i], plan.start[i], plan.end[i], int(plan.subchannel[i]))
        for i, k in enumerate(plan.device)
        if devices[k][2]
    }
    real = as_happened(plan, spans, plan.makespan, subchannels)
    assert set(real.arrived.tolist()) == set(spans)
    assert real.lower_bound <= real.makespan
    if len(spans) == len(devices):
        for name in ("start", "end", "subchannel", "predecessor", "missed", "ready"):
            np.testing.assert_array_equal(getattr(real, name), getattr(plan, name))
