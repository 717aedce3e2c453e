"""What TensorBoard is told."""

import sys

import pytest

from fedclade import open_run
from tiny_runs import fedclade, refusal, tiny_file


@pytest.mark.slow
def test_scalars_and_events_are_those_of_the_run(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    answer = fedclade("run", tiny_file(tmp_path), "--tensorboard", "--out", tmp_path / "run", "-q")
    assert (answer.code, answer.err) == (0, "")
    told = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    rounds = open_run(tmp_path / "run").rounds
    for name, column in (
        ("accuracy/mean", "accuracy_mean"),
        ("cost/round_seconds", "seconds"),
        ("cost/uploads", "uploads"),
    ):
        scalars = told.Scalars(name)
        assert [scalar.step for scalar in scalars] == [1, 2, 3]
        assert [scalar.value for scalar in scalars] == pytest.approx(rounds[column].tolist(), rel=1e-6)
    # the wall clock is the simulated one
    assert told.Scalars("clusters")[1].wall_time == pytest.approx(rounds["start_seconds"][2])
    (event,) = told.Tensors("events/text_summary")
    assert event.step == 2
    assert b"cluster 0 splits into 0-2 | 3-5" in event.tensor_proto.string_val[0]


def test_without_tensorboard_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    line = refusal("run", tiny_file(tmp_path), "--tensorboard", "--out", tmp_path / "run", "-q")
    assert "pip install 'fedclade[tensorboard]'" in line
    assert not (tmp_path / "run").exists()
