"""How devices whose data changed were followed, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from test_registry import OUTCOME

from fedclade.metrics.following import Following, following
from fedclade.metrics.registry import summarise

GROUP = np.array([0, 0, 0, 1, 1, 1])  # after device 3 has changed from 0 to 1
BEFORE, AFTER = list("aaaabb"), list("aaabbb")


def followed(nodes, accuracy, rounds=(4, 5, 6, 7), devices=(3,), group=GROUP):
    accuracy = np.repeat(np.array(accuracy)[:, None], 6, axis=1)
    return following(5, np.array(devices), group, np.array(rounds), nodes, accuracy)


def test_a_device_that_moves_two_rounds_later():
    found = followed([BEFORE, BEFORE, BEFORE, AFTER], [0.9, 0.3, 0.5, 0.8])
    assert found.rounds.tolist() == [2.0]
    assert found.at_home.tolist() == [True]
    assert found.lost == pytest.approx([((0.9 - 0.3) + (0.9 - 0.5)) / 2])


def test_one_that_moves_at_once_loses_nothing():
    found = followed([BEFORE, AFTER, AFTER, AFTER], [0.9, 0.3, 0.5, 0.8])
    assert (found.rounds.tolist(), found.lost.tolist()) == ([0.0], [0.0])


def test_one_that_never_moves_loses_until_the_end():
    found = followed([BEFORE] * 4, [0.9, 0.3, 0.5, 0.8])
    assert np.isnan(found.rounds).tolist() == [True]
    assert found.at_home.tolist() == [False]
    assert found.lost == pytest.approx([(0.6 + 0.4 + 0.1) / 3])


def test_one_that_moves_and_moves_back_is_not_at_home_in_the_end():
    found = followed([BEFORE, AFTER, BEFORE, BEFORE], [0.9] * 4)
    assert (found.rounds.tolist(), found.at_home.tolist()) == ([0.0], [False])


def test_where_no_groups_are_known_nobody_is_said_to_be_followed_and_all_rounds_since_count():
    found = followed([list("aaaaaa")] * 4, [0.9, 0.3, 0.5, 0.8], group=np.zeros(6, dtype=np.int64))
    assert (found.known, np.isnan(found.rounds).all(), found.at_home.any()) == (False, True, False)
    assert found.lost == pytest.approx([(0.6 + 0.4 + 0.1) / 3])


def test_rounds_without_an_evaluation_are_counted_and_one_before_the_change_is_needed_for_what_was_lost():
    found = followed([BEFORE, AFTER], [0.9, 0.4], rounds=(6, 9))
    assert found.rounds.tolist() == [4.0]
    assert np.isnan(found.lost).tolist() == [True]


@pytest.mark.parametrize(
    ("nodes", "home"),
    [
        ("aaaaaa", False),  # two of five others
        ("aabbbb", True),  # two of three others
        ("aabbcc", False),  # the only other one is of the old group
        ("aaacbb", True),  # alone: the cluster is its own
        ("abbbba", False),  # one of three others
    ],
)
def test_at_home_is_where_most_of_the_others_are_of_the_same_group(nodes, home):
    assert followed([BEFORE, list(nodes)], [1, 1], rounds=(4, 5)).at_home.tolist() == [home]


def test_metrics_of_a_drift_by_hand():
    home, lost = np.array([True, False, True]), np.array([0.1, 0.4, 0.1])
    drift = Following(np.arange(3), np.array([1.0, np.nan, 4.0]), home, lost, known=True)
    told = summarise(replace(OUTCOME, drift=drift))
    names = ("drift_devices", "drift_followed", "drift_rounds", "drift_accuracy_lost")
    assert [told[name] for name in names] == pytest.approx([3, 2 / 3, 2.5, 0.2])
    never = Following(np.arange(1), np.array([np.nan]), np.array([False]), np.array([np.nan]), known=True)
    assert [summarise(replace(OUTCOME, drift=never))[name] for name in names] == [1, 0.0, None, None]
    untold = summarise(replace(OUTCOME, drift=replace(drift, rounds=np.full(3, np.nan), known=False)))
    assert [untold[name] for name in names] == [3, None, None, pytest.approx(0.2)]
    assert [summarise(OUTCOME)[name] for name in names] == [None] * 4
