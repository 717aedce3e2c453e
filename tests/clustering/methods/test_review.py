"""Who moves where devices differ one by one: made-up images, so that what is true is known."""

from types import SimpleNamespace

import numpy as np

from fedclade.clustering.methods.cross_evaluation.review import replaced, served_better
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
