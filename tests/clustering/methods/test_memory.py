"""What cross-evaluation remembers between rounds grows with the fleet, and reads back from a checkpoint as it was."""

import io
import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedclade.clustering.method import Move
from fedclade.clustering.methods.cross_evaluation.affinity import Affinity
from fedclade.clustering.methods.cross_evaluation.memory import Known
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook
from fedclade.config import CrossEvaluationConfig
from fedclade.core.tree import Node

SEEDS = st.integers(0, 9999)


def known_of(seed: int, devices: int, *, asked: bool = True) -> Known:
    rng = np.random.default_rng(seed)
    losses = np.where(rng.random(devices) < 0.3, np.nan, rng.random(devices))
    said = None
    if asked:
        tables = rng.normal(size=(4, devices, devices)).astype(np.float32)
        said = Affinity(
            *tables, rng.integers(0, 9, (devices, 4)), rng.integers(0, 5, devices), rng.random(devices) < 0.5
        )
    outlooks = {"0.0": Outlook(7, 2, float(rng.random()), 6, 0.03), "0.1": Outlook(3)}
    return Known(
        losses, outlooks, said, one_by_one=asked, promising={"0.0": (1, 2)}, best_help=0.25, left={3: ("0.1",)}
    )


def assert_same(found: Known, expected: Known) -> None:
    np.testing.assert_array_equal(found.losses, expected.losses)
    assert found.outlooks == expected.outlooks
    assert (found.one_by_one, found.best_help) == (expected.one_by_one, expected.best_help)
    assert (found.promising, found.left) == (expected.promising, expected.left)
    assert (found.affinity is None) == (expected.affinity is None)
    for name, table in ({} if expected.affinity is None else vars(expected.affinity)).items():
        np.testing.assert_array_equal(getattr(found.affinity, name), table)
        assert getattr(found.affinity, name).dtype == table.dtype


@given(SEEDS, st.integers(1, 8), st.booleans())
def test_what_is_known_reads_back_from_plain_data_and_arrays_as_it_was(seed, devices, asked):
    known = known_of(seed, devices, asked=asked)
    facts, arrays = known.save()
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        assert_same(Known.load(json.loads(json.dumps(facts, allow_nan=False)), dict(stored)), known)


def test_a_cut_that_paid_is_remembered_until_it_is_tried_again_and_the_most_help_for_good():
    known = Known.nothing(4).helped(0.2).helped(0.1).with_promise("0", np.array([2, 3])).with_promise("0.1", None)
    assert (known.best_help, known.promising) == (0.2, {"0": (2, 3)})
    assert known.with_promise("0", None).promising == {}


def test_at_first_nothing_is_known():
    nothing = Known.nothing(3)
    assert np.isnan(nothing.losses).tolist() == [True] * 3
    assert (nothing.outlooks, nothing.affinity) == ({}, None)
    assert_same(Known.load(*nothing.save()), nothing)


@given(SEEDS, st.integers(1, 5), st.integers(0, 4), st.booleans())
def test_of_devices_that_join_nothing_is_known_yet(seed, devices, more, asked):
    known = known_of(seed, devices, asked=asked)
    grown = known.grown(more)
    np.testing.assert_array_equal(grown.losses[:devices], known.losses)
    assert np.isnan(grown.losses[devices:]).tolist() == [True] * more
    assert grown.outlooks == known.outlooks
    if asked:
        assert grown.affinity.weight.shape == (devices + more, devices + more)
        assert not grown.affinity.weight[devices:].any()


def test_a_cluster_of_which_nothing_is_known_is_tried_after_its_warm_up():
    known, settings = known_of(0, 4), CrossEvaluationConfig(warmup_rounds=3)
    assert known.outlook(Node("0.2", 5, (0,)), settings) == Outlook(next_test=9)
    assert known.outlook(Node("0.1", 5, (0,)), settings) == Outlook(3)
    later = known.with_outlook("0.2", Outlook(20))
    assert later.outlook(Node("0.2", 5, (0,)), settings) == Outlook(20)
    assert "0.2" not in known.outlooks  # as it was


def move(device: int, source: str, to: str) -> Move:
    return Move(device, to, {"from": source})


def test_who_goes_back_to_a_cluster_that_it_left_is_not_believed_and_who_goes_on_is():
    known = replace(Known.nothing(4), affinity=Affinity.unknown(4, 2))
    known = known.after_moves([move(1, "0.0", "0.1"), move(2, "0.0", "0.1"), move(3, "0.1", "0.0")])
    assert known.doubted.tolist() == []
    known = known.after_moves([move(1, "0.1", "0.0"), move(2, "0.1", "0.2")])
    assert known.doubted.tolist() == [1]
    assert known.after_moves([move(2, "0.2", "0.0")]).doubted.tolist() == [1, 2]
    assert Known.nothing(4).after_moves([move(1, "0.0", "0.1")]).left == {1: ("0.0",)}


def test_whoever_did_harm_often_enough_is_left_out_of_averages():
    settings, known = CrossEvaluationConfig(harm_surveys=3), known_of(0, 4)
    known.affinity.harm[:], known.affinity.doubted[:] = [0, 3, 2, 5], False
    assert known.without_harm(np.array([0, 1, 2]), settings).tolist() == [0, 2]
    assert known_of(0, 4, asked=False).without_harm(np.arange(4), settings).tolist() == [0, 1, 2, 3]


def test_of_those_who_are_not_believed_one_survey_in_which_few_gain_is_enough():
    settings, known = CrossEvaluationConfig(harm_surveys=3), known_of(0, 4)
    known.affinity.harm[:], known.affinity.doubted[:] = [0, 1, 1, 2], [True, True, False, False]
    assert known.without_harm(np.arange(4), settings).tolist() == [0, 2, 3]
