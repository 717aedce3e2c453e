"""Affinity: what devices say of one another's models. Made-up losses, so that what is true is known."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from fedclade.clustering.methods.cross_evaluation.affinity import (
    Affinity,
    beyond_classes,
    completed_by_affinity,
    harmful,
    log_ways,
    mutual,
    strength,
)
from fedclade.clustering.methods.cross_evaluation.affinity import affinity_cut as cut_of_mutual
from fedclade.clustering.methods.cross_evaluation.belonging import Belonging
from fedclade.config import CrossEvaluationConfig
from fedclade.fleet.answers import Paired, Survey, paired

DEFAULTS = CrossEvaluationConfig()

SEEDS = st.integers(0, 9999)
EXAMPLES = settings(max_examples=40)


def label_counts(rng: np.random.Generator, devices: int, classes: int = 5, alpha: float = 1.0) -> np.ndarray:
    shares = rng.dirichlet(np.full(classes, alpha), devices)
    return np.array([rng.multinomial(60, share) for share in shares])


def survey_of(
    rng: np.random.Generator,
    group: np.ndarray,
    *,
    alpha: float = 1.0,
    kin: float = 1.0,
    noise: float = 0.2,
    of_classes: float = 2.0,
) -> Survey:
    """What devices say of one another's models: a device's own kind is better by ``kin``; labels are skewed."""
    samples = label_counts(rng, len(group), alpha=alpha)
    of_devices, of_models = (rng.normal(0, of_classes, (len(group), 5)) for _ in range(2))
    alike = (group[:, None] == group)[:, :, None]
    loss = of_devices[:, None] + of_models - kin * alike + rng.normal(0, noise, (len(group), len(group), 5))
    return Survey(samples, np.where(samples[:, None] > 0, loss, 0.0))


def others(devices: int) -> np.ndarray:
    return ~np.eye(devices, dtype=bool)


def beyond(survey: Survey) -> tuple[np.ndarray, np.ndarray]:
    """Every device about the models of all: signal and weight."""
    return beyond_classes(with_start(survey, 0.0), survey.samples, others(len(survey.samples)))


def affinity_cut(signal: np.ndarray, weight: np.ndarray, min_size: int) -> np.ndarray | None:
    return cut_of_mutual(*mutual(signal, weight, DEFAULTS.affinity_fits), min_size)


def close(found: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=2e-3 * max(1.0, float(np.abs(other).max())))


def groups_of(*sizes: int) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def same_cut(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one == other).all() or (one != other).all())


def tears_no_group(side: np.ndarray | None, group: np.ndarray) -> bool:
    """A cut in which every planted group is whole, and either child has one."""
    if side is None or side.all() or not side.any():
        return False
    return all(len(np.unique(side[group == each])) == 1 for each in np.unique(group))


# -------------------------------------------------------------------------------- beyond classes


@given(SEEDS, st.integers(2, 7))
def test_weights_are_the_geometric_mean_of_the_images_that_both_hold_of_a_class(seed, devices):
    survey = survey_of(np.random.default_rng(seed), np.zeros(devices))
    _, weight = beyond(survey)
    for device in range(devices):
        for model in range(devices):
            both = np.sqrt(survey.samples[device] * survey.samples[model]).sum()
            assert weight[device, model] == pytest.approx(0 if device == model else both)


@EXAMPLES
@given(SEEDS, st.integers(8, 12), st.sampled_from([2.0, 10.0]))
def test_neither_how_hard_a_devices_classes_are_nor_how_good_a_model_is_at_them_changes_anything(seed, devices, alpha):
    rng = np.random.default_rng(seed)
    survey = survey_of(rng, np.arange(devices) % 2, alpha=alpha, of_classes=0.0)
    of_devices, of_models = rng.normal(0, 0.5, (devices, 1, 5)), rng.normal(0, 0.5, (1, devices, 5))
    close(beyond(replace(survey, misfit=survey.misfit + of_devices)), beyond(survey))
    close(beyond(replace(survey, misfit=survey.misfit + of_models)), beyond(survey))


@given(SEEDS, st.integers(2, 8), st.sampled_from([1 / 1024, 4.0, 1024.0]))
def test_the_scale_of_the_losses_changes_nothing(seed, devices, factor):
    survey = survey_of(np.random.default_rng(seed), np.arange(devices) % 2)
    expected = beyond(survey)
    assume(np.abs(expected[0]).max() > 1e-6)
    close(beyond(replace(survey, misfit=factor * survey.misfit)), expected)


@given(SEEDS, st.integers(2, 8))
def test_what_a_device_says_of_its_own_model_does_not_count(seed, devices):
    rng = np.random.default_rng(seed)
    survey = survey_of(rng, np.arange(devices) % 2)
    loss = survey.misfit.copy()
    loss[np.arange(devices), np.arange(devices)] = rng.normal(0, 100, (devices, 5))
    for one, other in zip(beyond(replace(survey, misfit=loss)), beyond(survey), strict=True):
        np.testing.assert_array_equal(one, other)


@given(SEEDS, st.integers(2, 8))
def test_classes_that_a_model_has_not_seen_do_not_count(seed, devices):
    rng = np.random.default_rng(seed)
    survey = survey_of(rng, np.arange(devices) % 2, alpha=0.3)
    unseen = (survey.samples == 0)[None]
    strange = replace(survey, misfit=np.where(unseen, rng.normal(0, 100, survey.misfit.shape), survey.misfit))
    for one, other in zip(beyond(strange), beyond(survey), strict=True):
        np.testing.assert_array_equal(one, other)


@EXAMPLES
@given(SEEDS, st.sampled_from([(6, 6), (9, 3), (4, 4, 4)]))
def test_devices_gain_by_the_models_of_their_own_kind(seed, sizes):
    group = groups_of(*sizes)
    signal, weight = beyond(survey_of(np.random.default_rng(seed), group))
    alike = (group[:, None] == group) & others(len(group))
    kin, strange = (signal[where].sum() / weight[where].sum() for where in (alike, group[:, None] != group))
    assert kin > strange + 0.5


def test_devices_without_a_class_in_common_say_nothing_of_each_other():
    samples = np.array([[5, 0], [0, 5]])
    signal, weight = beyond(Survey(samples, np.random.default_rng(0).normal(size=(2, 2, 2))))
    assert not signal.any()
    assert not weight.any()


# -------------------------------------------------------------------------------- harm


def with_start(survey: Survey, loss: float | np.ndarray) -> Survey:
    """With the model that all started from as the last one."""
    start = np.broadcast_to(loss, (len(survey.samples), 1, survey.samples.shape[1]))
    return replace(survey, misfit=np.concatenate([survey.misfit, start], axis=1))


def effects(rng: np.random.Generator, gains: np.ndarray, noise: float = 0.02) -> Survey:
    """``gains[k, m]`` of device k by the model of m, against the one all started from."""
    samples = label_counts(rng, len(gains), alpha=5.0) + 1
    loss = 2.0 - gains[:, :, None] + rng.normal(0, noise, (*gains.shape, 5))
    return with_start(Survey(samples, loss), 2.0)


def harm(survey: Survey) -> list[int] | None:
    found = harmful(survey, survey.samples, others(len(survey.samples)))
    return None if found is None else np.flatnonzero(found).tolist()


@given(SEEDS, st.integers(5, 15), st.sampled_from([1 / 64, 1.0, 64.0]), st.data())
def test_whoever_does_harm_to_all_is_found_and_nobody_else(seed, devices, scale, data):
    rng = np.random.default_rng(seed)
    bad = data.draw(st.sets(st.integers(0, devices - 1), max_size=(devices - 1) // 3))
    gains = np.where(np.isin(np.arange(devices), list(bad)), -0.5, 0.5) + rng.normal(0, 0.05, (devices, devices))
    survey = effects(rng, gains)
    assert harm(replace(survey, misfit=scale * survey.misfit)) == sorted(bad)


@given(SEEDS)
def test_whoever_does_good_to_its_own_kind_does_no_harm(seed):
    group = groups_of(7, 3)
    gains = np.where(group[:, None] == group, 0.5, -0.5)
    assert harm(effects(np.random.default_rng(seed), gains)) == []


@given(SEEDS)
def test_what_a_device_says_of_its_own_model_does_not_clear_it_of_harm(seed):
    gains = np.full((8, 8), 0.5)
    gains[:, 3], gains[3, 3] = -0.5, 50.0
    assert harm(effects(np.random.default_rng(seed), gains)) == [3]


@given(SEEDS, st.integers(5, 12))
def test_a_device_whom_all_others_harm_does_not_hide_its_own_harm(seed, devices):
    gains = np.full((devices, devices), 0.05)
    gains[:, 3], gains[3] = -0.5, -5.0
    assert harm(effects(np.random.default_rng(seed), gains, noise=0.005)) == [3]


@given(SEEDS)
def test_nothing_is_known_of_harm_when_nobodys_training_helps_any_more(seed):
    rng, everybody = np.random.default_rng(seed), np.arange(8)
    useless = effects(rng, np.full((8, 8), -0.5))
    assert harm(useless) is None
    gains = np.full((8, 8), 0.5)
    gains[:, 3] = -0.5
    affinity = Affinity.unknown(8, 5)
    for survey in (
        effects(rng, gains),
        useless,
        *(effects(rng, gains) for _ in range(DEFAULTS.harm_surveys - 1)),
        useless,
    ):
        affinity = affinity.heard(everybody, everybody, survey)
    assert np.flatnonzero(affinity.harmful()).tolist() == [3]


@pytest.mark.parametrize(("devices", "found"), [(4, []), (5, [3])])
def test_four_others_must_have_told_of_harm(devices, found):
    gains = np.full((devices, devices), 0.5)
    gains[:, 3] = -0.5
    assert harm(effects(np.random.default_rng(0), gains)) == found


@pytest.mark.parametrize(("helps", "left_out"), [(0, [3]), (1, [3]), (2, [])])
def test_who_is_not_believed_is_left_out_of_a_small_cluster_unless_half_of_the_others_gain(helps, left_out):
    gains, everybody = np.full((4, 4), 0.5), np.arange(4)
    gains[helps:, 3] = -0.5
    affinity = Affinity.unknown(4, 5).doubting([3])
    survey = effects(np.random.default_rng(0), gains)
    assert np.flatnonzero(affinity.heard(everybody, everybody, survey).harmful()).tolist() == left_out


# -------------------------------------------------------------------------------- strength


def pairs_of(
    rng: np.random.Generator, group: np.ndarray, *, gap: float = 1.0, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Signal and weight; pairs of one group like each other by ``gap`` more."""
    devices = len(group)
    weight = rng.integers(5, 40, (devices, devices)) * others(devices)
    liking = gap * (group[:, None] == group) + rng.normal(0, noise, weight.shape) / np.sqrt(np.maximum(weight, 1))
    return weight * liking, weight.astype(np.float64)


@given(SEEDS, st.integers(4, 10))
def test_strength_does_not_depend_on_the_names_of_groups_and_devices(seed, devices):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, devices)
    signal, weight = pairs_of(rng, labels)
    expected = strength(labels, signal, weight)
    assert strength(2 - labels, signal, weight) == pytest.approx(expected)
    order = rng.permutation(devices)
    here = np.ix_(order, order)
    assert strength(labels[order], signal[here], weight[here]) == pytest.approx(expected)
    assert strength(labels, signal.T, weight.T) == pytest.approx(expected)  # whoever was asked about whom


@given(SEEDS, st.integers(4, 10))
def test_strength_grows_with_the_signal_and_the_root_of_the_images(seed, devices):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, devices)
    signal, weight = pairs_of(rng, labels)
    expected = strength(labels, signal, weight)
    assume(np.isfinite(expected))
    assert strength(labels, 3 * signal, weight) == pytest.approx(3 * expected)
    assert strength(labels, 4 * signal, 4 * weight) == pytest.approx(2 * expected)


def t_value(labels: np.ndarray, signal: np.ndarray, weight: np.ndarray) -> float:
    """Of δ, but for a factor, by least squares with one column for each effect; pairs in both directions together."""
    signal, weight = signal + signal.T, weight + weight.T
    row, column = np.nonzero(weight)
    root = np.sqrt(weight[row, column])
    one_hot = np.eye(len(labels))
    design = np.c_[labels[row] == labels[column], one_hot[row], one_hot[column]] * root[:, None]
    answer = signal[row, column] / root
    delta, effects = design[:, 0], design[:, 1:]
    delta = delta - effects @ np.linalg.lstsq(effects, delta, rcond=None)[0]
    return float(delta @ answer / np.sqrt(delta @ delta))


@given(SEEDS, st.sampled_from([(3, 3), (2, 2, 2), (3, 5), (7, 3), (3, 4, 3), (2, 3, 4), (9, 2)]))
def test_strength_is_the_t_value_of_least_squares(seed, sizes):
    labels = groups_of(*sizes)
    tables = pairs_of(np.random.default_rng(seed), labels)
    assert strength(labels, *tables) == pytest.approx(t_value(labels, *tables), rel=1e-3)


def test_one_group_has_no_strength():
    signal, weight = pairs_of(np.random.default_rng(1), np.zeros(5))
    assert strength(np.zeros(5, dtype=np.int64), signal, weight) == -np.inf


# -------------------------------------------------------------------------------- the cut


def partitions(devices: int, groups: int = 9) -> Iterator[np.ndarray]:
    """All ways to put devices into at most so many groups."""

    def extended(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == devices:
            yield labels
        else:
            for each in range(min(groups, max(labels, default=-1) + 2)):
                yield from extended([*labels, each])

    return (np.array(labels) for labels in extended([]))


def cuts(devices: int, min_size: int) -> Iterator[np.ndarray]:
    """All cuts in two with the first device in the first child."""
    sides = (labels == 1 for labels in partitions(devices, 2))
    return (side for side in sides if min(side.sum(), (~side).sum()) >= min_size)


@EXAMPLES
@given(SEEDS, st.integers(4, 7), st.integers(1, 3))
def test_no_cut_is_stronger_than_the_strongest_of_all_and_each_child_is_large_enough(seed, devices, min_size):
    rng = np.random.default_rng(seed)
    tables = pairs_of(rng, rng.integers(0, 3, devices), noise=3.0)
    side, possible = affinity_cut(*tables, min_size), list(cuts(devices, min_size))
    if side is None:
        return
    assert any((side == each).all() for each in possible)
    best = max(strength(each.astype(np.int64), *tables) for each in possible)
    assert strength(side.astype(np.int64), *tables) <= best + 1e-6


@EXAMPLES
@given(SEEDS, st.sampled_from([(2, 2), (4, 2), (3, 5), (6, 2), (2, 2, 2), (2, 4, 2), (3, 3, 2)]))
def test_where_there_are_clear_groups_the_cut_is_the_strongest_of_those_that_tear_none(seed, sizes):
    rng = np.random.default_rng(seed)
    group = rng.permutation(groups_of(*sizes))
    tables = pairs_of(rng, group, gap=2.0, noise=0.5)
    side = affinity_cut(*tables, 2)
    assert tears_no_group(side, group)
    pure = [each for each in cuts(len(group), 2) if tears_no_group(each, group)]
    best = max(strength(each.astype(np.int64), *tables) for each in pure)
    assert strength(side.astype(np.int64), *tables) == pytest.approx(best)


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([(10, 10), (15, 5), (7, 7, 6), (5, 5, 5, 5), (8, 5, 4, 3)]), st.booleans())
def test_planted_groups_are_never_torn_whatever_their_sizes_and_labels(seed, sizes, heard_twice):
    rng = np.random.default_rng(seed)
    group = rng.permutation(groups_of(*sizes))
    everybody, affinity = np.arange(len(group)), Affinity.unknown(len(group), 5)
    for _ in range(1 + heard_twice):
        survey = with_start(survey_of(rng, group, noise=0.4), 9.0)
        affinity = affinity.heard(everybody, everybody, survey)
    assert tears_no_group(cut_of_mutual(*affinity.pairs(everybody), 2), group)


@EXAMPLES
@given(SEEDS)
def test_two_of_twenty_are_found(seed):
    rng = np.random.default_rng(seed)
    group = rng.permutation(groups_of(18, 2))
    side = affinity_cut(*beyond(survey_of(rng, group, alpha=5.0)), 2)
    assert same_cut(side, group == 1)


def test_of_noise_around_two_of_twenty_no_more_groups_are_made_than_there_are():
    group, right = groups_of(18, 2), 0
    for seed in range(40):
        side = affinity_cut(*pairs_of(np.random.default_rng(seed), group, gap=0.5), 2)
        right += same_cut(side, group == 1)
    assert right >= 35  # 28 where sizes do not count, and two of twenty are as unlikely by chance as any ten


@settings(max_examples=20)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_the_ways_to_make_groups_are_those_to_choose_their_sizes_times_those_to_deal_the_devices(sizes):
    everybody, names = sum(sizes), range(len(sizes))
    deals = [deal for deal in product(names, repeat=everybody) if [deal.count(name) for name in names] == sizes]
    choices = [each for each in product(range(1, everybody + 1), repeat=len(sizes)) if sum(each) == everybody]
    assert log_ways(groups_of(*sizes)) == pytest.approx(np.log(len(deals) * len(choices)), abs=1e-9)


@given(SEEDS, st.integers(2, 10), st.integers(1, 4))
def test_the_first_device_is_in_the_first_child(seed, devices, min_size):
    rng = np.random.default_rng(seed)
    side = affinity_cut(*pairs_of(rng, rng.integers(0, 2, devices)), min_size)
    if devices < 2 * min_size:
        assert side is None
    if side is not None:
        assert not side[0]
        assert min(side.sum(), (~side).sum()) >= min_size


@EXAMPLES
@given(SEEDS, st.integers(4, 12))
def test_the_cut_does_not_depend_on_the_order_of_the_devices(seed, devices):
    rng = np.random.default_rng(seed)
    signal, weight = pairs_of(rng, np.arange(devices) % 2, gap=2.0, noise=0.5)
    order = rng.permutation(devices)
    side, again = (
        affinity_cut(signal[here], weight[here], 2)
        for here in (np.ix_(*2 * [np.arange(devices)]), np.ix_(order, order))
    )
    assert same_cut(again, side[order])


@pytest.mark.parametrize("devices", [0, 1, 2, 6])
def test_where_nothing_is_known_there_is_no_cut(devices):
    nothing = np.zeros((devices, devices))
    assert affinity_cut(nothing, nothing, 1) is None
    assert affinity_cut(nothing, others(devices).astype(np.float64), 1) is None


def test_a_device_nobody_knows_anything_of_joins_a_child():
    group = groups_of(4, 4)
    signal, weight = pairs_of(np.random.default_rng(2), group, gap=2.0, noise=0.5)
    signal, weight = (np.pad(table, (0, 1)) for table in (signal, weight))
    side = affinity_cut(signal, weight, 2)
    assert same_cut(side[:-1], group == 1)


@pytest.mark.parametrize("sizes", [(50, 30), (76, 4), (30, 30, 20)])
def test_of_many_devices_those_that_are_not_cut_join_their_own_kind(sizes):
    rng = np.random.default_rng(3)
    group = rng.permutation(groups_of(*sizes))
    assert len(group) > DEFAULTS.survey_columns
    signal, weight = pairs_of(rng, group, gap=2.0, noise=0.5)
    assert tears_no_group(affinity_cut(signal, weight, 2), group)
    few = np.isin(np.arange(len(group)), rng.choice(len(group), DEFAULTS.survey_columns - 4, replace=False))
    asked = np.where(few, 1.0, 0.0)  # the others were asked, but nobody was asked about them
    assert tears_no_group(affinity_cut(signal * asked, weight * asked, 2), group)


def test_devices_outside_the_core_join_the_child_that_suits_them():
    group = groups_of(6, 6)
    pairs = mutual(*pairs_of(np.random.default_rng(5), group, gap=2.0, noise=0.5), DEFAULTS.affinity_fits)
    core = np.array([0, 1, 2, 6, 7, 8])
    np.testing.assert_array_equal(completed_by_affinity(core, group[core], *pairs), group)


# -------------------------------------------------------------------------------- what was said so far


def heard(affinity: Affinity, devices: np.ndarray, columns: np.ndarray, survey: Survey) -> Affinity:
    """Some devices about some models; the first model of all was bad for everybody."""
    return affinity.heard(devices, columns, with_start(survey, 9.0))


@given(SEEDS)
def test_what_is_heard_is_kept_where_it_belongs_and_the_older_the_less_it_counts(seed):
    rng, devices, columns = np.random.default_rng(seed), np.array([1, 3, 4]), np.array([0, 3, 4, 6])
    everything = survey_of(rng, np.arange(7) % 2)
    unknown = Affinity.unknown(7, 5).told(np.arange(7), everything.samples)
    survey = Survey(everything.samples[devices], everything.misfit[np.ix_(devices, columns)])
    once = heard(unknown, devices, columns, survey)
    judged = with_start(survey, 9.0), everything.samples[columns], devices[:, None] != columns
    signal, weight, *_ = beyond_classes(*judged)
    here = np.ix_(devices, columns)
    gains = (survey.samples[:, None] * (9.0 - survey.misfit)).sum(axis=2) / survey.samples.sum(axis=1)[:, None]
    asked = devices[:, None] != columns
    told = ((once.signal, signal), (once.weight, weight), (once.gains, gains * asked), (once.asked, asked))
    for table, expected in told:
        assert table.dtype == np.float32
        np.testing.assert_allclose(table[here], expected, rtol=1e-5, atol=1e-4)
        rest = table.copy()
        rest[here] = 0
        assert not rest.any()
    twice = heard(once, devices, columns, survey)
    np.testing.assert_allclose(twice.signal, (1 + DEFAULTS.affinity_kept) * once.signal, rtol=1e-5, atol=1e-4)
    for before, after in ((once.weight, twice.weight), (once.gains, twice.gains), (once.asked, twice.asked)):
        np.testing.assert_allclose(after, (1 + DEFAULTS.affinity_kept) * before, rtol=1e-5)
    assert not unknown.signal.any()  # as it was
    later = heard(once, devices[:1], columns, Survey(survey.samples[:1], survey.misfit[:1]))
    np.testing.assert_array_equal(later.weight[devices[1:]], once.weight[devices[1:]])


def test_a_device_that_does_not_answer_keeps_what_it_told_before():
    before = np.arange(1, 16).reshape(3, 5)
    affinity = Affinity.unknown(3, 5).told(np.arange(3), before)
    now = np.array([[7, 7, 7, 7, 7], [0, 0, 0, 0, 0]])
    affinity = affinity.told(np.array([2, 1]), now)
    np.testing.assert_array_equal(affinity.samples, [before[0], before[1], now[0]])
    silent = Survey(np.zeros((1, 5), dtype=np.int64), np.zeros((1, 3, 5)))
    later = heard(affinity, np.array([0]), np.arange(3), silent)
    np.testing.assert_array_equal(later.samples, affinity.samples)
    assert not later.weight.any()
    assert not later.harmful().any()


def test_a_model_of_a_device_whose_labels_nobody_knows_is_not_judged():
    rng = np.random.default_rng(0)
    survey = survey_of(rng, np.zeros(3))
    affinity = heard(
        Affinity.unknown(4, 5), np.arange(3), np.arange(4), replace(survey, misfit=rng.normal(size=(3, 4, 5)))
    )
    assert not affinity.weight[:, 3].any()
    assert affinity.weight[:3, :3][others(3)].all()


def test_harm_is_told_of_those_whose_models_were_shown_and_may_be_undone():
    rng, everybody = np.random.default_rng(1), np.arange(6)
    gains = np.full((6, 6), 0.5)
    gains[:, 2] = -0.5
    affinity = Affinity.unknown(6, 5)
    for _ in range(DEFAULTS.harm_surveys):
        assert not affinity.harmful().any()  # once may be chance
        affinity = affinity.heard(everybody, everybody, effects(rng, gains))
    assert np.flatnonzero(affinity.harmful()).tolist() == [2]
    without = np.array([0, 1, 3, 4, 5])
    survey = effects(rng, np.full((6, 6), 0.5))
    partly = replace(survey, misfit=survey.misfit[:, [*without, 6]])
    assert np.flatnonzero(affinity.heard(everybody, without, partly).harmful()).tolist() == [2]
    assert not affinity.heard(everybody, everybody, survey).harmful().any()


@pytest.mark.parametrize(("gainers", "liar", "cleared"), [(1, False, False), (3, False, True), (3, True, False)])
def test_whoever_did_harm_is_cleared_when_half_of_those_asked_gain_unless_it_is_not_believed(gainers, liar, cleared):
    rng, everybody, gains = np.random.default_rng(1), np.arange(6), np.full((6, 6), 0.5)
    gains[:, 2] = -0.5
    affinity = Affinity.unknown(6, 5)
    for _ in range(DEFAULTS.harm_surveys):
        affinity = affinity.heard(everybody, everybody, effects(rng, gains))
    gains[3 : 3 + gainers, 2] = 0.5
    affinity = affinity.doubting([2] if liar else [])
    affinity = affinity.heard(everybody, everybody, effects(rng, gains))
    assert np.flatnonzero(affinity.harmful()).tolist() == ([] if cleared else [2])


@given(SEEDS, st.integers(0, 3))
def test_devices_that_come_later_find_what_is_known_as_it_was(seed, more):
    rng = np.random.default_rng(seed)
    affinity = heard(Affinity.unknown(4, 5), np.arange(4), np.arange(4), survey_of(rng, np.arange(4) % 2))
    grown = affinity.grown(more)
    for name in ("signal", "weight"):
        before, after = getattr(affinity, name), getattr(grown, name)
        assert (after.shape, after.dtype) == ((4 + more, 4 + more), before.dtype)
        np.testing.assert_array_equal(after[:4, :4], before)
        assert not after[4:].any()
        assert not after[:, 4:].any()
    np.testing.assert_array_equal(grown.samples, np.r_[affinity.samples, np.zeros((more, 5))])
    np.testing.assert_array_equal(grown.harmful(), np.r_[affinity.harmful(), np.zeros(more, dtype=bool)])
    np.testing.assert_array_equal(grown.pairs(np.arange(4)), affinity.pairs(np.arange(4)))


@given(SEEDS, st.integers(4, 8))
def test_likeness_is_mutual_and_from_minus_one_to_one_which_each_device_is_to_itself(seed, devices):
    group = np.arange(devices) % 2
    everyone = np.arange(devices)
    affinity = heard(Affinity.unknown(devices, 5), everyone, everyone, survey_of(np.random.default_rng(seed), group))
    likeness = affinity.likeness(everyone)
    np.testing.assert_allclose(likeness, likeness.T, atol=1e-6)
    assert (np.diag(likeness) == 1).all()
    assert np.abs(likeness[~np.eye(devices, dtype=bool)]).max() == pytest.approx(1.0)


def test_devices_of_which_nothing_is_known_are_neither_like_nor_unlike():
    np.testing.assert_array_equal(Affinity.unknown(3, 5).likeness(np.arange(3)), np.eye(3))


# -------------------------------------------------------------------------------- who belongs where


@dataclass(frozen=True)
class Images:
    """Losses of the clusters' models image by image."""

    losses: np.ndarray  # model × image
    device: np.ndarray
    label: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def drawn(
        cls,
        rng: np.random.Generator,
        shares: np.ndarray,
        kind: np.ndarray,
        *,
        clusters: int = 2,
        images: int = 60,
        pull: float = 0.0,
        of_classes: float = 2.0,
    ) -> "Images":
        """A device's images fit the model of its kind better by ``pull``; models differ by class for everybody."""
        devices, classes = shares.shape
        device = np.repeat(np.arange(devices), images)
        label = np.concatenate([rng.choice(classes, images, p=share) for share in shares])
        hard, good = rng.normal(0, 1, (devices, classes)), rng.normal(0, of_classes, (clusters, classes))
        fits = np.arange(clusters)[:, None] == kind[device]
        losses = hard[device, label] - good[:, label] - pull * fits + rng.normal(0, 1, (clusters, len(device)))
        return cls(losses, device, label, shares.shape)

    def belonging(self, own: np.ndarray) -> Belonging:
        return Belonging.of(Survey.of(self.losses, self.device, self.label, self.shape), own)

    def test(self, belonging: Belonging, own: np.ndarray, row: int) -> tuple[float, float]:
        """As the server asks: this device alone, its own cluster's model over the nearest other one's."""
        mine = self.device == row
        other, own_losses = (self.losses[model][mine] for model in (belonging.nearest[row], own[row]))
        answer = paired(other - own_losses, np.zeros(mine.sum(), dtype=np.int64), self.label[mine], (1, self.shape[1]))
        return belonging.test(row, answer)

    def p_values(self, own: np.ndarray) -> np.ndarray:
        belonging = self.belonging(own)
        return np.array([self.test(belonging, own, row)[1] for row in range(len(own))])


def skewed(rng: np.random.Generator, devices: int, alpha: float) -> np.ndarray:
    return rng.dirichlet(np.full(5, alpha), devices)


@EXAMPLES
@given(SEEDS, st.integers(2, 4), st.sampled_from([0.5, 5.0]), st.data())
def test_a_device_in_the_wrong_cluster_is_found_and_nobody_else_is(seed, clusters, alpha, data):
    rng = np.random.default_rng(seed)
    kind = np.arange(6 * clusters) % clusters
    images = Images.drawn(rng, skewed(rng, len(kind), alpha), kind, clusters=clusters, pull=3.0)
    lost = data.draw(st.integers(0, len(kind) - 1))
    own = kind.copy()
    own[lost] = (kind[lost] + data.draw(st.integers(1, clusters - 1))) % clusters
    belonging, p_values = images.belonging(own), images.p_values(own)
    assert belonging.doubtful[lost]
    assert belonging.nearest[lost] == kind[lost]
    assert p_values[lost] < 1e-6
    assert images.test(belonging, own, lost)[0] == pytest.approx(-belonging.leaning[lost])
    rest = np.arange(len(kind)) != lost
    assert not (belonging.doubtful & (p_values < 0.001))[rest].any()


@EXAMPLES
@given(SEEDS, st.integers(2, 3), st.sampled_from([0.5, 5.0]))
def test_where_all_are_at_home_nobody_leans_to_another_cluster_beyond_doubt(seed, clusters, alpha):
    rng = np.random.default_rng(seed)
    kind = np.arange(5 * clusters) % clusters
    images = Images.drawn(rng, skewed(rng, len(kind), alpha), kind, clusters=clusters, pull=2.0)
    assert images.p_values(kind).min() > 0.001
    assert (images.belonging(kind).nearest != kind).all()


@given(SEEDS, st.integers(2, 4), st.sampled_from([1 / 64, 1.0, 64.0]))
def test_how_good_a_model_is_at_a_class_for_everybody_changes_nothing(seed, clusters, scale):
    rng = np.random.default_rng(seed)
    own = np.arange(4 * clusters) % clusters
    samples = rng.integers(1, 30, (len(own), 5))  # everybody holds every class
    loss = rng.normal(0, 1, (len(own), clusters, 5))
    belonging = Belonging.of(Survey(samples, loss), own)
    skew, hard = rng.normal(0, 5, (clusters, 5)), rng.normal(0, 5, (len(own), 1, 5))
    again = Belonging.of(Survey(samples, scale * (loss + skew + hard)), own)
    np.testing.assert_array_equal(again.nearest, belonging.nearest)
    np.testing.assert_allclose(again.leaning, scale * belonging.leaning, rtol=1e-6, atol=1e-8 * scale)
    np.testing.assert_allclose(again.error, belonging.error)


@pytest.mark.parametrize("alpha", [0.5, 100.0])
def test_by_label_skew_alone_so_many_are_in_doubt_as_the_level_says(alpha):
    """Nobody has a kind, and models differ by 2 from class to class; each image by 1."""
    p_values = []
    for seed in range(120):
        rng, own = np.random.default_rng(seed), np.arange(10) % 2
        images = Images.drawn(rng, skewed(rng, 10, alpha), own, pull=0.0)
        p_values.append(images.p_values(own))
    assert np.mean(np.array(p_values) < 0.05) < 0.075
    assert np.mean(np.array(p_values) < 0.001) < 0.006
    assert 0.4 < np.mean(np.array(p_values) < 0.5) < 0.6


def test_where_clusters_hold_different_classes_the_plain_preference_counts():
    rng, own = np.random.default_rng(5), np.arange(8) // 4
    shares = np.array([[0.4, 0.6, 0, 0, 0]] * 4 + [[0, 0, 0.3, 0.3, 0.4]] * 4)
    images = Images.drawn(rng, shares, own, pull=3.0, of_classes=0.0)
    belonging = images.belonging(own)
    other_less_own = np.where(own[images.device] == 0, 1, -1) * (images.losses[1] - images.losses[0])
    for row in range(8):
        mine = other_less_own[images.device == row]
        assert belonging.leaning[row] == pytest.approx(mine.mean())
        gain, p_value = images.test(belonging, own, row)
        assert gain == pytest.approx(-mine.mean())
        assert p_value > 0.99
    assert not belonging.middle.any()
    assert not belonging.error.any()
    wrong = own.copy()
    wrong[0] = 1  # holds no class of those it is with
    assert images.belonging(wrong).doubtful[0]
    assert (images.p_values(wrong) < 0.001).tolist() == [True] + [False] * 7


def test_of_one_class_the_plain_preferences_test_is_students():
    rng, own = np.random.default_rng(6), np.array([0, 0, 1, 1])
    images = Images.drawn(rng, np.eye(2)[own], own, pull=0.3, of_classes=0.0)
    against = images.losses[0][images.device == 0] - images.losses[1][images.device == 0]
    expected = stats.ttest_1samp(against, 0.0, alternative="greater").pvalue
    assert images.test(images.belonging(own), own, 0) == pytest.approx((against.mean(), expected))


@given(SEEDS)
def test_a_cluster_of_which_one_device_is_asked_says_nothing(seed):
    rng, own = np.random.default_rng(seed), np.array([0, 0, 0, 1, 2, 2])
    kind = np.array([1, 1, 2, 0, 2, 2])  # but for the last two, nobody is at home
    images = Images.drawn(rng, skewed(rng, 6, 5.0), kind, clusters=3, pull=9.0, of_classes=0.0)
    belonging = images.belonging(own)
    assert not belonging.doubtful[3]
    assert (belonging.nearest[belonging.doubtful] != 1).all()


def test_whoever_does_not_answer_stays_where_it_is():
    rng, own = np.random.default_rng(7), np.arange(6) % 2
    samples = rng.integers(1, 9, (6, 5))
    samples[2] = 0
    loss = np.where(samples[:, None] > 0, rng.normal(size=(6, 2, 5)), 0.0)
    belonging = Belonging.of(Survey(samples, loss), own)
    assert not belonging.doubtful[2]
    nothing = Paired(np.zeros((1, 5), dtype=np.int64), np.zeros((1, 5)), np.zeros((1, 5)))
    assert belonging.test(2, nothing) == (0.0, 1.0)
