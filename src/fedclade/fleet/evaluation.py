"""How well models serve the devices, by their test data. Asked off the clock: it is for whoever watches."""

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.objective import assessed
from fedclade.core.records import EvaluationRecord
from fedclade.core.state import CONVENTIONAL, Serving, State, stack
from fedclade.fleet.fleet import Fleet
from fedclade.fleet.questions import Evaluate


def evaluated(fleet: Fleet, state: State) -> EvaluationRecord:
    """Test accuracy and loss of every device under its own model, and under the conventional one."""
    everyone, serving = np.arange(state.devices), state.serving()
    models, asked, model_of = serving.models, everyone, serving.model_of
    own = one = slice(None, state.devices)
    if state.conventional is not None:  # asked in one go: devices may be far away
        models = np.concatenate([models, state.conventional[None]])
        asked = np.tile(everyone, 2)
        model_of = np.concatenate([model_of, np.full_like(everyone, len(serving.names))])
        one = slice(state.devices, None)
    answers = fleet.ask(Evaluate(models, asked, model_of))
    answer = answers.value
    accuracy, loss = answer.accuracy[own], answer.loss[own]
    objective = assessed(state.round, state.tree, state.models, loss, state.samples, state.best)
    leaf_of = state.tree.leaf_of()
    return EvaluationRecord(leaf_of, accuracy, loss, answer.accuracy[one], answers.incidents, objective)


def told_losses(fleet: Fleet, state: State, serving: Serving, heard: Ints) -> Floats:
    """Each device's last training loss, renewed for those who uploaded; NaN where none is known.

    A device meets its loss as it trains: to tell it costs nothing.
    """
    losses = np.full(state.devices, np.nan)
    if state.losses is not None:
        losses[: len(state.losses)] = state.losses
    losses[heard] = fleet.ask(Evaluate(serving.models, heard, serving.model_of[heard], "train")).value.loss
    return losses


def tuned_accuracy(fleet: Fleet, state: State, times: int) -> Floats | None:
    """Test accuracy of every device after it has trained its cluster's model so many times more by itself."""
    serving = state.serving()
    models, everyone = serving.models[serving.model_of], np.arange(state.devices)
    for more in range(times):
        updates = fleet.train_own(state.round + 1 + more, models)
        if updates is None:
            return None
        models = models + updates.rows(everyone)
    return fleet.ask(Evaluate(models, everyone, everyone)).value.accuracy if times else None


def models_by_devices(fleet: Fleet, state: State) -> tuple[list[str], Floats]:
    """Accuracy of every model of the tree, and of the conventional one, on every device."""
    names = sorted(state.models)
    last = stack(state.models, names[:1])[0] if state.conventional is None else state.conventional
    models = np.concatenate([stack(state.models, names), last[None]])
    everyone = np.arange(state.devices)
    each = np.repeat(np.arange(len(models)), len(everyone))
    answer = fleet.ask(Evaluate(models, np.tile(everyone, len(models)), each)).value
    return [*names, CONVENTIONAL], answer.accuracy.reshape(len(models), len(everyone))
