"""Updates as they are held: every answer is that of one plain table, nothing is copied that need not be, or written."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.core.updates import SQUARED_AT_ONCE, HeldUpdates, cosine_similarity, sketch, update_norms

WIDTH, DEVICES = 5, 9
SEEDS = st.integers(0, 9999)
SUBSETS = st.lists(st.integers(0, DEVICES - 1), unique=True, max_size=DEVICES)
STEPS = st.lists(st.tuples(st.sampled_from(["heard", "among"]), SUBSETS, SEEDS), min_size=1, max_size=8)


def matrix_of(rows: int, seed: int = 0) -> np.ndarray:
    """A matrix that cannot be written to."""
    matrix = np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(np.float32)
    matrix.flags.writeable = False
    return matrix


def ids(devices) -> np.ndarray:
    return np.array(devices, dtype=np.int64)


def held_and_known(steps) -> tuple[HeldUpdates, dict[int, np.ndarray]]:
    """Updates after some rounds in which some were heard, or forgotten; and the same as a plain table."""
    held, known = HeldUpdates(WIDTH), dict[int, np.ndarray]()
    for kind, devices, seed in steps:
        if kind == "heard":
            matrix = matrix_of(len(devices), seed)
            held = held.renewed_by(HeldUpdates.of(ids(devices), matrix))
            known |= dict(zip(devices, matrix, strict=True))
        else:
            held = held.among(ids(devices))
            known = {device: row for device, row in known.items() if device in devices}
    return held, known


def table(known: dict[int, np.ndarray], devices) -> np.ndarray:
    return np.array([known[device] for device in devices], dtype=np.float32).reshape(len(devices), WIDTH)


# -------------------------------------------------------------------------------- the same as one table


@given(STEPS, st.data())
def test_every_answer_is_that_of_a_plain_table_whatever_was_heard_when(steps, data):
    held, known = held_and_known(steps)
    assert held.devices.tolist() == sorted(known)
    chosen = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True) if known else st.just([]))
    expected, devices = table(known, chosen), ids(chosen)
    np.testing.assert_array_equal(held.rows(devices), expected)
    np.testing.assert_array_equal(held.rows(devices, slice(1, 3)), expected[:, 1:3])
    assert (held.rows(devices).dtype, held.width) == (np.float32, WIDTH)
    np.testing.assert_allclose(held.norms(devices), np.linalg.norm(expected, axis=1), rtol=1e-5)
    cosines = expected @ expected.T / np.outer(*2 * [np.maximum(np.linalg.norm(expected, axis=1), 1e-30)])
    np.testing.assert_allclose(held.cosines(devices), cosines, atol=1e-5)
    rng = np.random.default_rng(len(chosen))
    group, weights = rng.integers(0, 3, len(chosen)), rng.uniform(0, 1, len(chosen))
    sums = np.zeros((3, WIDTH))
    np.add.at(sums, group, weights[:, None] * expected)
    np.testing.assert_allclose(held.sums(devices, group, weights, 3), sums, atol=1e-5)
    assert held.sums(devices, group, weights, 3).dtype == np.float32


@given(STEPS, st.integers(1, 8))
def test_sketches_are_those_of_each_row(steps, width):
    held, known = held_and_known(steps)
    signs = np.random.default_rng(width).choice(np.array([-1, 1], dtype=np.float32), WIDTH)
    small = held.sketched(signs, width)
    assert (small.width, small.devices.tolist()) == (width, sorted(known))
    expected = sketch(table(known, sorted(known)), signs, width)
    np.testing.assert_array_equal(small.rows(small.devices), expected)


@given(STEPS, SUBSETS)
def test_what_is_not_held_is_not_made_up(steps, devices):
    held, known = held_and_known(steps)
    strangers = [device for device in devices if device not in known]
    if strangers:
        with pytest.raises(KeyError, match=f"{strangers[0]}"):
            held.rows(ids(devices))
    assert held.among(ids(devices)).devices.tolist() == sorted(set(devices) & set(known))


def test_nothing_is_held_at_first():
    nothing, nobody = HeldUpdates(WIDTH), ids([])
    assert (nothing.devices.tolist(), nothing.devices.dtype) == ([], np.int64)
    assert nothing.rows(nobody).shape == (0, WIDTH)
    assert nothing.cosines(nobody).shape == (0, 0)
    assert nothing.norms(nobody).shape == (0,)
    assert not nothing.sums(nobody, nobody, np.zeros(0), 2).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_norm_of_an_update_that_is_not_finite_is_not_finite(bad):
    matrix = np.ones((3, WIDTH), dtype=np.float32)
    matrix[1, 2] = bad
    norms = HeldUpdates.of(ids([4, 5, 6]), matrix).norms(ids([4, 5, 6]))
    assert np.isfinite(norms).tolist() == [True, False, True]


def test_norms_do_not_overflow_where_squares_would():
    assert update_norms(np.full((1, 4), 1e30, dtype=np.float32)) == pytest.approx([2e30])


@pytest.mark.parametrize("size", [1e-35, 1e-20, 1e-3, 1.0, 1e10, 1e18, 1e35])
@pytest.mark.parametrize("parameters", [1, SQUARED_AT_ONCE, 3 * SQUARED_AT_ONCE + 5])
def test_norms_are_those_of_double_precision_whatever_their_size(size, parameters):
    rows = np.random.default_rng(3).standard_normal((4, parameters)) * np.array([[size], [1.0], [size], [0.0]])
    singles = rows.astype(np.float32)
    assert update_norms(singles) == pytest.approx(np.linalg.norm(singles.astype(np.float64), axis=1), rel=1e-6)


# -------------------------------------------------------------------------------- copies


def test_a_whole_matrix_is_not_copied():
    matrix, devices = matrix_of(4), ids([2, 3, 5, 7])
    held = HeldUpdates.of(devices, matrix)
    assert held.rows(devices) is matrix
    remembered = HeldUpdates.of(ids([0, 1]), matrix_of(2)).renewed_by(held)
    assert np.shares_memory(remembered.rows(devices), matrix)
    assert np.shares_memory(held.among(np.arange(9)).rows(devices), matrix)


def test_in_another_order_the_rows_are_a_copy_that_may_be_changed():
    matrix, held = matrix_of(3), HeldUpdates.of(ids([2, 3, 5]), matrix_of(3))
    rows = held.rows(ids([5, 2, 3]))
    np.testing.assert_array_equal(rows, matrix[[2, 0, 1]])
    rows[:] = 0  # a matrix of its own


@given(STEPS)
def test_nothing_that_arrived_is_ever_written_to_and_a_change_leaves_the_old_value_as_it_was(steps):
    """The matrices are not writable, so writing would fail; and what was held before is still the same."""
    held, known = held_and_known(steps)
    devices = held.devices
    held.renewed_by(HeldUpdates.of(ids([0, 8]), matrix_of(2, 77)))
    held.among(devices[::2])
    held.sketched(np.ones(WIDTH, dtype=np.float32), 2)
    held.cosines(devices)
    np.testing.assert_array_equal(held.rows(devices), table(known, devices.tolist()))


def test_a_matrix_is_let_go_when_all_its_devices_were_heard_again():
    old = matrix_of(4)
    gone = weakref.ref(old)
    held = HeldUpdates.of(np.arange(4), old)
    del old
    held = held.renewed_by(HeldUpdates.of(ids([0]), matrix_of(1, 1)))
    gc.collect()
    assert gone() is not None  # three of four are still needed
    held = held.renewed_by(HeldUpdates.of(ids([1, 2, 3]), matrix_of(3, 2)))
    gc.collect()
    assert gone() is None
    assert held.devices.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("kept", "let_go"), [(6, False), (5, True), (1, True), (0, True)])
def test_a_matrix_of_which_half_or_less_is_needed_is_let_go_and_the_rest_copied(kept, let_go):
    old = matrix_of(10)
    expected, gone = old[:kept].copy(), weakref.ref(old)
    held = HeldUpdates.of(np.arange(10), old).among(np.arange(kept))
    del old
    gc.collect()
    assert (gone() is None) == let_go
    np.testing.assert_array_equal(held.rows(np.arange(kept)), expected)


@given(STEPS)
def test_at_most_twice_as_many_rows_are_in_memory_as_are_held(steps):
    held, known = held_and_known(steps)
    assert sum(len(part.matrix) for part in held._parts) <= 2 * len(known)


def test_cosines_of_a_table_in_memory_mapped_for_reading_only():
    np.testing.assert_allclose(np.diag(cosine_similarity(matrix_of(3))), 1.0, rtol=1e-6)
