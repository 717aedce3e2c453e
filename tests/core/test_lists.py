import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.core.lists import Lists

some_lists = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=8)


@given(some_lists)
def test_lists_side_by_side_are_the_same_lists(parts):
    lists = Lists.of([np.array(part, dtype=np.int64) for part in parts])
    assert [each.tolist() for each in lists] == parts
    assert lists.lengths.tolist() == [len(part) for part in parts]
    assert [each.tolist() for each in lists[1:3]] == parts[1:3]
    if parts:
        assert lists[-1].tolist() == parts[-1]


@given(some_lists, st.integers(1, 3))
def test_parts_one_after_the_other_are_all_of_them(parts, count):
    lists = Lists.of([np.array(part, dtype=np.int64) for part in parts * count])
    assert [[each.tolist() for each in part] for part in lists.in_parts(count)] == [parts] * count


def test_reading_a_list_copies_nothing():
    lists = Lists.of([np.arange(3), np.arange(4)])
    assert np.shares_memory(lists[1], lists.flat)
    with pytest.raises(IndexError):
        lists[2]
