import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import error_line
from fedclade.config import PopulationConfig
from fedclade.data.partition import deal, device_sizes, split_shares

LABELS = np.arange(1000) % 10
ALL = np.arange(10)


def dealt(seed: int = 1, labels: np.ndarray = LABELS, writers: np.ndarray | None = None, **settings: object) -> list:
    plan = PopulationConfig(**settings)
    return deal(plan, labels, writers, [np.unique(labels)] * plan.devices, seed)


# -------------------------------------------------------------------------------- sizes


def test_equal_sizes_share_what_there_is():
    assert device_sizes(PopulationConfig(devices=3), 100, 1).tolist() == [33, 33, 33]
    assert device_sizes(PopulationConfig(devices=3, samples=60), 100, 1).tolist() == [20, 20, 20]
    assert device_sizes(PopulationConfig(devices=3, samples=600), 100, 1).tolist() == [33, 33, 33]


@pytest.mark.parametrize("exponent", [1.0, 1.5, 3.0])
def test_power_law_sizes_follow_the_power_law(exponent):
    """P(size >= n) of the density n^-a between 10 and 1500 has a closed form; 8,000 draws are within 0.03 of it."""
    plan = PopulationConfig(devices=8000, sizes="power-law", power_exponent=exponent)
    sizes = device_sizes(plan, 10**8, seed=1)
    low, high, power = 10.0, 1500.0, 1.0 - exponent
    for n in (11, 15, 30, 100, 500, 1200):
        tail = (
            np.log(high / n) / np.log(high / low)
            if power == 0
            else (n**power - high**power) / (low**power - high**power)
        )
        assert np.mean(sizes >= n) == pytest.approx(tail, abs=0.03)


@given(
    st.integers(1, 30),
    st.integers(2, 20),
    st.integers(0, 500),
    st.floats(0.01, 50),
    st.integers(0, 3000),
    st.integers(0, 99),
)
def test_power_law_sizes_keep_floor_ceiling_and_total(devices, floor, spread, exponent, spare, seed):
    plan = PopulationConfig(
        devices=devices, sizes="power-law", min_samples=floor, max_samples=floor + spread, power_exponent=exponent
    )
    available = devices * floor + spare
    sizes = device_sizes(plan, available, seed)
    assert sizes.min() >= floor
    assert sizes.max() <= floor + spread
    assert sizes.sum() <= available


def test_power_law_sizes_that_are_too_many_shrink_to_all_there_is():
    plan = PopulationConfig(devices=50, sizes="power-law")
    sizes = device_sizes(plan, 2000, seed=1)
    assert 2000 - 50 < sizes.sum() <= 2000  # all but what rounding down costs
    assert sizes.argmax() == device_sizes(plan, 10**6, seed=1).argmax()


def test_power_law_sizes_are_stretched_to_all_there_is_if_all_is_to_be_dealt():
    plan = PopulationConfig(devices=50, sizes="power-law", deal_all=True)
    drawn = device_sizes(plan.model_copy(update={"deal_all": False}), 10**6, seed=1)
    sizes = device_sizes(plan, 10**6, seed=1)
    assert 10**6 - 50 < sizes.sum() <= 10**6  # all but what rounding down costs
    np.testing.assert_allclose(sizes / drawn, 10**6 / drawn.sum(), rtol=0.1)  # the same law, multiplied
    assert device_sizes(plan, 2000, seed=1).sum() <= 2000  # and compressed where there is too little


@given(st.integers(1, 12), st.integers(0, 99), st.sampled_from([None, 300]))
def test_all_images_of_the_classes_that_somebody_holds_are_dealt_if_all_is_to_be_dealt(devices, seed, samples):
    settings = {"devices": devices, "partition": "classes", "sizes": "power-law", "min_samples": 4, "max_samples": 20}
    parts = dealt(seed, deal_all=True, samples=samples, **settings)
    held, count = np.unique(LABELS[np.concatenate(parts)], return_counts=True)
    share = 1.0 if samples is None else samples / len(LABELS)
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))  # none twice
    assert max(len(np.unique(LABELS[part])) for part in parts) <= 2
    assert len(held) <= 2 * devices
    assert (count <= 100).all()
    assert (count > 100 * share - devices - 1).all()  # all of each but what rounding down costs
    if samples is not None:
        assert sum(map(len, parts)) <= samples + 4 * devices  # floors come first


def test_more_devices_than_images_can_serve_are_refused():
    line = error_line(device_sizes, PopulationConfig(devices=11), 105, 1)
    assert line == "population.devices = 11: 105 images serve at most 10 devices of min_samples = 10"


# -------------------------------------------------------------------------------- labels


def class_counts(parts: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(LABELS[part], minlength=10) for part in parts])


def test_iid_devices_hold_all_classes_alike():
    shares = class_counts(dealt(partition="iid", devices=2)) / 500
    np.testing.assert_allclose(shares, 0.1, atol=0.05)  # three standard deviations of 500 draws at 0.1 are 0.04


def test_a_small_alpha_concentrates_and_a_large_one_spreads():
    largest = {}
    for alpha in (0.05, 100.0):
        counts = class_counts(dealt(partition="dirichlet", alpha=alpha, devices=10, samples=300))
        largest[alpha] = (counts.max(axis=1) / counts.sum(axis=1)).mean()
    assert largest[0.05] > 0.7
    assert largest[100.0] < 0.35


@given(st.integers(1, 10), st.integers(1, 10), st.integers(0, 99))
def test_a_device_holds_no_more_classes_than_it_may(devices, classes, seed):
    counts = class_counts(dealt(seed, partition="classes", classes_per_device=classes, devices=devices))
    assert ((counts > 0).sum(axis=1) <= classes).all()
    assert counts.sum(axis=0).max() <= 100  # of each class there are 100 images


def test_devices_with_images_to_spare_hold_exactly_the_classes_they_may():
    counts = class_counts(dealt(partition="classes", classes_per_device=2, devices=5, samples=200))
    assert ((counts > 0).sum(axis=1) == 2).all()


@pytest.mark.parametrize("sizes", ["equal", "power-law"])
@pytest.mark.parametrize("partition", ["dirichlet", "classes"])
def test_when_classes_run_short_everybody_still_gets_the_minimum(partition, sizes):
    """50 devices of two or three classes each want more of the popular classes than there is."""
    for seed in range(20):
        parts = dealt(seed, partition=partition, alpha=0.1, sizes=sizes, devices=50, min_samples=5)
        assert min(map(len, parts)) >= 5


def test_more_classes_per_device_than_classes_are_refused():
    line = error_line(lambda: dealt(partition="classes", classes_per_device=11, devices=2))
    assert line == "population.classes_per_device = 11: device 0 has only 10 classes to choose from"


def test_classes_that_run_out_are_refused_with_advice():
    labels = np.r_[np.zeros(12, int), np.ones(988, int)]  # whoever draws class 0 shares 12 images
    line = error_line(lambda: dealt(labels=labels, partition="classes", classes_per_device=1, devices=40))
    assert line.startswith("population.devices = 40: the classes of device ")
    assert "min_samples (= 10)" in line


# -------------------------------------------------------------------------------- writers


def test_every_device_is_one_writer_who_wrote_enough():
    writers = np.repeat([0, 1, 2, 3, 4], [9, 10, 11, 2, 968])
    parts = dealt(partition="writer", devices=3, writers=writers)
    assert sorted(writers[part[0]] for part in parts) == [1, 2, 4]
    for part in parts:
        np.testing.assert_array_equal(part, np.flatnonzero(writers == writers[part[0]]))


def test_too_few_writers_are_refused():
    writers = np.repeat([0, 1, 2], [9, 10, 981])
    line = error_line(lambda: dealt(partition="writer", devices=3, writers=writers))
    assert line == "population.devices = 3: only 2 writers wrote at least min_samples = 10 images"


def test_a_source_without_writers_is_refused():
    line = error_line(lambda: dealt(partition="writer", devices=3))
    assert line.startswith('population.partition = "writer": source mnist5k does not say who wrote what')


# -------------------------------------------------------------------------------- training, validation and test share

POSITIONS = st.integers(2, 200).map(lambda count: np.arange(100, 100 + count))
SHARES = st.floats(0.001, 0.999)


@given(POSITIONS, SHARES, st.integers(0, 9))
def test_the_test_share_is_kept_apart_with_at_least_one_image_on_either_side(positions, share, seed):
    train, validation, test = split_shares(positions, share, 0.0, seed, device=0)
    assert sorted([*train, *test]) == positions.tolist()
    assert len(validation) == 0
    assert min(len(train), len(test)) >= 1
    if 1 <= share * len(positions) <= len(positions) - 1:
        assert abs(len(test) - share * len(positions)) <= 0.5


@given(POSITIONS, SHARES, SHARES, st.integers(0, 9))
def test_the_three_shares_are_apart_and_together_all_there_is(positions, tested, validated, seed):
    parts = split_shares(positions, tested, validated, seed, device=0)
    assert sorted(np.concatenate(parts)) == positions.tolist()
    assert all((np.diff(part) > 0).all() for part in parts)
    train, _, test = parts
    assert min(len(train), len(test)) >= 1


@given(POSITIONS, SHARES, SHARES, st.integers(0, 9))
def test_the_test_share_is_the_same_with_and_without_a_validation_share(positions, tested, validated, seed):
    with_one, without = (split_shares(positions, tested, share, seed, device=0) for share in (validated, 0.0))
    np.testing.assert_array_equal(with_one[2], without[2])


@pytest.mark.parametrize(
    ("count", "held_out"),
    [
        (2, 0),
        (3, 1),
        (5, 1),
        (14, 2),
        (20, 4),
        (29, 5),
        (60, 12),
        (199, 39),
        (200, 40),
        (400, 40),
        (405, 40),
        (410, 41),
    ],
)
def test_a_small_device_holds_out_up_to_forty_images_but_no_more_than_a_fifth(count, held_out):
    """A tenth and a fifth are asked for; two images leave none to hold out."""
    train, validation, test = split_shares(np.arange(count), 0.2, 0.1, seed=1, device=0)
    assert len(validation) == held_out
    assert len(train) == count - held_out - len(test)


def test_devices_draw_their_shares_apart():
    drawn = [split_shares(np.arange(100), 0.2, 0.1, 1, device) for device in range(5)]
    for share, size in ((1, 20), (2, 20)):
        shares = {tuple(parts[share]) for parts in drawn}
        assert len(shares) == 5
        assert {len(positions) for positions in shares} == {size}
