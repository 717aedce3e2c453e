"""Updates that are not kept answer as those that are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import error_line
from fedclade.core.updates import HeldUpdates, sketch_signs
from fedclade.fleet.simulated import streamed
from fedclade.fleet.simulated.streamed import Recipe, StreamedUpdates
from made_up import PullingTrainer, make

WIDTH, SKETCH = 7, 4
SIGNS = sketch_signs(1, WIDTH)


class Counting(PullingTrainer):
    """Also counts whom it trains."""

    def count(self) -> int:
        return sum(map(len, self.trained))


def both(devices: int, models: int, seed: int, broken: int = 0) -> tuple[Counting, StreamedUpdates, HeldUpdates]:
    """The same updates of half of the devices, streamed and held."""
    draws = np.random.default_rng(seed)
    targets = draws.standard_normal((2 * devices, WIDTH)).astype(np.float32)
    chosen = draws.permutation(2 * devices)[:devices]
    targets[chosen[:broken]] = np.nan
    trainer = Counting(targets, lambda round_: 0.5)
    starts = draws.standard_normal((models, WIDTH)).astype(np.float32)
    recipe = Recipe(3, starts, chosen, draws.integers(0, models, devices))
    held = HeldUpdates.of(chosen, trainer.train(3, starts, chosen, recipe.model_of))
    trainer.trained.clear()
    samples = draws.integers(1, 9, 2 * devices)
    return trainer, StreamedUpdates(trainer, recipe, samples, SIGNS, SKETCH, 1e9), held


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99), st.integers(1, 9))
def test_every_answer_is_that_of_updates_that_are_kept(devices, models, groups, seed, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamed, "CHUNK", chunk)
        _, stream, held = both(devices, models, seed)
        draws = np.random.default_rng(seed + 1)
        some = draws.permutation(held.devices)[: draws.integers(1, devices + 1)]
        group, weights = draws.integers(0, groups, len(some)), draws.random(len(some))
        for mine, theirs in ((stream, held), (stream.among(some), held.among(some))):
            np.testing.assert_array_equal(mine.devices, theirs.devices)
            np.testing.assert_array_equal(mine.norms(some), theirs.norms(some))
            np.testing.assert_array_equal(mine.rows(some), theirs.rows(some))
            np.testing.assert_array_equal(mine.rows(some, slice(2, 4)), theirs.rows(some, slice(2, 4)))
            np.testing.assert_allclose(mine.cosines(some), theirs.cosines(some), atol=1e-6)
            np.testing.assert_allclose(
                mine.sums(some, group, weights, groups), theirs.sums(some, group, weights, groups), atol=1e-5
            )
            np.testing.assert_allclose(
                mine.sketched(SIGNS, SKETCH).rows(mine.devices), theirs.sketched(SIGNS, SKETCH).rows(mine.devices)
            )


@pytest.mark.parametrize("weighting", ["samples", "alike"])
def test_sums_by_model_need_no_second_training(weighting):
    trainer, stream, held = both(40, 3, seed=1)
    everyone, recipe = held.devices, stream._recipe
    weights = stream._weightings[0 if weighting == "samples" else 1]
    asked = everyone, recipe.model_of, weights / weights.sum(), 3
    before = trainer.count()
    np.testing.assert_allclose(stream.sums(*asked), held.sums(*asked), atol=1e-5)
    assert trainer.count() == before == 40


def test_without_a_few_devices_only_those_are_trained_again():
    trainer, stream, held = both(40, 1, seed=2)
    kept = np.delete(held.devices, [3, 17])
    asked = kept, kept * 0, stream._weightings[0][np.isin(held.devices, kept)], 1
    before = trainer.count()
    np.testing.assert_allclose(stream.among(kept).sums(*asked), held.sums(*asked), atol=1e-4)
    assert trainer.count() == before + 2
    stream.among(kept).sums(*asked)
    assert trainer.count() == before + 2  # and an answer is remembered


def test_of_the_sides_of_a_cut_only_the_smaller_is_trained_again():
    trainer, stream, held = both(40, 2, seed=6)
    devices, model_of = stream.devices, stream._recipe.model_of
    first = np.flatnonzero(model_of == 0)
    side = np.isin(np.arange(40), first[: len(first) // 3])  # a third of those who train the first model
    group, before = np.where(model_of == 1, 2, side), trainer.count()
    weights = stream._weightings[0] / np.bincount(group, stream._weightings[0])[group]
    np.testing.assert_allclose(
        stream.sums(devices, group, weights, 3), held.sums(devices, group, weights, 3), atol=1e-5
    )
    assert trainer.count() == before + np.count_nonzero(side)


def test_an_update_that_is_not_finite_spoils_no_sum():
    _, stream, held = both(40, 1, seed=3, broken=2)
    sound = held.devices[np.isfinite(held.norms(held.devices))]
    assert len(sound) == 38
    assert np.isfinite(stream.norms(held.devices)).sum() == 38
    weights = stream._weightings[0][np.isin(held.devices, sound)]
    np.testing.assert_allclose(
        stream.sums(sound, sound * 0, weights, 1), held.sums(sound, sound * 0, weights, 1), atol=1e-4
    )


def test_more_updates_at_once_than_there_is_room_for_are_refused_in_a_line():
    _, stream, held = both(40, 1, seed=4)
    stream._most_bytes = 4.0 * WIDTH * 20
    assert stream.rows(held.devices[:20]).shape == (20, WIDTH)
    assert "training.updates_gb" in error_line(stream.rows, held.devices)
    with pytest.raises(KeyError):
        stream.norms(np.setdiff1d(np.arange(80), held.devices)[:1])


def test_a_server_that_keeps_no_updates_comes_to_the_same_models():
    targets = np.random.default_rng(5).standard_normal((12, 3)).round(2) + np.repeat([[4, 0, 0], [-4, 0, 0]], 6, axis=0)
    states = []
    for gigabytes in (1.0, 1e-9):
        server = make(targets.tolist(), f"training.updates_gb={gigabytes}", "population.devices=12", "run.rounds=5")
        state = server.initial_state()
        for _ in range(3):
            state, _ = server.step(state)
        assert server.fleet.keeps_updates == (gigabytes == 1.0)
        states.append(state)
    kept, passed = states
    assert kept.tree.leaf_of() == passed.tree.leaf_of()
    assert len(kept.models) > 1
    for name, model in kept.models.items():
        np.testing.assert_allclose(passed.models[name], model, atol=1e-5)
