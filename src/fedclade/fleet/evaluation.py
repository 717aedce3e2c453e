"""How well models serve the devices, by their test data. Asked off the clock: it is for whoever watches."""

import numpy as np

from fedclade.config import RunConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.objective import assessed
from fedclade.core.random import generator
from fedclade.core.records import EvaluationRecord
from fedclade.core.state import CONVENTIONAL, Serving, State, stack
from fedclade.core.tree import Tree
from fedclade.fleet.fleet import Fleet
from fedclade.fleet.questions import Evaluate

FEWEST = 10  # of a small cluster, at least
MOST = 10_000  # devices evaluated, unless run.evaluate_devices says otherwise


def sampled(tree: Tree, config: RunConfig) -> Ints:
    """Whom to evaluate: everybody, or of more than ``run.evaluate_devices`` a sample, of every cluster its share.

    Devices are taken in an order that the seed gives, so that as far as clusters stay the same, so does the sample.
    """
    most, count = config.evaluate_devices or MOST, tree.device_count
    if count <= most:
        return np.arange(count)
    order = np.argsort(generator(config.seed, "evaluated").permutation(count))
    parts = [np.array(leaf.devices, dtype=np.int64) for leaf in tree.leaves()]
    wanted = [max(min(FEWEST, len(part)), round(most * len(part) / count)) for part in parts]
    return np.sort(np.concatenate([part[np.argsort(order[part])[:n]] for part, n in zip(parts, wanted, strict=True)]))


def evaluated(fleet: Fleet, state: State, config: RunConfig) -> EvaluationRecord:
    """Test score and loss of devices under their own models, and under the conventional one; NaN: not asked."""
    chosen, serving = sampled(state.tree, config), state.serving()
    models, asked, model_of = serving.models, chosen, serving.model_of[chosen]
    own = one = slice(None, len(chosen))
    if state.conventional is not None:  # asked in one go: devices may be far away
        models = np.concatenate([models, state.conventional[None]])
        asked = np.tile(chosen, 2)
        model_of = np.concatenate([model_of, np.full_like(chosen, len(serving.names))])
        one = slice(len(chosen), None)
    answers = fleet.ask(Evaluate(models, asked, model_of))
    answer = answers.value
    score, loss, conventional = np.full((3, state.devices), np.nan)
    score[chosen], loss[chosen], conventional[chosen] = answer.score[own], answer.loss[own], answer.score[one]
    objective = assessed(state.round, state.tree, state.models, loss, state.samples, state.best)
    leaf_of = state.tree.leaf_of()
    return EvaluationRecord(leaf_of, score, loss, conventional, answers.incidents, objective, chosen)


def told_losses(fleet: Fleet, state: State, serving: Serving, heard: Ints) -> Floats:
    """Each device's last training loss, renewed for those who uploaded; NaN where none is known.

    A device meets its loss as it trains: to tell it costs nothing.
    """
    losses = np.full(state.devices, np.nan)
    if state.losses is not None:
        losses[: len(state.losses)] = state.losses
    losses[heard] = fleet.ask(Evaluate(serving.models, heard, serving.model_of[heard], "train")).value.loss
    return losses


def tuned_score(fleet: Fleet, state: State, times: int) -> Floats | None:
    """Test accuracy of every device after it has trained its cluster's model so many times more by itself."""
    if times == 0:
        return None
    serving = state.serving()
    models, everyone = serving.models[serving.model_of], np.arange(state.devices)
    for more in range(times):
        updates = fleet.train_own(state.round + 1 + more, models)
        if updates is None:
            return None
        models = models + updates.rows(everyone)
    return fleet.ask(Evaluate(models, everyone, everyone)).value.score


def personal_score(fleet: Fleet, state: State) -> Floats | None:
    """Test accuracy of every device under the personal model that it keeps; None where it keeps none."""
    everyone = np.arange(state.devices)
    return None if state.kept is None else fleet.ask(Evaluate(state.kept, everyone, everyone)).value.score


def models_by_devices(fleet: Fleet, state: State, config: RunConfig) -> tuple[list[str], Floats]:
    """Score of every model of the tree, and of the conventional one, on every device; NaN: not asked."""
    names = sorted(state.models)
    last = stack(state.models, names[:1])[0] if state.conventional is None else state.conventional
    models = np.concatenate([stack(state.models, names), last[None]])
    chosen = sampled(state.tree, config)
    each = np.repeat(np.arange(len(models)), len(chosen))
    answer = fleet.ask(Evaluate(models, np.tile(chosen, len(models)), each)).value
    scores = np.full((len(models), state.devices), np.nan)
    scores[:, chosen] = answer.score.reshape(len(models), len(chosen))
    return [*names, CONVENTIONAL], scores
