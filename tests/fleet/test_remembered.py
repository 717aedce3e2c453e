"""Evaluations are remembered: what is known of a model on a device is not asked again."""

import numpy as np

from fedclade.fleet import remembered
from fedclade.fleet.answers import Evaluation
from fedclade.fleet.questions import Evaluate
from fedclade.fleet.remembered import EvaluationMemory

MODELS = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
DEVICES = np.arange(3)


class Asked:
    """Answers with numbers that tell model and device; whoever is silent says nothing."""

    def __init__(self, silent: tuple[int, ...] = ()) -> None:
        self.silent, self.pairs = silent, list[list[tuple[int, float]]]()

    def __call__(self, question: Evaluate) -> Evaluation:
        first = question.models[question.model_of, 0].astype(np.float64)
        self.pairs.append(list(zip(question.devices.tolist(), first.tolist(), strict=True)))
        silent = np.isin(question.devices, self.silent)
        accuracy = np.where(silent, np.nan, first / 10)
        return Evaluation(accuracy, accuracy + question.devices, np.where(silent, 0, 10 + question.devices))


def test_an_evaluation_known_already_is_not_made_again():
    memory, asked = EvaluationMemory(), Asked()
    first = memory.answer(Evaluate(MODELS, DEVICES, np.array([0, 1, 0])), asked)
    assert asked.pairs == [[(0, 1.0), (1, 3.0), (2, 1.0)]]
    again = memory.answer(Evaluate(MODELS[::-1].copy(), DEVICES, np.array([1, 0, 1])), asked)
    assert len(asked.pairs) == 1
    for name in ("score", "loss", "samples"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    memory.answer(Evaluate(MODELS, DEVICES, np.array([0, 0, 0])), asked)
    memory.answer(Evaluate(MODELS, DEVICES, np.array([0, 1, 0]), "train"), asked)  # other images
    assert asked.pairs[1:] == [[(1, 1.0)], [(0, 1.0), (1, 3.0), (2, 1.0)]]


def test_the_same_model_twice_in_one_question_is_asked_about_once():
    memory, asked = EvaluationMemory(), Asked()
    answer = memory.answer(Evaluate(MODELS[[0, 0]], np.array([2, 2, 1]), np.array([0, 1, 1])), asked)
    assert asked.pairs == [[(2, 1.0), (1, 1.0)]]
    np.testing.assert_allclose(answer.loss, [2.1, 2.1, 1.1])
    assert answer.samples.tolist() == [12, 12, 11]


def test_who_did_not_answer_is_asked_again():
    memory, asked = EvaluationMemory(), Asked(silent=(1,))
    question = Evaluate(MODELS, DEVICES, np.array([0, 0, 0]))
    answer = memory.answer(question, asked)
    assert np.isnan(answer.score).tolist() == [False, True, False]
    assert answer.samples.tolist() == [10, 0, 12]
    asked.silent = ()
    assert not np.isnan(memory.answer(question, asked).score).any()
    assert asked.pairs[1:] == [[(1, 1.0)]]


def test_what_is_known_of_old_models_is_let_go(monkeypatch):
    monkeypatch.setattr(remembered, "REMEMBERED_MODELS", 2)
    memory, asked = EvaluationMemory(), Asked()
    one = np.array([0])
    for value in (1.0, 2.0, 1.0, 3.0, 1.0, 2.0):  # 2 is the one that was longest not asked about when 3 comes
        memory.answer(Evaluate(np.full((1, 2), value, dtype=np.float32), one, one), asked)
    assert [pair[0][1] for pair in asked.pairs] == [1.0, 2.0, 3.0, 2.0]
