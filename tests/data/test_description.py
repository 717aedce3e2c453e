"""What is told of data before anybody trains on them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.data import Source
from fedclade.data.description import MOST_BARS, Devices, describe


def devices_of(y: list[int], device: list[int], **facts: object) -> Devices:
    found = describe(Source(np.zeros((len(y), 1)), y, device=device, **facts).checked("here")).devices
    assert found is not None
    return found


def test_the_whole_and_its_devices_are_told():
    x = np.arange(24, dtype=np.float32).reshape(6, 1, 2, 2) - 5
    found = describe(Source(x, [0, 0, 2, 2, 2, 0], device=[0, 0, 0, 0, 1, 1], group=[4, 9]).checked("here"))
    assert (found.samples, found.shape, found.dtype, found.memory_bytes) == (6, (1, 2, 2), "float32", 96)
    assert (found.value_min, found.value_max, found.classes, found.class_samples) == (-5.0, 18.0, 3, (3, 0, 3))
    mine = found.devices
    assert (mine.count, mine.samples_min, mine.samples_median, mine.samples_max) == (2, 2, 3.0, 4)
    assert (mine.groups, mine.split) == ((1, 1), None)


def test_a_pool_has_no_devices():
    assert describe(Source(np.zeros((6, 2)), [0] * 6).checked("here")).devices is None


def test_the_split_is_counted():
    split = ["train", "train", "test", "train", "test", "validation"]
    assert devices_of([0] * 6, [0, 0, 0, 1, 1, 1], split=split).split == {"train": 3, "validation": 1, "test": 2}


@pytest.mark.parametrize(
    ("y", "skew", "classes"),
    [
        ([0, 1, 0, 1], 0.0, (2, 2)),  # the same mix
        ([0, 0, 1, 1], 0.5, (1, 1)),  # two devices with a class each: half of all is of the other's class
        ([0, 0, 0, 1], 0.25, (1, 2)),  # all: 3/4, 1/4; the devices' 1, 0 and 1/2, 1/2 are 1/4 away
    ],
)
def test_label_skew_is_how_far_a_devices_mix_of_classes_is_from_alls(y, skew, classes):
    found = devices_of(y, [0, 0, 1, 1])
    assert found.label_skew == pytest.approx(skew)
    assert (found.classes_min, found.classes_max) == classes


@given(st.lists(st.integers(2, 60), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_skew_and_histogram_agree_with_plain_counting(sizes, random):
    device = np.repeat(np.arange(len(sizes)), sizes)
    y = np.array([random.randrange(5) for _ in device])
    found = devices_of(y.tolist(), device.tolist(), classes=5)
    assert sum(bar.devices for bar in found.sizes) == len(sizes)
    assert len(found.sizes) <= MOST_BARS
    for bar in found.sizes:
        assert bar.devices == sum(bar.least <= size <= bar.most for size in sizes)
    overall = np.bincount(y, minlength=5) / len(y)
    mixes = [np.bincount(y[device == k], minlength=5) / size for k, size in enumerate(sizes)]
    assert found.label_skew == pytest.approx(np.mean([np.abs(mix - overall).sum() / 2 for mix in mixes]))


def test_what_is_worth_a_look_is_noted():
    x = np.random.default_rng(0).normal(size=(30, 3)) * [1, 1000, 0]
    device = np.repeat([0, 1], [25, 5])
    notes = describe(Source(x, np.arange(30) % 2, device=device, classes=4).checked("here")).notes
    assert notes[:3] == (
        "2 of 4 classes have no samples, such as class 2",
        "1 of 2 devices have fewer than 10 samples",
        "1 of 3 features are the same in all samples",
    )
    assert notes[3].startswith("some features vary ")
    told = x[:, :2] / x[:, :2].std(0)
    assert describe(Source(told, np.arange(30) % 2).checked("here")).notes == ()
    by_source = Source(x[:, :2], np.arange(30) % 2, std=x[:, :2].std(0))  # says itself how to standardise
    assert describe(by_source.checked("here")).notes == ()
