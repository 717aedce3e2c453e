"""Questions: one device's part, sent there and back, is the answer that all devices together would have given."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_builders import config, image_set
from fedclade.core.updates import HeldUpdates
from fedclade.data import populate
from fedclade.fleet.answers import Evaluation, Paired, Survey
from fedclade.fleet.questions import (
    LOOK,
    OWN_UPDATE,
    QUESTIONS,
    Compare,
    Evaluate,
    Question,
    SurveyModels,
    TryCut,
    fraction_for,
)
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.fleet.told import Told

CLASSES, PIXELS = 3, 4
SEEDS = st.integers(0, 9999)
SHARES = st.sampled_from(["train", "validation", "test"])


class MadeUp:
    """An examiner of made-up images: each a row of numbers, and a model's loss is its distance from there."""

    classes = CLASSES

    def __init__(self, seed: int, devices: int) -> None:
        rng = np.random.default_rng(seed)
        held = rng.integers(0, 7, (devices, 3))
        self.features = rng.normal(size=(int(held.sum()), PIXELS))
        self.of_images = rng.integers(0, CLASSES, len(self.features))
        ends = np.cumsum(held.ravel())
        places = [np.arange(end - count, end) for end, count in zip(ends, held.ravel(), strict=True)]
        names = ("train", "validation", "test")
        self.places = {
            (device, share): places[3 * device + i] for device in range(devices) for i, share in enumerate(names)
        }

    def positions(self, device, share):
        return self.places[device, share]

    def labels(self, positions):
        return self.of_images[positions]

    def scores(self, model, positions):
        losses = np.linalg.norm(self.features[positions] - model, axis=1)
        return (losses < 2.0).astype(np.float64), losses

    def losses(self, models, positions):
        self.seen = positions
        return np.stack([self.scores(model, positions)[1] for model in models])


def models_of(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, PIXELS)).astype(np.float32)


def sent(question: Question, examiner) -> object:
    """The answer put together from what each device replied, one after the other; all messages are plain data."""
    answer = question.nothing(examiner.classes)
    for device in np.unique(question.devices).tolist():
        facts, arrays = question.part(device)
        there = QUESTIONS[question.kind].read(json.loads(json.dumps(facts)), arrays, device)
        facts, arrays = there.reply(there.run(examiner))
        assert all(array.dtype.kind in "iuf" for array in arrays.values())
        question.take(answer, device, Told(json.loads(json.dumps(facts)), arrays))
    return answer


def assert_equal(found: object, expected: object) -> None:
    assert type(found) is type(expected)
    for name, value in vars(expected).items():
        assert getattr(found, name).dtype == value.dtype
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-9, atol=1e-12)


# -------------------------------------------------------------------------------- there and back


@given(SEEDS, st.integers(1, 6), st.integers(1, 4), st.integers(1, 9), SHARES)
def test_an_evaluation_sent_to_each_device_is_that_of_all_together(seed, devices, count, entries, share):
    rng, examiner, models = np.random.default_rng(seed), MadeUp(seed, devices), models_of(seed, count)
    question = Evaluate(models, rng.integers(0, devices, entries), rng.integers(0, count, entries), share)
    answer = question.run(examiner)
    assert_equal(sent(question, examiner), answer)
    for row, (device, model) in enumerate(zip(question.devices, question.model_of, strict=True)):
        right, losses = examiner.scores(models[model], examiner.positions(device, share))
        assert answer.samples[row] == len(losses)
        means = (right.mean(), losses.mean()) if len(losses) else (0.0, 0.0)
        assert (answer.score[row], answer.loss[row]) == pytest.approx(means)
    np.testing.assert_array_equal(question.looks(answer), answer.samples)


def cut_of(seed: int, devices: int) -> TryCut:
    """A cut of devices into two children, whose models, and their parent's, are made up."""
    return TryCut(models_of(seed, 3), np.arange(devices), np.arange(devices) % 2 == 1, 3.0)


@given(SEEDS, st.integers(2, 6))
def test_a_cut_is_judged_by_models_three_times_as_far_apart_and_by_the_own_one_as_it_is(seed, devices):
    examiner, question = MadeUp(seed, devices), cut_of(seed, devices)
    answer, (first, second, parent) = question.run(examiner), question.models.astype(np.float64)
    for device, other in enumerate(question.side):
        images = examiner.positions(device, "validation")
        fit = {
            name: np.exp(-examiner.scores(model, images)[1] / 2)
            for name, model in (
                ("first", parent + 3 * (first - parent)),
                ("second", parent + 3 * (second - parent)),
                ("own", second if other else first),
                ("parent", parent),
            )
        }
        for found, differences in (
            (answer.preference, fit["first"] - fit["second"]),
            (answer.gain, fit["own"] - fit["parent"]),
        ):
            counts = np.bincount(examiner.labels(images), minlength=CLASSES)
            sums = np.bincount(examiner.labels(images), differences, CLASSES)
            np.testing.assert_array_equal(found.samples[device], counts)
            np.testing.assert_allclose(found.mean[device], sums / np.maximum(1, counts), atol=1e-4)
    np.testing.assert_array_equal(question.looks(answer), 4 * answer.gain.samples.sum(axis=1))
    assert question.models_sent == 3


@given(SEEDS, st.integers(2, 6))
def test_a_cut_sent_to_each_device_is_that_of_all_together(seed, devices):
    examiner, question = MadeUp(seed, devices), cut_of(seed, devices)
    answer, found = question.run(examiner), question.nothing(CLASSES)
    for device in range(devices):
        facts, arrays = question.part(device)
        there = TryCut.read(json.loads(json.dumps(facts)), arrays, device)
        question.take(found, device, Told(*there.reply(there.run(examiner))))
    for name in ("preference", "gain"):
        for field, value in vars(getattr(answer, name)).items():
            np.testing.assert_allclose(getattr(getattr(found, name), field), value, atol=1e-6)


@given(SEEDS, st.integers(1, 4), st.sampled_from(["train", "validation"]))
def test_a_survey_is_of_the_share_it_asks_about_and_sends_models_only_once(seed, devices, share):
    examiner, models = MadeUp(seed, devices), models_of(seed, 2)
    question = SurveyModels(models, np.arange(devices), share=share, known=True)
    answer = question.run(examiner)
    for device in range(devices):
        there = SurveyModels.read(*question.part(device), device)
        found = there.run(examiner)
        np.testing.assert_array_equal(found.samples[0], answer.samples[device])
        assert answer.samples[device].sum() == len(examiner.positions(device, share))
    assert (question.models_sent, SurveyModels(models, np.arange(devices)).models_sent) == (0, 2)


@given(SEEDS, st.integers(2, 5))
def test_who_leaves_the_own_update_out_judges_models_that_the_others_made(seed, devices):
    """The mean of all updates without one's own is that of the others; the same there as here."""
    rng, examiner, everyone = np.random.default_rng(seed), MadeUp(seed, devices), np.arange(devices)
    start, updates = models_of(seed, 1)[0], models_of(seed + 1, devices)
    weights = rng.dirichlet(np.ones(devices)).astype(np.float32)
    models = np.stack([start + weights @ updates, start]).astype(np.float32)
    own = np.stack([weights, np.zeros(devices)], axis=1)
    question = SurveyModels(models, everyone, own=own, updates=HeldUpdates.of(everyone, updates))
    answer = question.run(examiner)
    for device in everyone:
        others = everyone != device
        theirs = start + (weights[others] / weights[others].sum()) @ updates[others]
        without = np.stack([theirs, start]).astype(np.float32)
        expected = SurveyModels(without, np.array([device])).run(examiner)
        np.testing.assert_allclose(answer.misfit[device], expected.misfit[0], atol=1e-3)
        facts, arrays = question.part(device)
        there = SurveyModels.read(json.loads(json.dumps(facts)), arrays | {OWN_UPDATE: updates[device]}, device)
        np.testing.assert_allclose(there.run(examiner).misfit[0], answer.misfit[device], atol=1e-6)


def test_a_model_that_is_all_ones_own_doing_is_the_one_it_started_from():
    examiner, models, me = MadeUp(3, 1), models_of(3, 2), np.array([0])
    own, updates = np.array([[1.0, 0.0]]), HeldUpdates.of(me, models[:1] - models[1:])
    answer = SurveyModels(models, me, own=own, updates=updates).run(examiner)
    np.testing.assert_allclose(answer.misfit[0, 0], answer.misfit[0, 1], atol=1e-6)


@pytest.mark.parametrize("name", ["preference.samples", "preference.mean", "gain.squares"])
@pytest.mark.parametrize(
    "wrong", [np.full(CLASSES, np.nan), np.full(CLASSES, -1), np.zeros(CLASSES + 1), np.array("a")]
)
def test_what_cannot_be_an_opinion_of_a_cut_is_refused_and_leaves_no_trace(name, wrong):
    examiner, question = MadeUp(1, 4), cut_of(1, 4)
    facts, arrays = question.reply(question.run(examiner))
    arrays |= {name: wrong}
    answer = question.nothing(CLASSES)
    with pytest.raises(ValueError, match="must be"):
        question.take(answer, 0, Told(facts, arrays))
    assert not answer.gain.samples.any()


@given(SEEDS, st.integers(1, 6), st.integers(1, 4), st.integers(1, 9), SHARES)
def test_a_comparison_sent_to_each_device_is_that_of_all_together(seed, devices, count, entries, share):
    rng, examiner, models = np.random.default_rng(seed), MadeUp(seed, devices), models_of(seed, count)
    first, second = rng.integers(0, count, (2, entries))
    question = Compare(models, rng.integers(0, devices, entries), first, second, share)
    answer = question.run(examiner)
    assert_equal(sent(question, examiner), answer)
    for row, device in enumerate(question.devices):
        images = examiner.positions(device, share)
        (_, one), (_, other) = (examiner.scores(models[each[row]], images) for each in (first, second))
        differences = np.exp(-one / 2) - np.exp(-other / 2)  # of the roots of the probabilities
        for label in range(CLASSES):
            mine = differences[examiner.labels(images) == label]
            assert answer.samples[row, label] == len(mine)
            assert answer.mean[row, label] == pytest.approx(mine.mean() if len(mine) else 0.0)
            assert answer.squares[row, label] == pytest.approx((mine**2).mean() if len(mine) else 0.0)
    np.testing.assert_array_equal(question.looks(answer), 2 * answer.samples.sum(axis=1))


@given(SEEDS, st.integers(1, 6), st.integers(1, 4), st.sampled_from([None, 1, 4, 100]), st.floats(0, 1.5), st.data())
def test_a_survey_sent_to_each_device_is_that_of_all_together(seed, devices, count, images, fraction, data):
    examiner, models = MadeUp(seed, devices), models_of(seed, count)
    asked = data.draw(st.lists(st.integers(0, devices - 1), min_size=1, unique=True))
    question = SurveyModels(models, np.array(asked), images, fraction)
    answer = question.run(examiner)
    seen = examiner.seen
    assert_equal(sent(question, examiner), answer)
    for row, device in enumerate(asked):
        mine = examiner.positions(device, "train")
        np.testing.assert_array_equal(answer.samples[row], np.bincount(examiner.labels(mine), minlength=CLASSES))
        if images is None:
            for column, model in enumerate(models):
                misfits = 1 - np.exp(-examiner.scores(model, mine)[1] / 2)
                for label in np.unique(examiner.labels(mine)):
                    expected = misfits[examiner.labels(mine) == label].mean()
                    assert answer.misfit[row, column, label] == pytest.approx(expected)
    looked_at = np.array([np.isin(examiner.positions(device, "train"), seen).sum() for device in asked])
    np.testing.assert_array_equal(question.looks(answer), count * looked_at)


@given(st.floats(0.01, 10), st.integers(1, 20), st.integers(1, 100), st.integers(1, 500))
def test_looking_at_a_fraction_of_the_images_is_as_much_work_as_was_said(work, passes, models, images):
    looks = models * images * fraction_for(work, passes, models)
    assert LOOK * looks / (passes * images) == pytest.approx(work)


@settings(max_examples=10)
@given(SEEDS)
def test_nets_answer_one_device_at_a_time_as_they_answer_all_together(seed):
    plan = config(population={"devices": 4, "partition": "iid", "validation_share": 0.2}, model={"name": "logistic"})
    examiner = SequentialTrainer(plan, populate(plan, image_set(120, CLASSES))).examiner
    rng, devices = np.random.default_rng(seed), np.array([3, 0, 2])
    models = np.stack([examiner.initial_model(variant) for variant in range(3)])
    chosen = rng.integers(0, 3, (2, 3))
    for question in (
        Evaluate(models, devices, chosen[0], "validation"),
        Compare(models, devices, *chosen),
        SurveyModels(models, devices, 10),
    ):
        found, expected = sent(question, examiner), question.run(examiner)
        for name, value in vars(expected).items():
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-5, atol=1e-6)


def test_a_device_is_sent_only_the_models_that_it_is_asked_about():
    models = models_of(0, 4)
    devices, first, second = np.array([1, 0, 1]), np.array([3, 0, 2]), np.array([1, 1, 1])
    np.testing.assert_array_equal(Evaluate(models, devices, first).part(1)[1]["models"], models[[3, 2]])
    np.testing.assert_array_equal(Compare(models, devices, first, second).part(1)[1]["models"], models[[3, 1, 2, 1]])
    np.testing.assert_array_equal(SurveyModels(models, np.array([1])).part(1)[1]["models"], models)


def test_what_a_question_sends_is_what_the_devices_do_not_have():
    models, devices, first = models_of(0, 4), np.array([0, 1]), np.array([0, 2])
    assert Evaluate(models, devices, first).models_sent == 0
    assert Evaluate(models, devices, first, sent=4).models_sent == 4
    assert Compare(models, devices, first, first * 0 + 3).models_sent == 3
    assert Compare(models, devices, first, first * 0 + 3, sent=0).models_sent == 0
    assert SurveyModels(models, devices).models_sent == 4


def test_some_entries_of_an_evaluation_are_a_question_of_their_own():
    question = Evaluate(models_of(0, 3), np.array([5, 6, 7]), np.array([2, 0, 1]), "train").only(np.array([2, 0]))
    assert (question.devices.tolist(), question.model_of.tolist(), question.share) == ([7, 5], [1, 2], "train")


def test_while_nobody_answered_nothing_is_known():
    models, devices = models_of(0, 2), np.array([0, 1, 2])
    evaluation = Evaluate(models, devices, devices * 0).nothing(CLASSES)
    assert np.isnan(evaluation.loss).all()
    assert np.isnan(evaluation.score).all()
    assert not evaluation.samples.any()
    compared = Compare(models, devices, devices * 0, devices * 0 + 1).nothing(CLASSES)
    assert (compared.samples.shape, compared.test()) == ((3, CLASSES), (0.0, 1.0))
    surveyed = SurveyModels(models, devices).nothing(CLASSES)
    assert surveyed.misfit.shape == (3, 2, CLASSES)
    assert not surveyed.samples.any()


# -------------------------------------------------------------------------------- replies that cannot be


REFUSED = (ValueError, KeyError, TypeError)
GOOD_NUMBERS = {"score": [0.5, 1.0], "loss": [2.0, 0.1], "samples": [10, 10]}


def as_arrays(numbers: dict) -> dict[str, np.ndarray]:
    """As devices send an evaluation: samples in a column of their own."""
    arrays = {name: np.array(values) for name, values in numbers.items()}
    return {name: array[:, None] if name == "samples" and array.ndim else array for name, array in arrays.items()}


def unchanged_by(question: Question, facts: dict, arrays: dict) -> None:
    """The reply of device 1 is refused, and leaves what the others said, and what it said itself, as it was."""
    answer, before = question.nothing(CLASSES), question.nothing(CLASSES)
    with pytest.raises(REFUSED):
        question.take(answer, 1, Told(facts, arrays))
    assert_equal(answer, before)


def evaluate() -> Evaluate:
    """Device 1 is asked twice."""
    return Evaluate(models_of(0, 2), np.array([1, 0, 1]), np.array([0, 0, 1]))


def test_a_right_evaluation_is_taken():
    question = evaluate()
    answer = question.nothing(CLASSES)
    question.take(answer, 1, Told({}, as_arrays(GOOD_NUMBERS)))
    assert_equal(answer, Evaluation(np.array([0.5, np.nan, 1.0]), np.array([2.0, np.nan, 0.1]), np.array([10, 0, 10])))


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": [0.5]},
        {"score": [0.5, 0.5, 0.5]},
        {"loss": [1.0]},
        {"samples": [1, 2, 3]},
        {"score": [], "loss": [], "samples": []},
        {"score": [0.5, 1.01]},
        {"score": [-0.01, 1.0]},
        {"score": [0.5, float("nan")]},
        {"samples": [10, -1]},
        {"samples": [10, float("nan")]},
        {"samples": [10, float("inf")]},
        {"samples": [10, 1.5]},
        {"score": ["half", 1.0]},
        {"score": None},
        {"loss": 3.0},
        {"loss": [[1.0], [2.0]]},
    ],
)
def test_a_wrong_evaluation_is_refused(wrong):
    unchanged_by(evaluate(), {}, as_arrays({**GOOD_NUMBERS, **wrong}))


@pytest.mark.parametrize("missing", GOOD_NUMBERS)
def test_an_evaluation_that_lacks_something_is_refused(missing):
    unchanged_by(evaluate(), {}, as_arrays({name: value for name, value in GOOD_NUMBERS.items() if name != missing}))


def compare() -> Compare:
    """Device 1 is asked twice."""
    return Compare(models_of(0, 2), np.array([1, 0, 1]), np.array([0, 0, 1]), np.array([1, 1, 0]))


def survey() -> SurveyModels:
    return SurveyModels(models_of(0, 2), np.array([0, 1]))


SHAPES = {  # what device 1 must reply, by question
    compare: {"samples": (2, CLASSES), "mean": (2, CLASSES), "squares": (2, CLASSES)},
    survey: {"samples": (CLASSES,), "misfit": (2, CLASSES)},
}


def good(asked) -> dict[str, np.ndarray]:
    return {
        name: np.full(shape, 3, dtype=np.int64) if name == "samples" else np.full(shape, 0.25)
        for name, shape in SHAPES[asked].items()
    }


def test_right_comparisons_and_surveys_are_taken():
    question = compare()
    answer = question.nothing(CLASSES)
    question.take(answer, 1, Told({}, good(compare)))
    mine = np.array([[1.0], [0.0], [1.0]]) * np.ones(CLASSES)
    assert_equal(answer, Paired((3 * mine).astype(np.int64), 0.25 * mine, 0.25 * mine))
    question = survey()
    answer = question.nothing(CLASSES)
    question.take(answer, 1, Told({}, good(survey)))
    mine = np.array([[0.0], [1.0]]) * np.ones(CLASSES)
    assert_equal(answer, Survey((3 * mine).astype(np.int64), 0.25 * np.repeat(mine[:, None], 2, axis=1)))


def spoilt(array: np.ndarray, how: str) -> np.ndarray:
    """One reply that cannot be."""
    array = array.copy()
    if how in ("negative", "NaN", "infinite"):
        array.flat[-1] = {"negative": -1, "NaN": np.nan, "infinite": np.inf}[how]
        return array
    return {
        "too many": np.concatenate([array, array]),
        "too few": array[:-1],
        "flat": array.reshape(1, -1),
        "text": array.astype(str),
        "complex": array.astype(complex),
        "truth": array > 0,
        "other kind": array.astype(np.float64 if array.dtype.kind == "i" else np.int64),
    }[how]


@pytest.mark.parametrize("how", ["too many", "too few", "flat", "text", "complex", "truth", "other kind"])
@pytest.mark.parametrize(("asked", "name"), [(asked, name) for asked in SHAPES for name in SHAPES[asked]])
def test_replies_of_wrong_shape_or_kind_are_refused(asked, name, how):
    arrays = good(asked)
    unchanged_by(asked(), {}, {**arrays, name: spoilt(arrays[name], how)})


@pytest.mark.parametrize(
    ("asked", "name", "how"),
    [
        (compare, "samples", "negative"),
        (compare, "mean", "NaN"),
        (compare, "mean", "infinite"),
        (compare, "squares", "NaN"),
        (compare, "squares", "infinite"),
        (survey, "samples", "negative"),
        (survey, "misfit", "NaN"),
        (survey, "misfit", "infinite"),
    ],
)
def test_replies_with_impossible_numbers_are_refused(asked, name, how):
    arrays = good(asked)
    unchanged_by(asked(), {}, {**arrays, name: spoilt(arrays[name], how)})


@pytest.mark.parametrize(("asked", "name"), [(asked, name) for asked in SHAPES for name in SHAPES[asked]])
def test_replies_that_lack_something_are_refused(asked, name):
    unchanged_by(asked(), {}, {other: array for other, array in good(asked).items() if other != name})


@pytest.mark.parametrize("dtype", ["int16", "uint8"])
def test_counts_may_be_any_whole_numbers_and_single_precision_is_enough(dtype):
    question = survey()
    answer = question.nothing(CLASSES)
    arrays = good(survey)
    told = Told({}, {"samples": arrays["samples"].astype(dtype), "misfit": arrays["misfit"].astype("f4")})
    question.take(answer, 1, told)
    assert answer.samples[1].tolist() == [3] * CLASSES
    assert answer.misfit[1].tolist() == [[0.25] * CLASSES] * 2
