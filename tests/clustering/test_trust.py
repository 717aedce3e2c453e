"""Whose answers count."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.clustering.method import Conversation
from fedclade.clustering.trust import agreement, contradicted, unheard
from fedclade.data.poison import hostile_devices
from fedclade.fleet.answers import CutOpinion, Evaluation, Paired, Survey
from fedclade.fleet.fleet import Answers, Cost
from tiny_runs import digits

SEEDS = st.integers(0, 10_000)


def answers(
    rng: np.random.Generator, group: np.ndarray, liars: list[int], noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """What devices of some groups say of one another: those of one group help each other; liars say the reverse."""
    weight = rng.uniform(5, 50, (len(group), len(group)))
    np.fill_diagonal(weight, 0.0)
    signal = weight * np.where(group[:, None] == group, 1.0, -0.5) + noise * np.sqrt(weight) * rng.normal(
        size=weight.shape
    )
    signal[liars] *= -1
    return signal.astype(np.float32), weight.astype(np.float32)


@given(SEEDS, st.integers(12, 40), st.integers(2, 4), st.floats(0.0, 1.0), st.sampled_from([1.0, 100.0]), st.data())
def test_a_fifth_of_liars_is_found_and_nobody_else_however_loud_they_are(seed, devices, kinds, noise, loud, data):
    rng = np.random.default_rng(seed)
    liars = sorted(data.draw(st.sets(st.integers(0, devices - 1), max_size=devices // 5)))
    signal, weight = answers(rng, np.arange(devices) % kinds, liars, noise)
    signal[liars] *= loud
    assert np.flatnonzero(contradicted(signal, weight, 0.5)).tolist() == liars


@given(SEEDS, st.integers(2, 40))
def test_where_devices_do_not_agree_as_a_rule_nobody_is_doubted(seed, devices):
    rng = np.random.default_rng(seed)
    weight = 1.0 - np.eye(devices)
    assert not contradicted(weight * rng.normal(size=weight.shape), weight, 0.5).any()


@given(SEEDS)
def test_a_group_in_the_minority_that_tells_the_truth_is_believed(seed):
    signal, weight = answers(np.random.default_rng(seed), np.repeat([0, 1], [17, 3]), [], 0.5)
    assert not contradicted(signal, weight, 0.5).any()


def test_nothing_is_known_of_devices_that_were_not_asked():
    signal, weight = answers(np.random.default_rng(0), np.arange(16) % 2, [], 0.1)
    signal[3], weight[3] = 0.0, 0.0
    found = agreement(signal, weight)
    assert np.flatnonzero(np.isnan(found)).tolist() == [3]
    assert np.nanmin(found) > 0.8
    assert np.isnan(agreement(np.zeros((5, 5)), np.zeros((5, 5)))).all()


def paired(rows: int) -> Paired:
    return Paired(np.full((rows, 2), 3), np.ones((rows, 2)), np.ones((rows, 2)))


ANSWERS = [
    Evaluation(np.ones(3), np.ones(3), np.full(3, 7)),
    paired(3),
    CutOpinion(paired(3), paired(3)),
    Survey(np.full((3, 2), 4), np.ones((3, 1, 2))),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_entry_that_is_not_heard_counts_no_images(answer):
    found = unheard(answer, np.array([False, True, False]))
    parts = [found.preference, found.gain] if isinstance(found, CutOpinion) else [found]
    for part in parts:
        assert part.samples.reshape(3, -1).any(axis=1).tolist() == [True, False, True]
    if isinstance(found, Evaluation):
        assert np.isnan(found.loss).tolist() == np.isnan(found.score).tolist() == [False, True, False]


def test_an_answer_of_a_kind_of_ones_own_stays_as_it_is():
    assert unheard("mine", np.array([True])) == "mine"


@pytest.mark.parametrize(("doubted", "heard"), [([], [1, 1]), ([4], [1, 0]), ([2, 4], [1, 1])])
def test_a_conversation_does_not_hear_whom_it_doubts_unless_nobody_else_was_asked(doubted, heard):
    answer = Survey(np.ones((2, 1), dtype=np.int64), np.zeros((2, 1, 1)))
    fleet = SimpleNamespace(ask=lambda question: Answers(answer, Cost.nothing(5)))
    talk = Conversation(fleet, 5, np.array(doubted, dtype=np.int64))
    assert talk.ask(SimpleNamespace(devices=np.array([2, 4]))).samples[:, 0].tolist() == heard


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fifth_that_lie_in_surveys_and_comparisons_are_found_and_keep_nobody_from_the_groups(seed):
    experiment = digits("attack.lies=true", f"run.seed={seed}")
    state = experiment.server.initial_state()
    for _ in range(3):
        state, _ = experiment.server.step(state)
    liars = hostile_devices(experiment.config.attack, 12, seed)
    assert state.method.doubted.tolist() == liars.tolist()
    honest = np.setdiff1d(np.arange(12), liars).tolist()
    leaf_of, group = state.tree.leaf_of(), experiment.population.group
    assert len({(leaf_of[device], group[device]) for device in honest}) == len({leaf_of[k] for k in honest}) == 2
