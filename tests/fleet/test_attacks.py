"""Hostile devices: what they upload is spoilt, what they hold, or what they answer; all else is as it was."""

import numpy as np
import pytest

from data_builders import config, image_set
from fedclade.config import AttackConfig
from fedclade.data import populate
from fedclade.data.poison import POISONED_SHARE, TARGET, TRIGGER_SIDE, hostile_devices, poisoned, triggered
from fedclade.fleet.answers import CutOpinion, Evaluation, Paired, Survey
from fedclade.fleet.attacks import SPOILS, HostileTrainer, reversed_by
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


@pytest.mark.parametrize("kind", SPOILS)
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


def test_colluding_devices_send_one_and_the_same_update_and_a_free_rider_none(honest):
    bad = hostile(honest).hostile
    sound, everyone = trained(honest)[bad], trained(honest)
    np.testing.assert_array_equal(trained(hostile(honest, "free-rider"))[bad], 0 * sound)
    np.testing.assert_array_equal(trained(hostile(honest, "sybil"))[bad], [-sound[0]] * 2)
    np.testing.assert_allclose(
        trained(hostile(honest, "inner-product"))[bad], [-3 * everyone.mean(axis=0)] * 2, rtol=1e-4
    )
    # of ten, four honest ones must side with the two: z = Φ⁻¹((10 - 2 - 4) / 8) = 0, so they send the mean itself
    np.testing.assert_allclose(trained(hostile(honest, "alie"))[bad], [everyone.mean(axis=0)] * 2, atol=1e-6)
    four = hostile(honest, "alie", share=0.4)  # of six honest ones two must side with them: Φ⁻¹(4 / 6) = 0.43
    away = (everyone.mean(axis=0) - trained(four)[four.hostile[0]]) / np.maximum(everyone.std(axis=0), 1e-12)
    moving = everyone.std(axis=0) > 1e-4
    np.testing.assert_allclose(away[moving], 0.4307, rtol=1e-2)


def test_hostile_devices_that_train_different_models_spoil_each_among_those_who_train_it(honest):
    attack, model_of = hostile(honest, "inner-product", share=0.4), EVERYBODY % 2
    models = np.stack([honest.initial_model(), 2 * honest.initial_model()])
    sound, spoilt = (one.train(1, models, EVERYBODY, model_of) for one in (honest, attack))
    for device in attack.hostile:
        mean = sound[model_of == device % 2].mean(axis=0)
        np.testing.assert_allclose(spoilt[device], -3 * mean, rtol=1e-4, atol=1e-7)


@pytest.fixture(scope="module")
def clean():
    return populate(config(population={"devices": 10, "partition": "iid"}), image_set(200, 4))


def test_flipped_labels_are_those_of_hostile_devices_but_for_test_images(clean):
    attack = AttackConfig(kind="label-flip")
    bad, spoilt = hostile_devices(attack, 10, 1), poisoned(clean, attack, 1)
    for device in EVERYBODY:
        for share in ("train", "validation", "test"):
            before, after = (getattr(one, share)[device] for one in (clean, spoilt))
            flipped = device in bad and share != "test"
            right = clean.labels[before]
            np.testing.assert_array_equal(spoilt.labels[after], 3 - right if flipped else right)
            np.testing.assert_array_equal(spoilt.images[after], clean.images[before])
    assert poisoned(clean, AttackConfig(kind="huge"), 1) is clean


def test_a_backdoor_is_a_bright_square_in_half_of_the_images_that_leads_to_one_class(clean):
    attack = AttackConfig(kind="backdoor", share=0.1)
    (bad,), spoilt = hostile_devices(attack, 10, 1), poisoned(clean, attack, 1)
    before, after = clean.train[bad], spoilt.train[bad]
    changed = (clean.images[before] != spoilt.images[after]).any(axis=(1, 2, 3))
    assert changed.sum() == round(POISONED_SHARE * len(before))
    assert (spoilt.labels[after][changed] == TARGET).all()
    np.testing.assert_array_equal(spoilt.labels[after][~changed], clean.labels[before][~changed])
    np.testing.assert_array_equal(spoilt.images[after][changed], triggered(clean.images[before][changed]))
    corner = triggered(clean.images[:1])[0, :, -TRIGGER_SIDE:, -TRIGGER_SIDE:]
    assert (corner == 255).all()


def test_liars_answer_the_reverse_and_others_the_truth(honest):
    models = np.stack([honest.initial_model(), trained(honest)[0] + honest.initial_model()])
    liars = np.arange(10) < 2
    asked = models, EVERYBODY, ONE_MODEL, ONE_MODEL + 1
    truth, said = (f(Compare(*asked).run(honest.examiner)) for f in (lambda a: a, lambda a: reversed_by(liars, a)))
    np.testing.assert_array_equal(said.mean[~liars], truth.mean[~liars])
    np.testing.assert_array_equal(said.mean[liars], -truth.mean[liars])
    np.testing.assert_array_equal(said.samples, truth.samples)
    survey = SurveyModels(models, EVERYBODY).run(honest.examiner)
    lied = reversed_by(liars, survey)
    np.testing.assert_array_equal(lied.misfit[~liars], survey.misfit[~liars])
    order, reverse = (one.misfit[liars][:, 0] - one.misfit[liars][:, 1] for one in (survey, lied))
    np.testing.assert_allclose(order, -reverse, atol=1e-12)
    assert (lied.misfit[(survey.samples == 0)[:, None].repeat(2, axis=1)] == 0).all()
    evaluation = Evaluate(models, EVERYBODY, ONE_MODEL).run(honest.examiner)
    lied = reversed_by(liars, evaluation)
    np.testing.assert_array_equal(lied.score[liars], 1 - evaluation.score[liars])
    np.testing.assert_array_equal(lied.loss[~liars], evaluation.loss[~liars])
    assert np.argsort(lied.loss[liars]).tolist() == np.argsort(-evaluation.loss[liars]).tolist()
    for answer in (survey, evaluation, truth, CutOpinion(truth, truth)):
        assert type(reversed_by(liars, answer)) is type(answer) in (Survey, Evaluation, Paired, CutOpinion)
    assert reversed_by(liars, "something else") == "something else"
