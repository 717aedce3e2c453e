"""Split tests: what the devices' answers say of a cut. Made-up preferences, so that what is true is known."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedclade.clustering.methods.cross_evaluation.split_test import Outlook, SplitTest, group_effect
from fedclade.config import CrossEvaluationConfig
from fedclade.fleet.answers import Paired, paired

SEEDS = st.integers(0, 9999)


def preferences(
    rng: np.random.Generator,
    shares: np.ndarray,
    side: np.ndarray,
    *,
    images: int = 30,
    effect: float = 0.0,
    classes: float = 0.0,
) -> tuple[Paired, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """By how much devices prefer the first model; ``shares`` of labels for each, and an effect of each class.

    The first child's devices prefer it by ``effect`` more than the second's. Also image by image: device, class, value.
    """
    devices, count = shares.shape
    rows = np.repeat(np.arange(devices), images)
    labels = np.concatenate([rng.choice(count, images, p=share) for share in shares])
    of_class = rng.normal(0.0, classes, count)
    values = of_class[labels] + effect * np.where(side[rows], -0.5, 0.5) + rng.normal(0.0, 1.0, len(rows))
    return paired(values, rows, labels, shares.shape), (rows, labels, values)


def skewed(rng: np.random.Generator, devices: int, classes: int = 6, alpha: float = 0.7) -> np.ndarray:
    return rng.dirichlet(np.full(classes, alpha), devices)


def sides(first: int, second: int) -> np.ndarray:
    return np.arange(first + second) >= first


def swapped(answer: Paired) -> Paired:
    """The second model against the first."""
    return replace(answer, mean=-answer.mean)


# -------------------------------------------------------------------------------- is there a group


@given(SEEDS, st.integers(2, 6), st.integers(2, 6), st.floats(-2, 2), st.floats(0, 5))
def test_the_effect_of_the_group_is_that_of_least_squares_with_one_effect_per_class(
    seed, first, second, effect, classes
):
    rng, side = np.random.default_rng(seed), sides(first, second)
    shares = skewed(rng, first + second, alpha=5.0)
    answer, (rows, labels, values) = preferences(rng, shares, side, effect=effect, classes=classes)
    held = [np.bincount(labels[side[rows] == child], minlength=6) for child in (False, True)]
    assume(2 * np.minimum(*held).sum() >= 0.35 * len(labels))
    dummies = np.eye(6)[labels][:, np.unique(labels)]
    design = np.c_[~side[rows], dummies]
    coefficients = np.linalg.lstsq(design.astype(float), values, rcond=None)[0]
    gain, p_value = group_effect(side, answer)
    assert gain == pytest.approx(coefficients[0], abs=1e-8)
    assert 0 <= p_value <= 1
    assert (gain > 0) == (p_value < 0.5)


@given(SEEDS, st.sampled_from([0.7, 5.0]), st.floats(-1, 1))
def test_neither_the_names_of_the_children_nor_the_scale_of_the_losses_changes_the_doubt(seed, alpha, effect):
    rng, side = np.random.default_rng(seed), sides(4, 3)
    answer, _ = preferences(rng, skewed(rng, 7, alpha=alpha), side, effect=effect, classes=1.0)
    gain, p_value = group_effect(side, answer)
    assert group_effect(~side, swapped(answer)) == pytest.approx((gain, p_value), rel=1e-6, abs=1e-12)
    scaled = Paired(answer.samples, 64 * answer.mean, 64**2 * answer.squares)
    assert group_effect(side, scaled) == pytest.approx((64 * gain, p_value), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 100.0])
def test_without_groups_the_p_value_is_even_whatever_the_classes_and_however_skewed_the_labels(alpha):
    """Models that differ by 5 from class to class, and images by 1: any trust in label skew would show."""
    p_values = []
    for seed in range(400):
        rng, side = np.random.default_rng(seed), sides(6, 4)
        answer, _ = preferences(rng, skewed(rng, 10, alpha=alpha), side, classes=5.0)
        p_values.append(group_effect(side, answer)[1])
    assert 0.02 < np.mean(np.array(p_values) < 0.05) < 0.09
    assert 0.43 < np.mean(np.array(p_values) < 0.5) < 0.57


def test_children_that_hold_different_labels_are_no_groups_if_their_models_differ_by_class_alone():
    """The first child holds mostly classes 0 to 2, and its model is better at these: for everyone."""
    rng, side = np.random.default_rng(3), sides(5, 5)
    mostly, hardly = np.full(3, 0.25), np.full(3, 1 / 12)
    shares = np.array([np.r_[mostly, hardly]] * 5 + [np.r_[hardly, mostly]] * 5)
    rows, labels = np.repeat(np.arange(10), 60), np.concatenate([rng.choice(6, 60, p=share) for share in shares])
    values = np.where(labels < 3, 2.0, -2.0) + rng.normal(0, 1, len(rows))
    answer = paired(values, rows, labels, shares.shape)
    assert group_effect(side, answer)[1] > 0.01
    assert answer.among(~side).regardless_of_class().test()[1] < 1e-6  # each child prefers its own all the same
    assert swapped(answer).among(side).regardless_of_class().test()[1] < 1e-6


def test_a_real_group_is_seen_through_effects_of_classes_that_are_ten_times_as_large():
    rng, side = np.random.default_rng(1), sides(6, 4)
    answer, _ = preferences(rng, skewed(rng, 10), side, effect=1.0, classes=10.0)
    gain, p_value = group_effect(side, answer)
    assert gain == pytest.approx(1.0, abs=0.4)
    assert p_value < 1e-4


@pytest.mark.parametrize(("own", "found"), [(2.0, True), (0.0, False)])
def test_where_the_children_hold_different_classes_each_must_prefer_its_own_model(own, found):
    rng, side = np.random.default_rng(2), sides(4, 4)
    shares = np.array([[0.5, 0.5, 0, 0]] * 4 + [[0, 0, 0.5, 0.5]] * 4)
    answer, _ = preferences(rng, shares, side, effect=own)
    gain, p_value = group_effect(side, answer)
    (a, p_a), (b, p_b) = answer.among(~side).test(), swapped(answer).among(side).test()
    assert (gain, p_value) == pytest.approx((a + b, max(p_a, p_b)))
    assert (p_value < 1e-6) == found


def test_a_child_without_held_out_images_proves_nothing():
    side, samples = sides(2, 2), np.array([[3, 3], [3, 3], [0, 0], [0, 0]])
    answer = Paired(samples, np.where(samples > 0, 1.0, 0.0), np.where(samples > 0, 1.1, 0.0))
    assert group_effect(side, answer)[1] == 1.0
    nothing = Paired(0 * samples, np.zeros((4, 2)), np.zeros((4, 2)))
    assert group_effect(side, nothing)[1] == 1.0


# -------------------------------------------------------------------------------- a test of a cut


def split_test(**facts: object) -> SplitTest:
    return replace(SplitTest(0.3, 1e-6, (0.2, 0.1), (0.01, 0.02)), **facts)


def at(level: float) -> CrossEvaluationConfig:
    return CrossEvaluationConfig(level=level)


def test_a_test_is_passed_if_there_are_groups_and_one_gains_beyond_doubt_and_the_other_does_not_seem_to_lose():
    assert split_test().passed(at(0.001))
    assert not split_test(p_group=0.001).passed(at(0.001))
    for one in (0.01, 0.05):
        for other, holds in ((0.05, True), (0.79, True), (0.8, False), (0.96, False)):
            assert split_test(p_parent=(one, other)).passed(at(0.001)) == (holds and one < 0.05)
            assert split_test(p_parent=(other, one)).passed(at(0.001)) == (holds and one < 0.05)


def test_one_of_many_cuts_must_be_so_much_better():
    assert split_test(p_group=3e-4, cuts=3).p_value == pytest.approx(9e-4)
    assert split_test(p_group=3e-4, cuts=3).passed(at(0.001))
    assert not split_test(p_group=3e-4, cuts=4).passed(at(0.001))
    assert split_test(p_group=0.5, cuts=4).p_value == 1.0


def test_a_test_sums_up_what_the_devices_said():
    rng, side = np.random.default_rng(4), sides(5, 3)
    shares = skewed(rng, 8, alpha=5.0)
    preference, _ = preferences(rng, shares, side, effect=1.0, classes=1.0)
    own, (rows, labels, values) = preferences(rng, shares, side)
    answer = paired(values + np.where(side[rows], 0.7, 0.0), rows, labels, shares.shape)
    found = SplitTest.of(side, preference, answer)
    assert (found.gain_group, found.p_group) == group_effect(side, preference)
    assert found.p_parent[1] < 1e-3 < found.p_parent[0]
    assert found.gain_parent[1] == pytest.approx(0.7, abs=0.3)
    assert SplitTest.of(side, preference, own).passed(at(0.01)) is False  # nobody gains
    assert SplitTest.of(side, preference, answer, cuts=2) == replace(found, cuts=2)


def test_a_cut_pays_by_the_levels_that_the_config_sets():
    settings = at(0.001)
    assert not split_test(p_parent=(0.06, 0.06)).passed(settings)
    assert split_test(p_parent=(0.06, 0.06)).passed(settings.model_copy(update={"pays_level": 0.07}))
    assert not split_test(p_parent=(0.01, 0.6)).passed(settings.model_copy(update={"loses_level": 0.5}))


def test_a_tests_evidence_is_plain_data_with_all_that_the_devices_said():
    told = json.loads(json.dumps(split_test(cuts=3).evidence()))
    assert told == {
        "gain_group": 0.3,
        "p_group": 1e-6,
        "gain_parent": [0.2, 0.1],
        "p_parent": [0.01, 0.02],
        "cuts": 3,
    }


# -------------------------------------------------------------------------------- waiting


def test_a_cluster_waits_half_its_age_after_a_test_in_vain():
    outlook, rounds = Outlook(next_test=1), []
    while outlook.next_test <= 100:
        rounds.append(outlook.next_test)
        outlook = outlook.refused(outlook.next_test, born_round=0)
        assert outlook.tests == len(rounds)
    assert rounds == [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94]


def test_it_may_wait_for_another_share_of_its_age_but_a_round_at_least():
    assert Outlook(next_test=1).refused(42, born_round=2, share=0.125).next_test == 47
    assert Outlook(next_test=1).refused(6, born_round=0, share=0.01).next_test == 7


@given(st.integers(0, 50), st.integers(1, 2000))
def test_there_are_about_two_and_a_half_tests_for_each_e_fold_of_its_age(born, rounds):
    outlook = Outlook(next_test=born + 1)
    while outlook.next_test <= born + rounds:
        outlook = outlook.refused(outlook.next_test, born)
    assert outlook.tests <= 2.5 * np.log(rounds) + 2


def test_progress_is_a_loss_below_99_percent_of_the_best():
    first = Outlook(next_test=9).seen(4, 2.0)
    assert (first.best_loss, first.best_round) == (2.0, 4)
    assert first.seen(5, 1.99) == first.seen(5, 3.0) == first
    better = first.seen(6, 1.97)
    assert (better.best_loss, better.best_round, better.next_test) == (1.97, 6, 9)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=30))
def test_a_loss_that_creeps_down_is_progress_in_the_end(losses):
    """Each is compared with the best that counted, so no progress however slow is lost for ever."""
    outlook = Outlook(next_test=1)
    for round_, loss in enumerate(losses, 1):
        outlook = outlook.seen(round_, loss)
        assert outlook.best_loss is not None
        assert min(losses[:round_]) <= outlook.best_loss <= min(losses[:round_]) / 0.99


def test_an_outlook_reads_back_from_json_as_it_was():
    outlook = Outlook(7, 2, 0.5, 6)
    assert Outlook(**json.loads(json.dumps(asdict(outlook)))) == outlook
