import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedclade.core.random import derived_seed, generator

keys = st.tuples(st.integers(0, 2**63), st.text(max_size=8), st.integers(0, 10**6), st.integers(0, 10**6))


def draws(key: tuple[int, str, int, int]) -> list[int]:
    return generator(*key).integers(0, 2**63, 4).tolist()


@given(keys)
def test_the_same_key_gives_the_same_draws(key):
    assert draws(key) == draws(key)
    assert derived_seed(*key) == derived_seed(*key)


@given(st.lists(keys, min_size=2, max_size=2, unique=True))
def test_another_seed_purpose_or_counter_gives_other_draws(two):
    one, other = two
    assert draws(one) != draws(other)
    assert derived_seed(*one) != derived_seed(*other)


def test_a_change_in_one_part_of_the_key_is_enough():
    key = (1, "batches", 2, 3)
    others = [
        (4, "batches", 2, 3),
        (1, "dropout", 2, 3),
        (1, "batches", 4, 3),
        (1, "batches", 2, 4),
        (1, "batches", 3, 2),
    ]
    assert len({tuple(draws(k)) for k in [key, *others]}) == 6


def test_draws_do_not_depend_on_what_was_drawn_before():
    first, second = generator(1, "a", 1), generator(1, "b", 1)
    expected = first.random(3), second.random(3)
    second, first = generator(1, "b", 1), generator(1, "a", 1)
    generator(1, "c").random(100)
    swapped = second.random(3), first.random(3)
    np.testing.assert_array_equal(expected, swapped[::-1])


@given(keys)
def test_torch_accepts_every_derived_seed(key):
    seed = derived_seed(*key)
    assert 0 <= seed < 2**63
    assert torch.Generator().manual_seed(seed).initial_seed() == seed
