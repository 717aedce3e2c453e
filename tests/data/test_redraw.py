import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import config, error_line, image_set
from fedclade.data import Population, populate

COUNT, CLASSES, WRITERS = 300, 5, 10
SOURCE = image_set(COUNT, CLASSES, shape=(1, 4, 4), writer=np.arange(COUNT) % WRITERS)
SHARES = ("train", "validation", "test")


def redrawn(devices: int = 40, seed: int = 1, incongruence: dict | None = None, **settings: object) -> Population:
    plan = {"devices": devices, "redraw": True, "sizes": "power-law", "min_samples": 8, "max_samples": 30, **settings}
    return populate(config(population=plan, incongruence=incongruence or {"kind": "none"}, run={"seed": seed}), SOURCE)


@given(
    st.sampled_from(["iid", "dirichlet", "classes", "writer"]),
    st.integers(1, 60),
    st.floats(0.1, 0.5),
    st.floats(0.0, 0.3),
    st.integers(0, 99),
)
def test_nobody_trains_on_what_anybody_is_tested_on(partition, devices, test_share, validation_share, seed):
    found = redrawn(devices, seed, partition=partition, test_share=test_share, validation_share=validation_share)
    assert found.devices == devices
    held = {share: np.unique(np.concatenate([*getattr(found, share)])) for share in SHARES}
    assert sum(map(len, held.values())) == len(np.unique(np.concatenate(list(held.values()))))
    for share in ("train", "test"):
        assert getattr(found, share).lengths.min() >= 1


def test_there_may_be_more_devices_than_images():
    found = redrawn(devices=1000)
    assert len(found.images) == COUNT
    assert found.samples.sum() > 10 * COUNT


def test_a_device_draws_the_same_whoever_else_there_is():
    few, many = redrawn(devices=5), redrawn(devices=50)
    for share in SHARES:
        for mine, same in zip(getattr(few, share), getattr(many, share), strict=False):
            np.testing.assert_array_equal(mine, same)


@pytest.mark.parametrize("kind", ["permute-labels", "rotate"])
def test_every_group_sees_the_pool_its_own_way(kind):
    found = redrawn(incongruence={"kind": kind, "groups": [3, 1]})
    whole = populate(
        config(
            population={"devices": 2, "partition": "iid", "min_samples": 2},
            incongruence={"kind": kind, "groups": [1, 1]},
        ),
        SOURCE,
    )
    seen = {(image.tobytes(), label) for image, label in zip(whole.images, whole.labels.tolist(), strict=True)}
    assert len(seen) == COUNT
    for device in range(found.devices):
        assert (
            np.concatenate([getattr(found, share)[device] for share in SHARES]) // COUNT == found.group[device]
        ).all()
    both = {(image.tobytes(), label) for image, label in zip(found.images, found.labels.tolist(), strict=True)}
    assert seen <= both  # what the two devices of the other population hold, each as its group sees it


def test_a_device_is_one_writer_and_holds_no_image_twice():
    found = redrawn(devices=200, partition="writer")
    drawn = set()
    for device in range(found.devices):
        mine = np.concatenate([getattr(found, share)[device] for share in SHARES])
        assert len(np.unique(mine)) == len(mine)
        (writer,) = np.unique(SOURCE.writer[mine])
        drawn.add(int(writer))
    assert drawn == set(range(WRITERS))


def test_labels_follow_the_partition():
    found = redrawn(devices=100, partition="classes", classes_per_device=2)
    assert max(len(np.unique(found.labels[mine])) for mine in found.train) == 2
    even = redrawn(devices=300, partition="iid", min_samples=29)
    counts = np.bincount(found.labels[np.concatenate([*even.train])], minlength=CLASSES)
    assert counts / counts.sum() == pytest.approx(np.full(CLASSES, 1 / CLASSES), abs=0.02)


def test_what_cannot_be_drawn_is_told_in_a_line():
    assert "population.samples" in error_line(lambda: redrawn(sizes="equal"))
    assert "no writer wrote so many" in error_line(lambda: redrawn(partition="writer", min_samples=50, max_samples=60))
    assert redrawn(sizes="equal", samples=800).samples.sum() <= 800
