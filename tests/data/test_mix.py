"""Devices of different data sets in one population."""

import numpy as np
import pytest

from data_builders import config, error_line
from fedclade.data import populate, read_source
from fedclade.data.sources.mix import scaled


def of(**population):
    groups = population.pop("groups", [1])
    settings = {"source": "mix", "devices": 7, "partition": "iid", **population}
    return config(population=settings, incongruence={"groups": groups})


def test_each_device_has_images_of_one_set_and_the_set_is_its_group():
    settings = of(groups=[4, 3])
    source = read_source(settings)
    population = populate(settings, source)
    assert (source.group.tolist(), source.classes) == ([0] * 4 + [1] * 3, 10)
    assert (population.group.tolist(), source.x.shape[1:], source.x.dtype) == ([0] * 4 + [1] * 3, (1, 28, 28), np.uint8)
    sizes = np.bincount(source.device)
    assert sizes[:4].sum() == 5000
    assert sizes[4:].sum() == 3 * (1797 // 3)
    digits = read_source(config(population={"source": "digits"}))
    one = source.x[source.device == 4][0]
    assert any(
        np.array_equal(one, image)
        for image in scaled(digits.x[digits.y == source.y[source.device == 4][0]], (1, 28, 28))
    )


def test_without_sizes_of_groups_devices_are_divided_evenly():
    assert np.bincount(read_source(of(devices=8)).group).tolist() == [4, 4]


def test_images_are_scaled_by_interpolation_and_grey_ones_coloured():
    ramp = np.array([[[[0, 100], [0, 100]]]], np.uint8)
    larger = scaled(ramp, (3, 4, 4))
    assert larger.shape == (1, 3, 4, 4)
    assert larger[0, 1, 0].tolist() == [0, 25, 75, 100]
    assert scaled(ramp, (1, 2, 2)) is ramp


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mix": ["digits", "mix"]}, "population.mix: names 'mix' itself"),
        ({"mix": ["digits", "topics"]}, "population.mix: 'topics' is no pool of 8-bit images"),
        ({"mix": ["digits", "digit"]}, 'population.source = "digit": no such source'),
        ({"devices": 1}, "population.devices = 1: must be at least 2, one for each of population.mix"),
    ],
)
def test_mistakes_are_told_in_one_line(changes, told):
    assert told in error_line(lambda: read_source(of(**changes)))
