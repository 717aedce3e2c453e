from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import config, error_line, image_set
from fedclade.data import Population, build_population, populate

COUNT, CLASSES = 400, 5
SOURCE = image_set(COUNT, CLASSES, shape=(1, 4, 4), writer=np.arange(COUNT) % 7)
LABEL_OF = {image.tobytes(): label for image, label in zip(SOURCE.x, SOURCE.y.tolist(), strict=True)}
WRITER_OF = {image.tobytes(): writer for image, writer in zip(SOURCE.x, SOURCE.writer.tolist(), strict=True)}

settings = st.fixed_dictionaries(
    {
        "devices": st.integers(1, 7),
        "partition": st.sampled_from(["iid", "dirichlet", "classes", "writer"]),
        "alpha": st.floats(0.05, 10),
        "classes_per_device": st.integers(1, CLASSES),
        "sizes": st.sampled_from(["equal", "power-law"]),
        "min_samples": st.integers(2, 10),
        "max_samples": st.integers(10, 200),
        "samples": st.integers(70, 500),
        "test_share": st.floats(0.01, 0.79),
        "validation_share": st.floats(0.0, 0.2),
    }
)


def contents(population: Population) -> list[bytes]:
    """Everything in it, as bytes."""
    arrays = [population.images, population.labels, population.group, *population.train, *population.validation]
    arrays += population.test
    return [array.tobytes() for array in arrays]


@given(settings, st.integers(0, 999))
def test_images_go_to_one_device_each_with_their_labels(plan, seed):
    population = populate(config(population=plan, run={"seed": seed}), SOURCE)
    handed_out = [image.tobytes() for image in population.images]
    assert len(set(handed_out)) == len(handed_out)
    assert [LABEL_OF[image] for image in handed_out] == population.labels.tolist()


@given(settings, st.integers(0, 999))
def test_a_devices_images_lie_side_by_side_in_three_shares(plan, seed):
    population = populate(config(population=plan, run={"seed": seed}), SOURCE)
    assert population.devices == len(population.test) == plan["devices"]
    assert population.samples.tolist() == [len(train) for train in population.train]
    shares = zip(population.train, population.validation, population.test, strict=True)
    whole = np.concatenate([np.sort(np.concatenate(parts)) for parts in shares])
    np.testing.assert_array_equal(whole, np.arange(COUNT)[: len(population.images)])
    assert min(map(len, [*population.train, *population.test])) >= 1
    assert population.images.flags.c_contiguous


@given(settings, st.integers(0, 999))
def test_devices_hold_what_the_plan_allows(plan, seed):
    population = populate(config(population=plan, run={"seed": seed}), SOURCE)
    held_out = zip(population.validation, population.test, strict=True)
    sizes = population.samples + [len(validation) + len(test) for validation, test in held_out]
    assert sizes.min() >= plan["min_samples"]
    devices = np.repeat(np.arange(plan["devices"]), sizes)
    if plan["partition"] == "writer":
        writers = [
            {WRITER_OF[image.tobytes()] for image in population.images[devices == k]} for k in range(plan["devices"])
        ]
        assert {len(own) for own in writers} == {1}
        return
    assert sizes.sum() <= min(plan["samples"], COUNT)
    ceiling = plan["max_samples"] if plan["sizes"] == "power-law" else min(plan["samples"], COUNT) // plan["devices"]
    assert sizes.max() <= ceiling
    if plan["partition"] == "classes":
        held = [len(set(population.labels[devices == k])) for k in range(plan["devices"])]
        assert max(held) <= plan["classes_per_device"]


@pytest.mark.parametrize(
    ("clustering", "population", "shares"),
    [
        ({}, {}, (60, 20, 20)),  # cross-evaluation tries its cuts on held-out images
        ({"method": "norm-thresholds"}, {}, (80, 0, 20)),
        ({"method": "none"}, {}, (80, 0, 20)),
        ({}, {"validation_share": 0.25}, (55, 25, 20)),
        ({"method": "norm-thresholds"}, {"validation_share": 0.1}, (60, 20, 20)),  # 100 images are few
    ],
)
def test_a_device_trains_on_what_it_does_not_hold_out(clustering, population, shares):
    plan = config(population={"devices": 4, "partition": "iid", **population}, clustering=clustering)
    found = populate(plan, SOURCE)
    for share, size in zip((found.train, found.validation, found.test), shares, strict=True):
        assert [len(positions) for positions in share] == [size] * 4


def test_a_validation_share_leaves_the_test_share_and_the_images_as_they_are():
    with_one, without = (
        populate(config(population={"devices": 4, "validation_share": share}), SOURCE) for share in (0.3, 0.0)
    )
    np.testing.assert_array_equal(with_one.images, without.images)
    assert [part.tolist() for part in with_one.test] == [part.tolist() for part in without.test]


@pytest.mark.parametrize("kind", ["none", "rotate", "permute-labels", "disjoint-classes"])
def test_the_seed_and_nothing_else_decides_the_bytes(kind):
    def made(seed: int) -> list[bytes]:
        plan = config(run={"seed": seed}, population={"devices": 6}, incongruence={"kind": kind, "groups": [3, 3]})
        return contents(populate(plan, SOURCE))

    assert made(1) == made(1)
    assert made(1)[0] != made(2)[0]


def test_a_population_knows_its_source():
    source = image_set(60, classes=3, shape=(3, 4, 5), mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    population = populate(config(population={"devices": 2}), source)
    assert (population.task.outputs, population.mean, population.std) == (3, source.mean, source.std)
    assert population.bits_per_sample == 480  # 3 × 4 × 5 pixels of 8 bits


def test_a_source_may_lack_some_of_its_classes():
    whole = image_set(100, classes=5)
    source = replace(whole, y=2 * whole.y, classes=10)  # 0, 2, 4, 6, 8 of ten
    for partition in ("iid", "dirichlet", "classes"):
        for kind in ("none", "disjoint-classes"):
            plan = config(
                population={"devices": 5, "partition": partition, "min_samples": 5},
                incongruence={"kind": kind, "groups": [3, 2]},
            )
            assert set(populate(plan, source).labels) <= {0, 2, 4, 6, 8}


def test_the_configured_source_is_read():
    population = build_population(config(population={"source": "digits", "devices": 3, "partition": "iid"}))
    assert population.images.shape == (1797, 1, 8, 8)  # 3 × 599
    assert population.devices == 3


def test_too_many_devices_are_refused_by_field():
    assert error_line(populate, config(population={"devices": 41}), SOURCE).startswith("population.devices = 41: ")
