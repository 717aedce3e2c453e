"""FedOpt: worked out by hand, in a server whose clusters split and merge, and in a whole run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import error_line, stand_in_folder_with
from fedclade.aggregation import optimised
from fedclade.clustering.method import Decisions, Merge, rearranged
from fedclade.config import AggregationConfig
from fedclade.core.state import CONVENTIONAL
from fedclade.core.tree import ROOT, Tree
from made_up import LINE, make, model_of, play, state_of
from tiny_runs import tiny

ADAPTIVE = ["adagrad", "adam", "yogi"]


def steps(optimiser: str, moves, **settings) -> list[list[float]]:
    """What a model moves by, one update after the other."""
    config, moments, found = AggregationConfig(optimiser=optimiser, **settings), None, []
    for move in moves:
        step, moments = optimised(model_of(*move), moments, config)
        found.append(step.tolist())
    return found


@pytest.mark.parametrize("optimiser", ADAPTIVE)
def test_two_updates_that_cancel_out_end_at_a_standstill(optimiser):
    """m is 4 / 2 = 2, and then 2 / 2 - 2 / 2 = 0."""
    first, then = steps(optimiser, [[4.0], [-2.0]], optimiser_rate=2.0, beta1=0.5, beta2=0.5, tau=1.0)
    v = {"adagrad": 1 + 16, "adam": 0.5 * 1 + 0.5 * 16, "yogi": 1 + 0.5 * 16}[optimiser]
    assert first == pytest.approx([2 * 2 / (v**0.5 + 1)])
    assert then == pytest.approx([0])


@pytest.mark.parametrize(
    ("optimiser", "v"),
    [  # v is τ² = 1 first; after 3 it is 1 + 9, (1 + 9) / 2 or 1 + 9/2; after 1 then 10 + 1, (5 + 1) / 2 or 5.5 - 1/2
        ("adagrad", 11.0),
        ("adam", 3.0),
        ("yogi", 5.0),
    ],
)
def test_the_second_step_is_what_the_papers_equations_say(optimiser, v):
    _, then = steps(optimiser, [[3.0], [1.0]], optimiser_rate=1.0, beta1=0.5, beta2=0.5, tau=1.0)
    m = 0.5 * (0.5 * 3) + 0.5 * 1
    assert then == pytest.approx([m / (v**0.5 + 1)])


def test_momentum_adds_up_what_went_before():
    assert steps("momentum", [[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]], beta1=0.5) == [[1, 0], [1.5, 2], [0.75, 1]]


def test_without_an_optimiser_a_model_moves_by_the_update_and_nothing_is_remembered():
    step, moments = optimised(model_of(1, 2), None, AggregationConfig())
    assert (step.tolist(), moments) == ([1, 2], None)


@given(
    optimiser=st.sampled_from(ADAPTIVE),
    moves=st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8),
    tau=st.sampled_from([1e-6, 1e-3, 1.0]),
)
def test_no_step_of_an_adaptive_optimiser_is_wild(optimiser, moves, tau):
    """No m is larger than the largest update, and no root of v smaller than what is left of it."""
    found = np.array(steps(optimiser, [[move] for move in moves], tau=tau)).ravel()
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 0.01 * max(map(abs, moves)) / tau * 1.001 + 1e-6


# -------------------------------------------------------------------------------- in clusters

MOMENTUM = ["aggregation.optimiser=momentum", "aggregation.beta1=0.5"]


def test_children_inherit_their_parents_memory_and_the_one_model_comparison_goes_on_with_the_roots():
    """Round 1, from 0: the devices pull halfway to 2, 4, -3, -3, the mean of which is 0. Split in round 2."""
    server = make(LINE, *MOMENTUM, "norm_thresholds.warmup_rounds=1", pull=lambda round_: 0.5, samples=[3, 3, 1, 1])
    first, _ = play(server, 1)
    m = 0.5 * (3 * 2 + 3 * 4 - 3 - 3) / 8  # 0.75
    assert first.models[ROOT].tolist() == pytest.approx([m, 0])
    assert first.moments[ROOT].tolist() == pytest.approx([m, 0])
    state, _ = play(server, 1, first)
    mine = 0.5 * m + 0.5 * (3 - m)  # of 2 and 4 on average, from the parent's model and memory
    assert state.moments["0.0"].tolist() == pytest.approx([mine, 0])
    assert state.models["0.0"].tolist() == pytest.approx([m + mine, 0])
    assert state.models["0.1"].tolist() == pytest.approx([m + 0.5 * m + 0.5 * (-3 - m), 0])
    whole = 0.5 * m + 0.5 * (1.5 - m)
    assert state.conventional.tolist() == pytest.approx([m + whole, 0])
    assert sorted(state.moments) == ["0.0", "0.1", CONVENTIONAL]
    later, _ = play(server, 1, state)
    again = 0.5 * whole + 0.5 * (1.5 - m - whole)
    assert later.conventional.tolist() == pytest.approx([m + whole + again, 0])


def test_a_stopped_cluster_moves_by_the_part_of_a_step_that_its_devices_count_for():
    """Four devices at 2, one of which goes on after the stop: a quarter of the step, with the whole update's memory."""
    overrides = ["scheduling.after_stop=cover", "scheduling.greedy_clusters=1", "scheduling.window=4"]
    server = make([[2.0]] * 4, *MOMENTUM, *overrides, "norm_thresholds.epsilon1=9", "norm_thresholds.epsilon2=99")
    state, (record,) = play(server, 1)
    assert record.clusters[0].verdict == "stop"
    after, (record,) = play(server, 1, state)
    heard = len(record.timeline.arrived)
    assert 0 < heard < 4
    assert after.moments[ROOT].tolist() == pytest.approx([0.5 * 2 + 0])  # the update at 2 is 0
    assert after.models[ROOT].tolist() == pytest.approx([2 + heard / 4])


def test_clusters_that_merge_average_their_memories_by_data():
    tree = Tree.planted(4).split(ROOT, [[0], [1, 2, 3]], 1, 1.0, {})
    memories = {"0.0": model_of(4, 0), "0.1": model_of(0, 8)}
    state = state_of(tree, {ROOT: [0, 0], "0.0": [1, 1], "0.1": [5, 5]}, moments=memories)
    merged = rearranged(state, Decisions(moves=(Merge("0.0", "0.1"),)))
    assert merged.moments["0.1"].tolist() == pytest.approx([1, 6])
    assert merged.models["0.1"].tolist() == pytest.approx([4, 4])


# -------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("optimiser", ["momentum", "yogi"])
def test_a_run_with_an_optimiser_learns_and_is_another_one(optimiser, tmp_path):
    one, rate = ("clustering.method=none", "incongruence.kind=none", "run.rounds=6"), "aggregation.optimiser_rate=0.2"
    found = tiny(*one, f"aggregation.optimiser={optimiser}", rate).run(tmp_path / "optimised").summary
    plain = tiny(*one).run(tmp_path / "plain").summary
    assert found["accuracy_mean"] > 0.5
    assert found["accuracy_mean"] != plain["accuracy_mean"]
    assert found["upload_bits"] == plain["upload_bits"]  # nothing more is sent


def test_what_an_optimiser_cannot_step_through_is_one_line(tmp_path, monkeypatch):
    line = error_line(tiny, "aggregation.optimiser=adam", "clustering.method=fesem")
    assert line == '--set aggregation.optimiser = "adam": fesem sets models to means of weights: no step'
    net = "nn.Sequential(nn.BatchNorm2d(shape[0]), nn.Flatten(), nn.Linear(64, classes))"
    code = f"from torch import nn\ndef net(shape, classes):\n    return {net}\n"
    stand_in_folder_with(monkeypatch, tmp_path, "normed", code)
    line = error_line(lambda: tiny("aggregation.optimiser=adam", "model.name=normed:net").trainer)
    assert line.startswith('aggregation.optimiser = "adam": is for models without buffers, and normed:net has some')
