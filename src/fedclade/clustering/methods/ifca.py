"""IFCA: k models; in every round each device takes the one that fits its data best, and trains that.

"An Efficient Framework for Clustered Federated Learning" (Ghosh, Chung, Yin, Ramchandran; NeurIPS 2020), with averaging
of models weighted by data. k must be known. All k models go to every device in every round, which the clock and
the bill count. Models start from different random weights; a model that nobody takes stays as it is.
"""

import numpy as np

from fedclade.clustering.method import BaseMethod, Conversation, Decisions, Move, NewSplit
from fedclade.core.arrays import Ints
from fedclade.core.state import State, stack
from fedclade.core.tree import ROOT
from fedclade.fleet.fleet import Fleet
from fedclade.fleet.questions import Evaluate


class Ifca(BaseMethod):
    """Estimate every device's cluster by the losses of all models, then train as usual."""

    name, sends_all_models, reveals = "ifca", True, "losses"

    def before_training(self, state: State, devices: Ints, fleet: Fleet) -> Decisions:
        """Assign the devices that are about to train to the model with the smallest loss on their training data."""
        count = self.config.ifca.clusters
        first = state.tree.nodes[ROOT].split is None
        if count == 1 or len(devices) == 0:
            return Decisions(state.method)
        names = [f"{ROOT}.{i}" for i in range(count)] if first else [leaf.name for leaf in state.tree.leaves()]
        models = {name: fleet.initial_model(i) for i, name in enumerate(names)} if first else state.models
        talk = Conversation(fleet, state.devices)
        each = np.repeat(np.arange(count), len(devices))
        question = Evaluate(stack(models, names), np.tile(devices, count), each, "train", sent=count)
        losses = talk.ask(question).loss.reshape(count, len(devices))
        answered = np.isfinite(losses).all(axis=0)
        best = losses.argmin(axis=0)
        if first:  # whoever does not train yet waits with the first model
            cluster = np.zeros(state.devices, dtype=np.int64)
            cluster[devices[answered]] = best[answered]
            parts = tuple(np.flatnonzero(cluster == i) for i in range(count))
            split = NewSplit(ROOT, parts, {"by": "smallest loss"})
            return Decisions(state.method, splits=(split,), models=models, notes=talk.notes(), cost=talk.cost)
        leaf_of = state.tree.leaf_of()
        chosen = zip(devices[answered].tolist(), best[answered].tolist(), losses.min(axis=0)[answered], strict=True)
        moves = tuple(
            Move(device, names[i], {"from": leaf_of[device], "loss": float(loss)})
            for device, i, loss in chosen
            if leaf_of[device] != names[i]
        )
        return Decisions(state.method, moves=moves, notes=talk.notes(), cost=talk.cost)


METHOD = Ifca
