"""When a cluster goes on, stops or should split, and which cuts are accepted, at the boundaries and by hand."""

import math

import numpy as np
import pytest

from fedclade.clustering import CutFacts, Norms, cosine_similarity, cut_facts, gamma_test, judge
from fedclade.config import ClusteringConfig

CONFIG = ClusteringConfig(epsilon1=0.5, epsilon2=1.0, warmup_rounds=5)
BELOW, ABOVE = 1 - 1e-9, 1 + 1e-9


@pytest.mark.parametrize(
    ("mean", "largest", "verdict"),
    [
        (0.5 * BELOW, ABOVE, "split"),  # stands still while someone pulls hard
        (0.5 * BELOW, BELOW, "stop"),  # stands still and nobody pulls
        (0.5 * BELOW, 1.0, "go-on"),  # ε2 itself is neither above nor below
        (0.5, ABOVE, "go-on"),  # ε1 itself still moves
        (0.5, BELOW, "go-on"),
        (0.6, 5.0, "go-on"),
        (0.0, 0.0, "stop"),
        (math.nan, math.nan, "go-on"),  # training that diverged proves nothing
        (math.inf, math.inf, "go-on"),
    ],
)
def test_verdict_at_the_thresholds(mean, largest, verdict):
    assert judge(Norms(mean, largest, heard=10), 10, 6, CONFIG) == verdict


@pytest.mark.parametrize(("round_", "split"), [(1, False), (5, False), (6, True)])
def test_warm_up_rounds_neither_split_nor_stop(round_, split):
    assert judge(Norms(0.1, 2.0, 10), 10, round_, CONFIG) == ("split" if split else "go-on")
    assert judge(Norms(0.1, 0.2, 10), 10, round_, CONFIG) == ("stop" if split else "go-on")


def test_without_warm_up_the_first_round_counts():
    assert judge(Norms(0.1, 2.0, 10), 10, 1, ClusteringConfig(warmup_rounds=0)) == "split"


@pytest.mark.parametrize(
    ("heard", "members", "pulling", "still"),
    [
        (3, 10, "split", "stop"),
        (2, 10, "go-on", "go-on"),  # too few of many
        (2, 2, "go-on", "stop"),  # all of two: they may stop, but two are no groups
        (1, 2, "go-on", "go-on"),
        (1, 1, "go-on", "stop"),
    ],
)
def test_fewer_than_three_heard_never_split_and_stop_only_if_they_are_all(heard, members, pulling, still):
    assert judge(Norms(0.1, 2.0, heard), members, 6, CONFIG) == pulling
    assert judge(Norms(0.1, 0.2, heard), members, 6, CONFIG) == still


def facts_by_hand(gamma):
    """Updates (1, 0) and (0.6, 0.8) against (-1, 0) and (-0.8, 0.6)."""
    updates = np.array([[1, 0], [0.6, 0.8], [-1, 0], [-0.8, 0.6]], dtype=np.float32)
    side = np.array([False, False, True, True])
    return cut_facts(cosine_similarity(updates), side, updates, ClusteringConfig(gamma=gamma))


def test_facts_of_a_cut_by_hand():
    # inside: 0.6 and 0.8; across: -1, -0.8, -0.6 and 0.6 x -0.8 + 0.8 x 0.6 = 0
    facts = facts_by_hand("off")
    found = (facts.within_min, facts.cross_max, facts.gap, facts.gamma_bound)
    assert found == pytest.approx((0.6, 0.0, 0.6, math.sqrt(0.5)), abs=1e-6)
    assert facts.gamma_max is None


def test_estimated_gamma_by_hand():
    # first child: mean (0.8, 0.4), each member (0.2, 0.4) away: sqrt(0.2) / sqrt(0.8) = 0.5
    # second child: mean (-0.9, 0.3), each member (0.1, 0.3) away: sqrt(0.1) / sqrt(0.9) = 1/3
    assert facts_by_hand("estimated").gamma_max == pytest.approx(0.5)
    assert facts_by_hand(0.25).gamma_max == 0.25


def test_a_child_of_one_device_has_nothing_within():
    similarity = np.array([[1, -0.3], [-0.3, 1]], dtype=np.float32)
    facts = cut_facts(similarity, np.array([False, True]), np.eye(2, dtype=np.float32), CONFIG)
    assert facts.within_min == 1.0
    assert facts.gap == pytest.approx(1.3)


@pytest.mark.parametrize(("cross", "bound"), [(-1.0, 1.0), (-0.28, 0.8), (0.5, 0.5), (0.82, 0.3), (1.0, 0.0)])
def test_a_cut_is_accepted_only_if_gamma_is_below_the_bound(cross, bound):
    # sqrt((1 - cross) / 2): sqrt(2 / 2), sqrt(1.28 / 2) = sqrt(0.64), sqrt(0.25), sqrt(0.09), 0
    similarity = np.array([[1, cross], [cross, 1]], dtype=np.float32)
    facts = cut_facts(similarity, np.array([False, True]), np.eye(2, dtype=np.float32), CONFIG)
    assert facts.gamma_bound == pytest.approx(bound, abs=1e-6)
    for gamma, accepted in ((bound - 0.01, True), (bound + 0.01, False)):
        assert gamma_test(CutFacts(0.9, cross, 0.9 - cross, facts.gamma_bound, gamma)) == accepted


def test_gamma_at_the_bound_is_refused_and_an_untested_cut_accepted():
    assert not gamma_test(CutFacts(0.9, -0.28, 1.18, 0.8, 0.8))
    assert gamma_test(CutFacts(0.9, 1.0, -0.1, 0.0, None))
