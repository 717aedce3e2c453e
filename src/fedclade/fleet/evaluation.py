"""How well models serve the devices, by their test data. Asked off the clock: it is for whoever watches."""

import numpy as np

from fedclade.core.arrays import Floats
from fedclade.core.records import EvaluationRecord
from fedclade.core.state import CONVENTIONAL, State, stack
from fedclade.fleet.fleet import Fleet
from fedclade.fleet.questions import Evaluate


def evaluated(fleet: Fleet, state: State) -> EvaluationRecord:
    """Test accuracy and loss of every device under its own model, and under the conventional one."""
    everyone, serving, leaf_of = np.arange(state.devices), state.serving(), state.tree.leaf_of()
    if state.conventional is None:
        answers = fleet.ask(Evaluate(serving.models, everyone, serving.model_of))
        answer = answers.value
        return EvaluationRecord(leaf_of, answer.accuracy, answer.loss, answer.accuracy, answers.incidents)
    models = np.concatenate([serving.models, state.conventional[None]])  # asked in one go: devices may be far away
    both = np.concatenate([serving.model_of, np.full_like(everyone, len(serving.names))])
    answers = fleet.ask(Evaluate(models, np.tile(everyone, 2), both))
    answer, own, one = answers.value, slice(None, state.devices), slice(state.devices, None)
    return EvaluationRecord(leaf_of, answer.accuracy[own], answer.loss[own], answer.accuracy[one], answers.incidents)


def models_by_devices(fleet: Fleet, state: State) -> tuple[list[str], Floats]:
    """Accuracy of every model of the tree, and of the conventional one, on every device."""
    names = sorted(state.models)
    last = stack(state.models, names[:1])[0] if state.conventional is None else state.conventional
    models = np.concatenate([stack(state.models, names), last[None]])
    everyone = np.arange(state.devices)
    each = np.repeat(np.arange(len(models)), len(everyone))
    answer = fleet.ask(Evaluate(models, np.tile(everyone, len(models)), each)).value
    return [*names, CONVENTIONAL], answer.accuracy.reshape(len(models), len(everyone))
