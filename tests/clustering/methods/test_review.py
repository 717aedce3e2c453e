"""Who moves where devices differ one by one: made-up images, so that what is true is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedclade.clustering.method import Merge
from fedclade.clustering.methods.cross_evaluation.memory import Known
from fedclade.clustering.methods.cross_evaluation.review import parted_in_vain, replaced, served_better
from fedclade.clustering.methods.cross_evaluation.without_own import PayTest
from fedclade.config import CrossEvaluationConfig
from fedclade.core.tree import Tree

SETTINGS = CrossEvaluationConfig()


class Images:
    """Devices with so many images each; ``fits[device][model]``: the misfit of a model on each of them, in turn."""

    classes = 3

    def __init__(self, fits: list[list[list[float]]]) -> None:
        self._fits = [np.array(each) for each in fits]
        self.asked = list[str]()

    def positions(self, device: int, share: str) -> np.ndarray:
        self.asked.append(share)
        return device * 1000 + np.arange(self._fits[device].shape[1])

    def labels(self, positions: np.ndarray) -> np.ndarray:
        return positions % self.classes

    def scores(self, model: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        fits = np.array([self._fits[place // 1000][int(model[0]), place % 1000] for place in positions])
        return 1 - fits, -2 * np.log1p(-fits)

    def losses(self, models: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return np.stack([self.scores(model, positions)[1] for model in models])

    def ask(self, question):
        return question.run(self)


def moves_of(fits: list[list[list[float]]], samples: list[int]) -> dict[int, str]:
    """Devices 0 and 1 are in the first leaf, the others in the second."""
    count = len(fits)
    tree = Tree.planted(count).split("0", [[0, 1], [*range(2, count)]], 1, 1.0)
    models = {"0": np.array([9.0]), "0.0": np.array([0.0]), "0.1": np.array([1.0])}
    state = SimpleNamespace(tree=tree, models=models, samples=np.array(samples))
    images = Images(fits)
    moves = served_better(state, np.arange(count), SETTINGS, images)
    assert set(images.asked) == {"validation"}
    return {move.device: move.to for move in moves}


def fits_of(first: float, second: float, spread: float = 0.05, images: int = 9) -> list[list[float]]:
    wave = spread * np.resize([1.0, -1.0], images)
    return [(first + wave).tolist(), (second - wave).tolist()]


def test_who_is_served_better_elsewhere_beyond_doubt_goes_there():
    home, strange = fits_of(0.2, 0.8), fits_of(0.8, 0.2)
    assert moves_of([home, strange, strange, strange], [100] * 4) == {1: "0.1"}
    assert moves_of([home, home, strange, home], [100] * 4) == {3: "0.0"}
    assert moves_of([home, home, strange, strange], [100] * 4) == {}


def test_a_device_of_few_images_is_not_held_by_a_test():
    home, strange, doubtful = fits_of(0.2, 0.8), fits_of(0.8, 0.2), fits_of(0.6, 0.5, spread=0.3)
    few = SETTINGS.sure_images - 1
    assert moves_of([home, doubtful, strange, strange], [100, 100, 100, 100]) == {}
    assert moves_of([home, doubtful, strange, strange], [100, few, 100, 100]) == {1: "0.1"}
    assert moves_of([home, fits_of(0.5, 0.6, spread=0.3), strange, strange], [100, few, 100, 100]) == {}


def test_nobody_moves_to_where_it_loses_whatever_the_others_there_say():
    tree = Tree.planted(8).split("0", [[0, 1, 2, 3], [4, 5, 6, 7]], 1, 1.0)
    models, everyone = {"0.0": np.array([0.0]), "0.1": np.array([1.0])}, np.arange(8)
    for second, moving in ((0.7, []), (0.4, [1])):  # the new model's misfit for a device whose own one's is 0.4
        fits = [fits_of(0.1, 0.9), fits_of(0.4, second), *[fits_of(0.1, 0.9)] * 2, *[fits_of(0.5, 0.5)] * 4]
        moves = replaced(tree, models, everyone, everyone, SETTINGS, Images(fits))
        assert [move.device for move in moves] == moving


class Rehearsed:
    """What parting costs, made up; keeps what was asked."""

    def __init__(self, cost: float) -> None:
        self.cost, self.asked = cost, list[tuple[list[float], list[bool]]]()

    def pay_test(self, state, start, devices, side):
        self.asked.append((start.tolist(), side.tolist()))
        return PayTest((0.1, 0.1), (0.01, 0.01), 0.01, self.cost, self.cost, len(devices) // 2)


MERGE = Merge("0.0.1", "0.0.0")


def merged_if(cost: float, heard: int = 8, told: dict[str, float] | None = None, round_: int = 3):
    """Whether two clusters born in round 2 are one, where the best help was 1; and what was asked."""
    tree = Tree.planted(8).split("0", [[*range(4), *range(5, 8)], [4]], 1, 1.0)
    tree = tree.split("0.0", [[0, 1, 2, 3], [5, 6, 7]], 2, 2.0, evidence=told or {"p_group": 1e-9})
    known = Known(np.full(8, np.nan), {}, None, one_by_one=True, best_help=1.0)
    state, rehearsed = SimpleNamespace(tree=tree, samples=np.full(8, 10), method=known, round=round_), Rehearsed(cost)
    models = {"0.0.0": np.array([0], np.float32), "0.0.1": np.array([1], np.float32)}
    return parted_in_vain(state, models, np.arange(heard), MERGE, SETTINGS, rehearsed), rehearsed.asked


def test_clusters_parted_before_devices_were_known_to_differ_one_by_one_join_again_unless_that_costs_much():
    enough = SETTINGS.pays_share
    merge, ((start, side),) = merged_if(enough - 0.01)
    assert (merge.node, merge.into) == ("0.0.1", "0.0.0")
    assert merge.evidence["cost"] == enough - 0.01
    assert start == pytest.approx([3 / 7])  # the mean of both, by data
    assert side == [False] * 4 + [True] * 3
    assert merged_if(enough)[0] is None


def test_clusters_that_were_parted_as_it_paid_or_long_ago_or_just_now_or_were_not_heard_stay():
    assert merged_if(0.0, round_=2 + SETTINGS.pays_after)[0] is not None
    for given in ({"told": {"cost": 0.0}}, {"round_": 2}, {"round_": 3 + SETTINGS.pays_after}, {"heard": 5}):
        assert merged_if(0.0, **given) == (None, [])
