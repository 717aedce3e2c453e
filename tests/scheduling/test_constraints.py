"""P1's constraints hold for plans and runs, and are seen to be broken where they are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclade.runs.problem import check_run
from fedclade.scheduling import plan_timeline
from fedclade.scheduling.constraints import check_plan, uploads_at_once
from tiny_runs import tiny


def by_name(constraints):
    return {constraint.name: constraint for constraint in constraints}


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), max_size=8))
def test_uploads_at_once_are_counted_at_every_moment(spans):
    start = np.array([a for a, _ in spans], dtype=float)
    end = start + np.array([length for _, length in spans], dtype=float)
    at = [int(((start <= now + 0.5) & (now + 0.5 < end)).sum()) for now in range(14)]
    assert uploads_at_once(start, end) == max(at)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_every_plan_keeps_p1(seed):
    rng = np.random.default_rng(seed)
    count, subchannels = int(rng.integers(0, 12)), int(rng.integers(1, 5))
    ready, upload = rng.uniform(0, 3, count), rng.uniform(0, 3, count)
    deadline = float(rng.uniform(1, 9)) if rng.random() < 0.5 else None
    plan = plan_timeline(np.arange(count), ready, upload, subchannels, order="longest-upload", deadline=deadline)
    found = by_name(check_plan(plan, subchannels, deadline, None))
    assert list(found) == ["P1.1", "P1.2", "P1.3", "P1.4", "P1.5"]
    assert all(constraint.holds for constraint in found.values())


def worked_example():
    """Two sub-channels, three devices: 0 from 1 to 3, 1 from 1 to 4, 2 from 3 to 6."""
    return plan_timeline(np.arange(3), np.ones(3), np.array([2.0, 3.0, 3.0]), 2)


@pytest.mark.parametrize(
    ("broken", "change", "limits", "margin"),
    [
        ("P1.1", {}, {"budget": 5.0}, -1.0),  # the round lasts 6 s
        ("P1.2", {}, {"deadline": 5.5}, -0.5),
        ("P1.3", {"makespan": 7.0}, {"deadline": 8.0}, -1.0),
        ("P1.4", {}, {"subchannels": 1}, -1.0),  # two at once
        ("P1.5", {"device": np.array([0, 1, 1])}, {}, -1.0),
    ],
)
def test_a_broken_constraint_is_named_with_its_margin(broken, change, limits, margin):
    plan = replace(worked_example(), **change)
    found = by_name(check_plan(plan, **{"subchannels": 2, "deadline": None, "budget": None, **limits}))
    assert {name for name, constraint in found.items() if not constraint.holds} == {broken}
    assert found[broken].margin == pytest.approx(margin)


def test_margins_of_a_plan_by_hand():
    found = by_name(check_plan(worked_example(), 2, 8.0, 10.0))
    assert {name: constraint.margin for name, constraint in found.items()} == {
        "P1.1": 4.0,  # 10 - 6
        "P1.2": 2.0,  # 8 - 6
        "P1.3": 0.0,
        "P1.4": 0.0,
        "P1.5": 0.0,
    }
    assert found["P1.2"].detail == "the last one ends 2 s before its round's deadline"
    assert "no deadline is set" in by_name(check_plan(worked_example(), 2, None, None))["P1.2"].detail


def test_a_finished_run_is_checked_with_its_models(tmp_path):
    run = tiny("run.time_budget_seconds=100.0", "run.epsilon=1000.0").run(tmp_path / "run")
    found = by_name(check_run(run))
    assert list(found) == ["P1.0", "P1.1", "P1.2", "P1.3", "P1.4", "P1.5"]
    assert all(constraint.holds for constraint in found.values())
    assert found["P1.1"].margin == pytest.approx(100.0 - run.summary["simulated_seconds"])
    # P1.0 by hand: each leaf's loss, weighted by its members' data, in the last round against its best
    weights = run.devices.set_index("device")["train_samples"]
    gaps = []
    for node in ("0.0", "0.1"):
        mine = run.evaluations[run.evaluations["node"] == node]
        losses = [np.average(part["loss"], weights=weights[part["device"]]) for _, part in mine.groupby("round")]
        gaps.append(losses[-1] - min(losses))
    assert found["P1.0"].margin == pytest.approx(1000.0 - max(gaps))


def test_a_cluster_that_ends_above_its_best_breaks_p1_0(tmp_path):
    # a learning rate at which the loss jumps about
    run = tiny("training.learning_rate=5.0", "run.rounds=6", "run.epsilon=0.0").run(tmp_path / "run")
    found = by_name(check_run(run))["P1.0"]
    assert not found.holds
    assert found.margin < 0
