"""F of eq. (4), a cluster's best round (eq. 16) and the objective of P1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.core.objective import Best, assessed, weighted_loss
from fedclade.core.tree import Tree

SAMPLES = np.array([10, 30, 20, 20])
SPLIT = Tree.planted(4).split("0", [[0, 1], [2, 3]], 3, 4.0)


def models(round_: int) -> dict[str, np.ndarray]:
    return {name: np.full(2, round_, dtype=np.float32) for name in ("0", "0.0", "0.1")}


def played(losses: list[list[float]], tree: Tree = SPLIT) -> list:
    """The objective after each of these rounds."""
    found, best = [], dict[str, Best]()
    for round_, loss in enumerate(losses, 1):
        found.append(assessed(round_, tree, models(round_), np.array(loss), SAMPLES, best))
        best = dict(found[-1].best)
    return found


def test_an_objective_by_hand():
    first, second = played([[1.0, 2.0, 3.0, 5.0], [2.0, 2.0, 1.0, 2.0]])
    assert first.losses == pytest.approx({"0.0": 1.75, "0.1": 4.0})
    assert first.loss == pytest.approx((10 + 60 + 60 + 100) / 80)
    assert (first.now, first.least) == pytest.approx((5.75, 5.75))
    assert second.now == pytest.approx(3.5)
    assert second.least == pytest.approx(1.75 + 1.5)  # the first cluster was better a round before
    assert {name: best.round for name, best in second.best.items()} == {"0.0": 1, "0.1": 2}
    assert (second.best["0.0"].model == 1).all()


loss = st.floats(0, 10)
several = st.lists(st.lists(loss, min_size=4, max_size=4), min_size=1, max_size=6)


@given(several)
def test_the_best_is_the_least_of_all_rounds_and_its_model_that_rounds(losses):
    found = played(losses)
    for name in ("0.0", "0.1"):
        until_now = [each.losses[name] for each in found]
        best = found[-1].best[name]
        assert best.loss == min(until_now) == until_now[best.round - 1]
        assert (best.model == best.round).all()
    for each in found:
        assert each.least <= each.now
    least = [each.least for each in found]
    assert least == sorted(least, reverse=True)


@given(st.lists(loss, min_size=4, max_size=4))
def test_the_whole_is_between_its_clusters(losses):
    (found,) = played([losses])
    assert min(found.losses.values()) - 1e-9 <= found.loss <= max(found.losses.values()) + 1e-9
    (one,) = played([losses], Tree.planted(4))
    assert one.now == one.loss == pytest.approx(found.loss)


def test_a_cluster_whose_members_change_begins_anew():
    (first,) = played([[0.1, 0.1, 1.0, 1.0]])
    moved = Tree.planted(4).split("0", [[0], [1, 2, 3]], 3, 4.0)
    after = assessed(2, moved, models(2), np.array([0.5, 0.5, 0.5, 0.5]), SAMPLES, first.best)
    assert after.best["0.0"].loss == 0.5  # not 0.1, which was another's
    assert after.best["0.0"].devices == (0,)


def test_who_does_not_answer_does_not_count():
    first, second = played([[1.0, np.nan, 3.0, 3.0], [np.nan, np.nan, 2.0, np.nan]])
    assert first.losses["0.0"] == 1.0
    assert second.losses == {"0.1": 2.0}
    assert second.best["0.0"].round == 1
    assert np.isnan(weighted_loss(np.full(4, np.nan), SAMPLES))
