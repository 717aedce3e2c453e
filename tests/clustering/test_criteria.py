"""When a cluster goes on, stops or should split, and which cuts are accepted, at the boundaries and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.clustering import CutFacts, Norms, cut_facts, gamma_test, judge
from fedclade.clustering.criteria import estimated_gamma
from fedclade.config import NormThresholdsConfig
from fedclade.core.updates import cosine_similarity

CONFIG = NormThresholdsConfig(epsilon1=0.5, epsilon2=1.0, warmup_rounds=5)
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
    assert judge(Norms(0.1, 2.0, 10), 10, 1, NormThresholdsConfig(warmup_rounds=0)) == "split"


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
    return cut_facts(cosine_similarity(updates), side, updates, gamma)


def test_facts_of_a_cut_by_hand():
    # inside: 0.6 and 0.8; across: -1, -0.8, -0.6 and 0.6 x -0.8 + 0.8 x 0.6 = 0
    facts = facts_by_hand("off")
    found = (facts.within_min, facts.cross_max, facts.gap, facts.gamma_bound)
    assert found == pytest.approx((0.6, 0.0, 0.6, math.sqrt(0.5)), abs=1e-6)
    assert facts.gamma_max is None
    told = {"gap": facts.gap, "gamma_bound": facts.gamma_bound, "gamma_max": None, "gamma_error": None}
    assert facts.evidence() == {"sim_within_min": facts.within_min, "sim_cross_max": facts.cross_max, **told}


def test_estimated_gamma_by_hand():
    # the mean of the others is the other one, of norm 1: (0.4, 0.8) away in the first child, (0.2, 0.6) in the second
    facts = facts_by_hand("estimated")
    assert facts.gamma_max == pytest.approx(math.sqrt(0.8))
    assert facts.gamma_error == math.inf  # two devices say nothing of it
    assert not gamma_test(facts)
    assert (facts_by_hand(0.25).gamma_max, facts_by_hand(0.25).gamma_error) == (0.25, None)


def test_a_device_is_left_out_of_the_mean_that_its_gamma_is_measured_by():
    # 1, 1 and 4: the 4 is 3 away from the mean 1 of the others; the 1 is 1.5 away from 2.5
    gamma, error = estimated_gamma(np.array([[1], [1], [4]], dtype=np.float32))
    assert gamma == pytest.approx(3)
    # without the 4 it is 0, without a 1 it is 3: mean 2, and 2/3 of 4 + 1 + 1
    assert error == pytest.approx(2)


def test_gamma_of_one_device_cannot_be_estimated():
    assert estimated_gamma(np.ones((1, 3), dtype=np.float32)) == (math.inf, 0.0)
    assert not gamma_test(CutFacts(0.9, -1.0, 1.9, 1.0, math.inf, 0.0))


@given(st.integers(3, 40), st.integers(0, 999))
def test_an_estimated_gamma_and_its_error_do_not_depend_on_the_scale_of_the_updates(count, seed):
    updates = np.random.default_rng(seed).normal(1.0, 0.5, (count, 4)).astype(np.float32)
    gamma, error = estimated_gamma(updates)
    assert gamma > 0
    assert error > 0
    assert estimated_gamma(8 * updates) == pytest.approx((gamma, error), rel=1e-3)


def test_identical_updates_have_no_gamma_and_no_error():
    assert estimated_gamma(np.ones((12, 4), dtype=np.float32)) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_a_cut_is_refused_if_either_childs_gamma_may_be_above_the_bound():
    """The first child's γ is a little larger but known well; of the second's it is known next to nothing."""
    sure = np.array([[1.0, 0.5], [1.0, -0.5]] * 20, dtype=np.float32)
    unsure = -np.array([[1.0, 0.2], [1.0, -0.2]], dtype=np.float32)
    updates, side = np.concatenate([sure, unsure]), np.arange(42) >= 40
    assert estimated_gamma(unsure)[1] == math.inf
    assert not gamma_test(cut_facts(cosine_similarity(updates), side, updates, "estimated"))


@pytest.mark.parametrize(("error", "accepted"), [(None, True), (0.0, True), (0.12, True), (0.13, False), (9.0, False)])
def test_an_estimated_gamma_must_be_below_the_bound_with_95_percent_confidence(error, accepted):
    # the upper end is 0.6 + 1.645 standard errors, the bound 0.8: 0.1216 of them
    facts = CutFacts(0.9, -0.28, 1.18, 0.8, 0.6, error)
    assert gamma_test(facts) == accepted


def test_a_child_of_one_device_has_nothing_within():
    similarity = np.array([[1, -0.3], [-0.3, 1]], dtype=np.float32)
    facts = cut_facts(similarity, np.array([False, True]))
    assert facts.within_min == 1.0
    assert facts.gap == pytest.approx(1.3)


@pytest.mark.parametrize(("cross", "bound"), [(-1.0, 1.0), (-0.28, 0.8), (0.5, 0.5), (0.82, 0.3), (1.0, 0.0)])
def test_a_cut_is_accepted_only_if_gamma_is_below_the_bound(cross, bound):
    # sqrt((1 - cross) / 2): sqrt(2 / 2), sqrt(1.28 / 2) = sqrt(0.64), sqrt(0.25), sqrt(0.09), 0
    similarity = np.array([[1, cross], [cross, 1]], dtype=np.float32)
    facts = cut_facts(similarity, np.array([False, True]))
    assert facts.gamma_bound == pytest.approx(bound, abs=1e-6)
    for gamma, accepted in ((bound - 0.01, True), (bound + 0.01, False)):
        assert gamma_test(CutFacts(0.9, cross, 0.9 - cross, facts.gamma_bound, gamma)) == accepted


def test_gamma_at_the_bound_is_refused_and_an_untested_cut_accepted():
    assert not gamma_test(CutFacts(0.9, -0.28, 1.18, 0.8, 0.8))
    assert gamma_test(CutFacts(0.9, 1.0, -0.1, 0.0, None))
