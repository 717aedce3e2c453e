"""A source of one's own: what it may give, what each device then holds, and the line that every mistake gets."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from data_builders import config, error_line, stand_in_folder_with
from fedclade import UserError
from fedclade.data import Population, Source, build_population, populate, read_source
from fedclade.data.archives import read_npz
from fedclade.data.checks import MOST_CLASSES, check_inputs, check_labels
from fedclade.data.given import FORMS
from fedclade.data.source import standardised
from fedclade.fleet.simulated.sgd import Local

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 5)), np.arange(12) % 3
DEVICE = np.array(["b", "a", "c"] * 4)


def population_of(source: Source, devices: int, **sections: dict[str, object]) -> Population:
    return populate(config(**{"population": {"devices": devices}, **sections}), source.checked("here"))


def held(population: Population, device: int) -> np.ndarray:
    shares = (population.train, population.validation, population.test)
    return np.sort(np.concatenate([share[device] for share in shares]))


# -------------------------------------------------------------------------------- devices that are given


def test_each_device_holds_its_own_samples_numbered_by_ascending_id():
    population = population_of(Source(X, Y, device=DEVICE), 3)
    for number, name in enumerate("abc"):
        own = held(population, number)
        np.testing.assert_array_equal(population.images[own, 0, 0], X[name == DEVICE].astype(np.float32))
        np.testing.assert_array_equal(population.labels[own], Y[name == DEVICE])
    assert (population.task.outputs, population.group.tolist()) == (3, [0, 0, 0])


def test_pairs_are_devices_in_their_order_with_the_groups_they_are_said_to_have():
    pairs = [(X[:2], Y[:2]), (X[2:9], Y[2:9]), (X[9:], Y[9:])]
    population = population_of(Source.of_devices(pairs, group=[1, 0, 1], classes=7), 3)
    assert [len(held(population, device)) for device in range(3)] == [2, 7, 3]
    np.testing.assert_array_equal(population.images[:, 0, 0], X.astype(np.float32))
    assert (population.group.tolist(), population.task.outputs) == ([1, 0, 1], 7)


@given(st.lists(st.integers(2, 6), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_every_sample_reaches_its_device_once_in_whatever_order_it_comes(sizes, random):
    device = np.repeat(np.arange(len(sizes)), sizes) * 10 - 7
    order = np.array(random.sample(range(len(device)), len(device)))
    x = np.arange(len(device), dtype=np.float32)[:, None]
    population = population_of(Source(x[order], np.zeros(len(x), int), device=device[order]), len(sizes))
    for number, size in enumerate(sizes):
        mine = population.images[held(population, number)].ravel()
        assert len(mine) == size
        assert sorted(mine) == np.flatnonzero(device == number * 10 - 7).tolist()


def test_columns_of_a_frame_and_single_numbers_are_taken_for_arrays():
    frame = pd.DataFrame({"device": DEVICE, "reading": X[:, 0], "meaning": Y})
    given = Source(frame[["reading"]], frame["meaning"], device=frame["device"], classes=np.int64(4), mean=2, std=0.5)
    source = given.checked("here")
    assert (source.x.shape, source.classes, source.mean, source.std) == ((12, 1, 1, 1), 4, (2.0,), (0.5,))
    assert source.device.tolist() == [1, 0, 2] * 4
    assert Source.of_devices(pair for pair in [(X, Y), (X, Y)]).checked("here").device.tolist() == [0] * 12 + [1] * 12


def test_groups_can_be_planted_among_given_devices():
    images = RNG.integers(0, 256, (12, 4, 4), dtype=np.uint8)
    turned = population_of(
        Source(images, Y, device=np.repeat([0, 1], 6)), 2, incongruence={"kind": "rotate", "groups": [1, 1]}
    )
    assert turned.group.tolist() == [0, 1]
    np.testing.assert_array_equal(turned.images[6:, 0], np.rot90(images[6:], 2, axes=(1, 2)))


@pytest.mark.parametrize(
    ("kind", "group", "right"),
    [
        ("rotate", [0, 1, 1], 'has groups of its own; set "none"'),
        ("disjoint-classes", None, "says itself which device holds what"),
        ("rotate", None, "needs square images, not 1×5"),
    ],
)
def test_what_cannot_be_planted_among_given_devices_is_refused(kind, group, right):
    source = Source(X, Y, device=DEVICE, group=group)
    incongruence = {"kind": kind, "groups": [2, 1], **({"angles": [0.0, 90.0]} if kind == "rotate" else {})}
    line = error_line(lambda: population_of(source, 3, incongruence=incongruence))
    assert line.startswith(f'incongruence.kind = "{kind}": ')
    assert right in line


def test_the_number_of_devices_is_the_datas_and_the_config_must_say_the_same():
    line = error_line(population_of, Source(X, Y, device=DEVICE), 20)
    assert line == "population.devices = 20: source mnist5k gives 3 devices; set 3"


# -------------------------------------------------------------------------------- numbers as models see them


def test_floats_reach_the_model_as_they_are_and_bytes_divided_by_255():
    floats = population_of(Source(X, Y, device=DEVICE), 3)
    assert (floats.images.dtype, floats.full_scale, floats.bits_per_sample) == (np.float32, 1.0, 5 * 32)
    pixels = population_of(Source(np.zeros((12, 5), np.uint8), Y, device=DEVICE), 3)
    assert (pixels.images.dtype, pixels.full_scale, pixels.bits_per_sample) == (np.uint8, 255.0, 5 * 8)


def test_each_feature_is_standardised_over_all_devices_if_the_config_says_so():
    x = X * np.arange(1, 6) + 7
    x[:, 4] = 3.0  # one that never changes
    found = population_of(Source(x, Y, device=DEVICE), 3, population={"devices": 3, "standardise": True})
    local = Local(config(model={"name": "logistic"}), found, "autograd")
    seen = local.inputs(torch.arange(12)).numpy()[:, 0, 0]
    np.testing.assert_allclose(seen.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(seen.std(0), [1, 1, 1, 1, 0], atol=1e-5)


def test_each_channel_of_images_is_standardised_with_few_of_them_in_memory(monkeypatch):
    monkeypatch.setattr("fedclade.data.source.AT_ONCE", 5)
    images = RNG.integers(0, 200, (12, 3, 4, 4), dtype=np.uint8)
    found = standardised(Source(images, Y).checked("here"))
    np.testing.assert_allclose(found.mean, images.mean((0, 2, 3)) / 255)
    np.testing.assert_allclose(found.std, images.std((0, 2, 3)) / 255)


def test_a_mean_for_each_feature_reaches_each_feature():
    mean, std = (1.0, 2.0, 3.0, 4.0, 5.0), (1.0, 2.0, 1.0, 2.0, 1.0)
    found = population_of(Source(X, Y, device=np.zeros(12, int), mean=mean, std=std), 1)
    seen = Local(config(model={"name": "logistic"}), found, "autograd").inputs(torch.arange(12)).numpy()[:, 0, 0]
    np.testing.assert_allclose(seen, (X - mean) / std, rtol=1e-5, atol=1e-5)


def test_a_pool_of_floats_is_dealt_out():
    x = np.arange(60, dtype=np.float64)[:, None]
    population = population_of(Source(x, np.arange(60) % 3), 3)
    assert population.devices == 3
    assert set(population.images.ravel()) <= set(x.ravel())
    np.testing.assert_array_equal(population.images.ravel() % 3, population.labels)


# -------------------------------------------------------------------------------- a function of the user's own

FUNCTIONS = """
import numpy as np
from fedclade.data import Source

X, Y = np.arange(24.0).reshape(12, 2), np.arange(12) % 3

def pool(config):
    return X, Y

def owned(config):
    return X, Y, np.arange(12) % config.population.devices

def source(config):
    return Source.of_devices([(X[:6], Y[:6]), (X[6:], Y[6:])], group=[0, 1])

def four(config):
    return X, Y, Y, Y

def mapping(config):
    return {"x": X}

def uneven(config):
    return Source.of_devices([(X, Y), (X[:, :1], Y)])

def short(config):
    return X, Y[:5]

def broken(config):
    return config.population.no_such_field

no_function = 3
"""


@pytest.fixture
def my_data(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "my_data_functions", FUNCTIONS)


def read_own(function: str, devices: int = 4) -> Source:
    source = f"my_data_functions:{function}"
    return read_source(config(population={"source": source, "devices": devices}))


@pytest.mark.usefixtures("my_data")
def test_a_users_function_gives_a_pool_or_the_devices_own():
    assert read_own("pool").device is None
    assert read_own("owned").device.tolist() == [0, 1, 2, 3] * 3
    assert read_own("source").group.tolist() == [0, 1]
    population = build_population(config(population={"source": "my_data_functions:owned", "devices": 4}))
    assert population.samples.sum() + sum(map(len, (*population.test, *population.validation))) == 12


@pytest.mark.usefixtures("my_data")
@pytest.mark.parametrize(
    ("function", "right"),
    [
        ("four", f"is of type tuple of 4, must be {FORMS}"),
        ("mapping", f"is of type dict, must be {FORMS}"),
        ("uneven", "device 1: x is float32 of C×H×W = 1×1×1, must be float32 of C×H×W = 1×1×2 as device 0's is"),
        ("short", "y has shape (5,), must be (12,): one label for every sample"),
        ("broken", "fails: AttributeError: 'PopulationConfig' object has no attribute 'no_such_field'"),
        ("no_function", "must be a function of the config"),
    ],
)
def test_a_function_of_something_else_is_refused(function, right):
    assert error_line(read_own, function) == f'population.source = "my_data_functions:{function}": {right}'


def test_an_unknown_source_suggests_the_near_one():
    assert error_line(read_source, config(population={"source": ""})).startswith(
        'population.source = "": no such source'
    )
    line = error_line(read_source, config(population={"source": "mnist5"}))
    assert line.startswith("population.source = \"mnist5\": no such source; did you mean 'mnist5k'?")
    line = error_line(read_source, config(population={"source": "zzz"}))
    assert "known: cifar10, digits, femnist, mix, mnist5k" in line


# -------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("changes", "right"),
    [
        ({"x": -np.arange(12)[:, None]}, "x has -11; whole numbers are token ids and must be from 0 to 2147483647"),
        ({"x": np.full((12, 2), 2**40)}, "x has 1099511627776; whole numbers are token ids"),
        ({"x": Y[:, None], "mean": 1.0}, "mean and std are of numbers, and x are token ids; leave them out"),
        ({"x": X.astype(complex)}, "x must be numbers, not complex128"),
        ({"x": np.float32(1)}, "x is a single number, must have an entry for every sample"),
        ({"x": X[:, :0]}, "x of shape (12, 0) is empty"),
        ({"x": [[1.0], [1.0, 2.0]]}, "x must be an array of numbers"),
        ({"x": np.where(X[3, 3] == X, np.nan, X)}, "x is not finite in sample 3"),
        ({"x": X * 1e300}, "x is not finite in sample 0; must hold no NaN and nothing beyond float32"),
        ({"y": Y[:, None]}, "y has shape (12, 1), must be (12,)"),
        ({"y": Y / 2, "targets": "classes"}, "y is float64, must be whole numbers from 0"),
        ({"y": Y - 1}, "y has label -1, must be whole numbers from 0"),
        ({"y": Y.astype(np.uint64) + 2**63}, f"must be below {MOST_CLASSES}"),
        ({"classes": 2}, "y has label 2, must be below 2"),
        ({"device": DEVICE[:3]}, "device has shape (3,), must be (12,)"),
        ({"device": X[:, 0]}, "device is float64, must be whole numbers or texts"),
        ({"device": np.where(np.arange(12) == 5, "lone", "crowd")}, "device lone has 1 sample, must have at least 2"),
        ({"writer": Y[:5]}, "writer has shape (5,), must be (12,)"),
        ({"group": [0, 1]}, "group must be 3 whole numbers from 0: one for each device"),
        ({"group": [0, 1, -1]}, "group must be 3 whole numbers from 0"),
        ({"group": [0, 1, 0.5]}, "group must be 3 whole numbers from 0"),
        ({"group": [0, 1, 1], "device": None}, "group is of devices, so that it needs device"),
        ({"mean": (0.0, 0.0)}, "mean = (0.0, 0.0): must be one finite number, or one for each of 5 features"),
        ({"mean": "dark"}, "mean = dark: must be one finite number"),
        ({"classes": -1}, f"classes = -1: must be a whole number from 0 to {MOST_CLASSES}"),
        ({"classes": "ten"}, "classes = ten: must be a whole number"),
        ({"group": [[0], [1, 2], 3]}, "group must be an array of numbers"),
        ({"device": np.array(["a", 1, None] * 4, dtype=object)}, "device is object, must be whole numbers or texts"),
        ({"std": (np.nan,)}, "std = (nan,): must be one finite number"),
        ({"std": (0.0,)}, "std = (0.0,): must be greater than 0"),
    ],
)
def test_every_mistake_is_one_line_that_says_what_would_be_right(changes, right):
    line = error_line(lambda: Source(**{"x": X, "y": Y, "device": DEVICE, **changes}).checked("here"))
    assert line.startswith("here: ")
    assert right in line


@pytest.mark.parametrize(
    ("devices", "right"),
    [
        ([], "no devices are given; must be at least one pair (x, y)"),
        ([(X, Y), X], "device 1: must be a pair (x, y), not a ndarray"),
        ([(X, Y), (X[:0], Y[:0])], "device 1: x of shape (0, 5) is empty"),
        ([(X, Y), (X, Y[1:])], "device 1: y has shape (11,), must be (12,)"),
        ([(X, Y), (X.astype(np.uint8), Y)], "device 1: x is uint8 of C×H×W = 1×1×5, must be float32"),
    ],
)
def test_a_mistake_in_one_devices_arrays_names_the_device(devices, right):
    assert right in error_line(Source.of_devices, devices)


def outcome(function: Callable[..., object], *arguments: object) -> object:
    """What the function gives, or the line with which it refuses."""
    try:
        return function(*arguments)
    except UserError as error:
        return str(error)


def is_one_line(found: object, beginning: str) -> bool:
    return isinstance(found, str) and found.startswith(beginning) and len(found.splitlines()) == 1


any_array = arrays.arrays(
    dtype=st.sampled_from([np.uint8, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_, "U2"]),
    shape=arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
)


@given(any_array)
def test_any_array_becomes_what_models_are_fed_with_or_is_refused_in_one_line(x):
    inputs = outcome(check_inputs, "here", x)
    if is_one_line(inputs, "here: x "):
        return
    assert inputs.ndim == max(4, x.ndim)
    assert inputs.dtype == {"u": np.int32, "i": np.int32}.get(x.dtype.kind, np.float32) or inputs.dtype == np.uint8
    assert (inputs.dtype == np.uint8) == (x.dtype == np.uint8)
    assert np.isfinite(inputs).all()
    np.testing.assert_array_equal(inputs.ravel(), x.astype(inputs.dtype).ravel())


@given(any_array, st.integers(0, 4), st.integers(0, 4))
def test_any_array_becomes_labels_below_the_classes_or_is_refused_in_one_line(y, count, classes):
    labels = outcome(check_labels, "here", y, count, classes)
    if is_one_line(labels, "here: y "):
        return
    assert (labels.shape, labels.dtype) == ((count,), np.int64)
    np.testing.assert_array_equal(labels, y)
    assert all(0 <= label < (classes or MOST_CLASSES) for label in labels)


# -------------------------------------------------------------------------------- archives


@given(st.data())
def test_a_damaged_archive_is_read_or_refused_in_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("archive") / "mine.npz"
    (np.savez if data.draw(st.booleans()) else np.savez_compressed)(path, x=X, y=Y)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
    found = outcome(read_npz, path, ("x", "y"), "mine.npz: needs x and y")
    assert is_one_line(found, "mine.npz: needs x and y: ") or [type(array) for array in found] == [np.ndarray] * 2


def test_an_archive_that_would_need_unpickling_is_refused(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.array([{"a": 1}]), y=Y)
    assert "pickle" in error_line(read_npz, tmp_path / "mine.npz", ("x", "y"), "mine.npz: needs x and y")
