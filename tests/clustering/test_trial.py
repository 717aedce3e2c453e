"""Trials: what the devices' answers say of a cut. Made-up preferences, so that what is true is known."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedclade.clustering import Outlook, Trial, agreement, bipartition, refined, without_labels
from fedclade.clustering.trial import group_effect
from fedclade.statistics import Paired, paired

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


# -------------------------------------------------------------------------------- a trial


def trial(**facts: object) -> Trial:
    return replace(Trial(0.3, 1e-6, (0.2, 0.1), (0.01, 0.02)), **facts)


def test_a_trial_is_passed_if_there_are_groups_and_both_gain_by_the_split():
    assert trial().passed(0.001)
    assert not trial(p_group=0.001).passed(0.001)
    assert not trial(p_parent=(0.05, 0.01)).passed(0.001)
    assert not trial(p_parent=(0.01, 0.05)).passed(0.001)


def test_the_best_of_many_cuts_must_be_so_much_better():
    assert trial(p_group=3e-4, cuts=3).p_value == pytest.approx(9e-4)
    assert trial(p_group=3e-4, cuts=3).passed(0.001)
    assert not trial(p_group=3e-4, cuts=4).passed(0.001)
    assert trial(p_group=0.5, cuts=4).p_value == 1.0


def test_a_trial_sums_up_what_the_devices_said():
    rng, side = np.random.default_rng(4), sides(5, 3)
    shares = skewed(rng, 8, alpha=5.0)
    preference, _ = preferences(rng, shares, side, effect=1.0, classes=1.0)
    own, (rows, labels, values) = preferences(rng, shares, side)
    answer = paired(values + np.where(side[rows], 0.7, 0.0), rows, labels, shares.shape)
    found = Trial.of(side, preference, answer)
    assert (found.gain_group, found.p_group) == group_effect(side, preference)
    assert found.p_parent[1] < 1e-3 < found.p_parent[0]
    assert found.gain_parent[1] == pytest.approx(0.7, abs=0.3)
    assert Trial.of(side, preference, own).passed(0.01) is False  # nobody gains


def test_a_trial_reads_back_from_json_as_it_was():
    assert Trial.from_json(json.loads(json.dumps(asdict(trial(cuts=3))))) == trial(cuts=3)


# -------------------------------------------------------------------------------- better cuts


@given(SEEDS, st.sampled_from([(10, 10), (18, 2), (2, 18), (5, 3)]), st.integers(0, 4))
def test_a_bad_cut_is_refined_to_the_groups_there_are_whatever_their_sizes_and_labels(seed, sizes, wrong):
    rng, truth = np.random.default_rng(seed), sides(*sizes)
    answer, _ = preferences(rng, skewed(rng, len(truth)), truth, images=60, effect=4.0, classes=4.0)
    start = truth.copy()
    start[rng.choice(len(truth), min(wrong, (len(truth) - 1) // 3), replace=False)] ^= True
    assume(0 < start.sum() < len(start))
    assume((~start & ~truth).sum() / (~start).sum() > (start & ~truth).sum() / start.sum())  # knows which is which
    np.testing.assert_array_equal(refined(start, answer), truth)


@given(SEEDS)
def test_a_right_cut_stays_as_it_is(seed):
    rng, truth = np.random.default_rng(seed), sides(9, 4)
    answer, _ = preferences(rng, skewed(rng, 13), truth, images=60, effect=4.0, classes=4.0)
    np.testing.assert_array_equal(refined(truth, answer), truth)


@given(SEEDS)
def test_a_cut_whose_devices_prefer_the_others_model_is_not_refined(seed):
    rng, side = np.random.default_rng(seed), sides(6, 6)
    answer, _ = preferences(rng, skewed(rng, 12), side, images=60, effect=-2.0)
    np.testing.assert_array_equal(refined(side, answer), side)


def similarity_by_labels_and_group(seed: int, of_group: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Updates are a direction per class, weighted by the device's labels, and one of the group."""
    rng, group = np.random.default_rng(seed), np.arange(24) % 2 == 1
    counts = np.array([rng.multinomial(100, share) for share in skewed(rng, 24, alpha=0.3)])
    directions = np.linalg.qr(rng.normal(size=(400, 7)))[0].T
    updates = counts / 100 @ directions[:-1] + of_group * np.where(group, 1, -1)[:, None] * directions[-1]
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    return (unit @ unit.T).astype(np.float32), counts, group


@given(SEEDS)
def test_what_labels_explain_is_taken_out_of_the_similarities(seed):
    similarity, counts, _ = similarity_by_labels_and_group(seed, of_group=0.0)
    shares = counts / 100 - (counts / 100).mean(axis=0)
    upper = np.triu_indices(len(counts), 1)
    left = without_labels(similarity, counts)
    np.testing.assert_allclose(left, left.T, atol=1e-4)
    assert left.diagonal() == pytest.approx(1.0, abs=1e-3)
    before, after = (np.corrcoef((shares @ shares.T)[upper], each[upper])[0, 1] for each in (similarity, left))
    assert before > 0.7
    assert abs(after) < 0.7 * before
    assert left[upper].std() < similarity[upper].std()


def test_a_group_hidden_by_skewed_labels_shows_when_what_labels_explain_is_taken_out():
    """All but one or two of 24 devices are with their group then: the refinement's to put right."""
    right = []
    for seed in range(10):
        similarity, counts, group = similarity_by_labels_and_group(seed, of_group=0.3)
        cuts = [bipartition(each, "average", 2) for each in (similarity, without_labels(similarity, counts))]
        right.append([max((cut == group).mean(), (cut != group).mean()) for cut in cuts])
    plain, without = np.array(right).T
    assert without.mean() > plain.mean() + 0.05
    assert without.min() > 0.9


@given(SEEDS, st.integers(2, 12))
def test_where_all_devices_have_the_same_labels_nothing_is_taken_out(seed, devices):
    updates = np.random.default_rng(seed).normal(size=(devices, 20))
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    similarity = (unit @ unit.T).astype(np.float32)
    left = without_labels(similarity, np.full((devices, 4), 7))
    np.testing.assert_allclose(left, similarity, atol=1e-5)


# -------------------------------------------------------------------------------- repetition and waiting

DEVICES = st.sets(st.integers(0, 19))


@given(DEVICES, DEVICES, DEVICES)
def test_agreement_does_not_depend_on_which_child_is_called_the_second(one, other, asked):
    found = agreement(one, other, asked)
    assert found == pytest.approx(agreement(other, one, asked)) == pytest.approx(agreement(one, asked - other, asked))
    assert found == 0.0 if not asked else found >= 0.5
    assert not asked or agreement(one, one, asked) == agreement(one, asked - one, asked) == 1.0


def test_agreement_is_among_those_asked_both_times():
    assert agreement({1, 2}, {1, 3}, {1, 2, 3, 4}) == 0.5
    assert agreement({1, 2}, {1, 2, 9}, {1, 2, 3, 4}) == 1.0
    assert agreement({1, 2, 3}, {1, 2}, set(range(10))) == 0.9
    assert agreement({1}, set(), set()) == 0.0


def test_a_cluster_waits_half_its_age_after_a_trial_in_vain():
    outlook, rounds = Outlook(next_trial=3, passed=(1,), asked=(0, 1)), []
    while outlook.next_trial <= 100:
        rounds.append(outlook.next_trial)
        outlook = outlook.refused(outlook.next_trial, born_round=0)
        assert (outlook.passed, outlook.asked, outlook.trials) == ((), (), len(rounds))
    assert rounds == [3, 4, 6, 9, 13, 19, 28, 42, 63, 94]


@given(st.integers(0, 50), st.integers(1, 2000))
def test_there_are_about_two_and_a_half_trials_for_each_e_fold_of_its_age(born, rounds):
    outlook = Outlook(next_trial=born + 3)
    while outlook.next_trial <= born + rounds:
        outlook = outlook.refused(outlook.next_trial, born)
    assert outlook.trials <= 2.5 * np.log(rounds) + 2


def test_progress_is_a_loss_below_99_percent_of_the_best():
    first = Outlook(next_trial=9).seen(4, 2.0)
    assert (first.best_loss, first.best_round) == (2.0, 4)
    assert first.seen(5, 1.99) == first.seen(5, 3.0) == first
    better = first.seen(6, 1.97)
    assert (better.best_loss, better.best_round, better.next_trial) == (1.97, 6, 9)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=30))
def test_a_loss_that_creeps_down_is_progress_in_the_end(losses):
    """Each is compared with the best that counted, so no progress however slow is lost for ever."""
    outlook = Outlook(next_trial=1)
    for round_, loss in enumerate(losses, 1):
        outlook = outlook.seen(round_, loss)
        assert outlook.best_loss is not None
        assert min(losses[:round_]) <= outlook.best_loss <= min(losses[:round_]) / 0.99


def test_an_outlook_reads_back_from_json_as_it_was():
    outlook = Outlook(7, (1, 2), (0, 1, 2, 3), 2, 0.5, 6)
    assert Outlook.from_json(json.loads(json.dumps(asdict(outlook)))) == outlook
