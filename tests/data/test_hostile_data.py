"""Values that no data may hold are refused in one line, whatever kind of file they come in: one test for each."""

from pathlib import Path

import numpy as np
import pytest

from data_builders import error_line
from fedclade import Experiment
from tiny_runs import fedclade, refusal

X, Y, DEVICE = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 3, np.repeat([0, 1, 2], 4)
CLASSES = ("--set", "population.targets=classes")


def archive(folder: Path, **changes: np.ndarray) -> Path:
    """One file of three devices."""
    np.savez(folder / "all.npz", **{"x": X, "y": Y, "device": DEVICE, **changes})
    return folder / "all.npz"


def table(folder: Path, label: str) -> Path:
    """The same as a table, whose last label is another."""
    labels = [*map(str, Y[:-1]), label]
    rows = [f"{a},{b},{device},{y}" for (a, b, _), device, y in zip(X, DEVICE, labels, strict=True)]
    (folder / "all.csv").write_text("\n".join(["a,b,device,y", *rows]))
    return folder / "all.csv"


def with_last(array: np.ndarray, value: object) -> np.ndarray:
    """The array with another last entry."""
    changed = array.copy()
    changed.flat[-1] = value
    return changed


def images(folder: Path) -> Path:
    """One pixel of the last is not a number."""
    return archive(folder, x=with_last(np.zeros((12, 8, 8)), np.nan))


def test_nan_pixels_are_refused(tmp_path):
    right = "x is not finite in sample 11; must hold no NaN and nothing beyond float32"
    assert refusal("check-data", images(tmp_path)).endswith(right)
    devices = [(np.full((4, 8, 8), np.nan), np.arange(4)), (np.zeros((4, 8, 8)), np.arange(4))]
    assert "x is not finite in sample 0" in error_line(lambda: Experiment("own-data", devices=devices))


@pytest.mark.parametrize("label", [10**9, 2**63])
def test_a_label_of_1e9_or_2_to_the_63_is_refused(tmp_path, label):
    told = f"y has label {label}, must be below 100000"
    assert refusal("check-data", archive(tmp_path, y=with_last(Y.astype(np.uint64), label))).endswith(told)
    assert str(label) in refusal("check-data", table(tmp_path, str(label)), *CLASSES)


def test_a_label_of_1_7_is_no_class_and_floats_are_told_as_numbers_before_anybody_trains(tmp_path):
    for path in (archive(tmp_path, y=with_last(Y.astype(float), 1.7)), table(tmp_path, "1.7")):
        assert "must be whole numbers from 0" in refusal("check-data", path, *CLASSES)
        told = fedclade("check-data", path)
        assert (told.code, "Classes" in told.out) == (0, False)
        assert "Numbers     to be told, 0 to 2" in told.out


def test_zero_height_images_are_refused(tmp_path):
    for shape in ((12, 0, 8), (12, 1, 0, 8), (12, 8, 0)):
        told = refusal("check-data", archive(tmp_path, x=np.zeros(shape, np.uint8)))
        assert told.endswith("is empty; must hold at least one sample")


def test_a_token_of_2_to_the_63_is_refused(tmp_path):
    x = with_last(np.ones((12, 3), np.uint64), 2**63)
    assert f"x has {2**63}; whole numbers are token ids" in refusal("check-data", archive(tmp_path, x=x))
