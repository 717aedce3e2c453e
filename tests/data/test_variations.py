"""What varies by planted group: each kind by numbers worked out by hand, and the user's own."""

import sys

import numpy as np
import pytest

from data_builders import config, error_line, image_set
from fedclade.config import load
from fedclade.core.plugins import members
from fedclade.data import Source, populate
from fedclade.data.variations import find_variation
from fedclade.data.variations.colour import hue_turn

FEATURES = Source(np.arange(24.0).reshape(12, 2), np.arange(12) % 3).checked("test")


def vary(kind: str, source: Source, groups: int = 2, **more: object):
    return find_variation(config(incongruence={"kind": kind, "groups": [1] * groups, **more}), source)


def image(*pixels: list[list[int]]) -> Source:
    return Source(np.array([pixels] * 2, np.uint8), [0, 1]).checked("test")


def seen(kind: str, source: Source, group: int, **more: object) -> np.ndarray:
    return vary(kind, source, **more)(source.x, source.y, group)[0]


def test_the_kinds_are_those_that_the_config_names():
    from fedclade.config import IncongruenceConfig

    told = IncongruenceConfig.model_fields["kind"].description
    assert all(kind in told for kind in members("fedclade.data.variations"))


def test_contrast_is_a_factor_around_the_middle_grey():
    source = image([[0, 100], [200, 255]])
    assert seen("contrast", source, 0).tolist() == source.x.tolist()
    assert seen("contrast", source, 1)[0, 0].tolist() == [[255, 155], [55, 0]]  # the negative
    assert seen("contrast", source, 1, amounts=[1.0, 0.5])[0, 0].tolist() == [[64, 114], [164, 191]]
    assert seen("contrast", source, 1, amounts=[1.0, 3.0])[0, 0].tolist() == [[0, 45], [255, 255]]


def test_a_blur_keeps_the_ink_and_spreads_it():
    dot = np.zeros((1, 1, 21, 21), np.float32)
    dot[0, 0, 10, 10] = 1000.0
    source = Source(dot, [0]).checked("test")
    blurred = seen("blur", source, 1)[0, 0]
    assert seen("blur", source, 0).tolist() == dot.tolist()
    assert blurred.sum() == pytest.approx(1000.0, rel=1e-3)
    rows = np.arange(21) - 10.0
    assert (blurred.sum(axis=1) * rows**2).sum() / blurred.sum() == pytest.approx(1.5**2, rel=0.02)  # its variance


def test_hue_is_turned_about_grey():
    assert hue_turn(120.0).round(12).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]  # red becomes green
    source = image([[200, 50]] * 2, [[0, 50]] * 2, [[0, 50]] * 2)
    turned = seen("colour", source, 1, groups=3)[0]
    assert turned[:, 0, 0].tolist() == [0, 200, 0]
    assert turned[:, 0, 1].tolist() == [50, 50, 50]


def test_features_are_shifted_by_their_own_deviations():
    moved = seen("feature-shift", FEATURES, 1, amounts=[0.0, 2.0]) - FEATURES.x
    deviation = FEATURES.x.reshape(12, 2).std(axis=0)
    np.testing.assert_allclose(np.abs(moved.reshape(12, 2)), np.tile(2 * deviation, (12, 1)), rtol=1e-5)
    assert np.ptp(moved, axis=0).max() < 1e-5
    assert seen("feature-shift", FEATURES, 0).tolist() == FEATURES.x.tolist()


OWN = """
import numpy as np
def louder(x, y, group, config): return x * (1.0 + group * config.custom["louder"]), y
def negative(x, y, group, config): return x, -y
def single(x, y, group, config): return x
def shorter(x, y, group, config): return x[:1], y
def broken(x, y, group, config): return x * config.custom["loud"], y
number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_groups.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_groups", raising=False)


def test_a_function_of_ones_own_says_what_a_group_sees(own):
    settings = {"devices": 4, "partition": "iid", "min_samples": 2}
    groups = {"kind": "own_groups:louder", "groups": [2, 2]}
    population = populate(config(population=settings, incongruence=groups, custom={"louder": 2.0}), FEATURES)
    plain = populate(config(population=settings), FEATURES)
    assert population.group.tolist() == [0, 0, 1, 1]
    for device, factor in enumerate([1.0, 1.0, 3.0, 3.0]):
        mine = population.train[device]
        np.testing.assert_allclose(population.images[mine], factor * plain.images[mine])


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("own_groups:single", "gave a ndarray, must give a pair (x, y)"),
        ("own_groups:shorter", "gave x as float32 of shape (1, 1, 1, 2), must be float32 of shape (3, 1, 1, 2)"),
        ("own_groups:broken", "fails: KeyError: 'loud'"),
        ("own_groups:number", "must be a function of (x, y, group, config)"),
        ("blurr", "no such kind; did you mean 'blur'?"),
        ("blur", "needs images, not samples of 1×1×2"),
    ],
)
def test_a_mistake_is_told_in_one_line(own, kind, told):
    settings = config(population={"devices": 4, "partition": "iid", "min_samples": 2}, incongruence={"kind": kind})
    assert error_line(populate, settings, FEATURES) == f'incongruence.kind = "{kind}": {told}'


@pytest.mark.parametrize(
    ("kind", "source", "told"),
    [
        ("colour", image_set(20, 2), "needs images of 3 channels"),
        ("feature-shift", image_set(20, 2), "needs plain features"),
        (
            "permute-labels",
            Source(np.ones((6, 2)), np.arange(6.0)).checked("test"),
            "is for classes, and y are numbers",
        ),
    ],
)
def test_what_a_kind_cannot_change_is_refused(kind, source, told):
    assert told in error_line(vary, kind, source)


def test_there_is_one_amount_for_each_group():
    line = error_line(load, None, {"incongruence": {"kind": "blur", "groups": [1, 1], "amounts": [1.0]}})
    assert line.endswith("incongruence.amounts = [1.0]: needs one for each of the 2 groups")
