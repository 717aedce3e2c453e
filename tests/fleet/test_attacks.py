"""Hostile devices: what they say is spoilt, what they are asked is not."""

import numpy as np
import pytest

from data_builders import config, image_set
from fedclade.config import AttackConfig
from fedclade.data import populate
from fedclade.fleet.attacks import HostileTrainer
from fedclade.fleet.questions import Compare, Evaluate, SurveyModels
from fedclade.fleet.simulated.sequential import SequentialTrainer

EVERYBODY = np.arange(10)
ONE_MODEL = np.zeros(10, dtype=np.int64)


@pytest.fixture(scope="module")
def honest() -> SequentialTrainer:
    plan = config(
        population={"devices": 10, "partition": "iid"},
        model={"name": "logistic"},
        training={"epochs": 1, "batch_size": 5, "learning_rate": 0.1},
    )
    return SequentialTrainer(plan, populate(plan, image_set(200, 4)))


def hostile(honest: SequentialTrainer, kind: str = "huge", share: float = 0.2, seed: int = 1) -> HostileTrainer:
    return HostileTrainer(honest, AttackConfig(kind=kind, share=share), 10, seed)


def trained(trainer, round_: int = 1) -> np.ndarray:
    return trainer.train(round_, trainer.initial_model()[None], EVERYBODY, ONE_MODEL)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.2, 2), (0.34, 3), (1.0, 10)])
def test_so_many_devices_are_hostile_and_the_seed_says_which(share, count, honest):
    chosen = hostile(honest, share=share).hostile
    assert len(set(chosen)) == count
    np.testing.assert_array_equal(hostile(honest, share=share).hostile, chosen)
    assert len({tuple(hostile(honest, share=0.3, seed=seed).hostile) for seed in range(9)}) > 3


@pytest.mark.parametrize("kind", ["not-finite", "huge", "sign-flip", "random"])
def test_honest_devices_updates_are_as_they_were(kind, honest):
    attack = hostile(honest, kind)
    others = np.setdiff1d(EVERYBODY, attack.hostile)
    np.testing.assert_array_equal(trained(attack)[others], trained(honest)[others])


def test_each_kind_spoils_updates_in_its_own_way(honest):
    bad = hostile(honest).hostile
    sound = trained(honest)[bad]
    assert np.isnan(trained(hostile(honest, "not-finite"))[bad]).all()
    np.testing.assert_array_equal(trained(hostile(honest, "huge"))[bad], 100 * sound)
    np.testing.assert_array_equal(trained(hostile(honest, "sign-flip"))[bad], -sound)
    noise = trained(hostile(honest, "random"))[bad]
    np.testing.assert_allclose(np.linalg.norm(noise, axis=1), np.linalg.norm(sound, axis=1), rtol=1e-5)
    cosines = (noise * sound).sum(axis=1) / np.linalg.norm(sound, axis=1) ** 2
    assert np.abs(cosines).max() < 0.3  # 260 parameters: standard deviation 0.06


def test_noise_is_the_same_again_and_other_in_another_round_or_on_another_device(honest):
    attack = hostile(honest, "random")
    bad = attack.hostile
    first = trained(attack)[bad]
    np.testing.assert_array_equal(trained(attack)[bad], first)
    unit = [each / np.linalg.norm(each) for each in (*first, *trained(attack, 2)[bad])]
    assert max(abs(float(unit[i] @ unit[j])) for i in range(4) for j in range(i)) < 0.3


def test_what_is_asked_about_models_is_answered_honestly(honest):
    attack = hostile(honest, "sign-flip")
    models = np.stack([honest.initial_model(), 2 * honest.initial_model()])
    np.testing.assert_array_equal(attack.initial_model(), models[0])
    for share in ("train", "validation", "test"):
        asked = models, EVERYBODY, EVERYBODY % 2, share
        np.testing.assert_array_equal(
            Evaluate(*asked).run(attack.examiner).loss, Evaluate(*asked).run(honest.examiner).loss
        )
    asked = models, EVERYBODY, ONE_MODEL, ONE_MODEL + 1
    np.testing.assert_array_equal(Compare(*asked).run(attack.examiner).mean, Compare(*asked).run(honest.examiner).mean)
    mine, theirs = (SurveyModels(models, EVERYBODY).run(trainer.examiner) for trainer in (attack, honest))
    np.testing.assert_array_equal(mine.samples, theirs.samples)
    np.testing.assert_array_equal(mine.misfit, theirs.misfit)
