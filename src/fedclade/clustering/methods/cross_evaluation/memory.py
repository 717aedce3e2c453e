"""What cross-evaluation remembers between rounds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedclade.clustering.methods.cross_evaluation.affinity import Affinity
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook
from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.state import State
from fedclade.core.tree import Node

PLAIN = ("help", "one_by_one", "first_misfit")  # what is saved as it is


@dataclass(frozen=True)
class Known:
    """What the devices have said so far, and what that means for each cluster's future."""

    losses: Floats  # each device's last known loss on held-out images; NaN: unknown
    outlooks: Mapping[str, Outlook]  # of the clusters
    affinity: Affinity | None  # by images the devices train on; None: nobody was asked yet
    held_out: Affinity | None = None  # by images that nobody trained on
    help: float = 0.0  # the good, in misfit, that devices do each other: the most so far, or as much as all rounds did
    one_by_one: bool = False  # devices differ one by one, not only by their groups
    first_misfit: float | None = None  # of the model that was first asked about, on held-out images

    @classmethod
    def nothing(cls, devices: int) -> "Known":
        """At the beginning."""
        return cls(np.full(devices, np.nan), {}, None)

    def grown(self, more: int) -> "Known":
        """With room for so many new devices."""
        affinity, held_out = (None if each is None else each.grown(more) for each in (self.affinity, self.held_out))
        losses = np.append(self.losses, np.full(more, np.nan))
        return replace(self, losses=losses, affinity=affinity, held_out=held_out)

    def outlook(self, leaf: Node, settings: CrossEvaluationConfig) -> Outlook:
        """What is known of a cluster's future."""
        first = leaf.born_round + settings.warmup_rounds + 1
        return self.outlooks.get(leaf.name, Outlook(next_test=first))

    def with_outlook(self, name: str, outlook: Outlook) -> "Known":
        """With a cluster's future seen anew."""
        return replace(self, outlooks={**self.outlooks, name: outlook})

    def without_harm(self, devices: Ints, settings: CrossEvaluationConfig) -> Ints:
        """Whose updates are averaged: those whose training does not harm everybody else, again and again."""
        return devices if self.affinity is None else devices[~self.affinity.harmful(settings)[devices]]

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """As plain data, and as arrays."""
        losses = [None if np.isnan(loss) else float(loss) for loss in self.losses]
        outlooks = {name: asdict(outlook) for name, outlook in self.outlooks.items()}
        both = {"affinity": self.affinity, "held_out": self.held_out}
        said = {name: vars(each) for name, each in both.items() if each is not None}
        tables = {f"{name}.{field}": array for name, each in said.items() for field, array in each.items()}
        return {"losses": losses, "outlooks": outlooks, **{name: getattr(self, name) for name in PLAIN}}, tables

    @classmethod
    def load(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Known":
        """The inverse of ``save``."""
        outlooks = {name: Outlook(**row) for name, row in facts["outlooks"].items()}
        losses = np.array([np.nan if loss is None else loss for loss in facts["losses"]], dtype=np.float64)
        said = dict[str, dict[str, np.ndarray]]()
        for name, array in arrays.items():
            table, field = name.split(".")
            said.setdefault(table, {})[field] = array
        affinity, held_out = (Affinity(**said[name]) if name in said else None for name in ("affinity", "held_out"))
        return cls(losses, outlooks, affinity, held_out, **{name: facts[name] for name in PLAIN})


def known_of(state: State) -> Known:
    """Cross-evaluation's own part of the server's state."""
    assert isinstance(state.method, Known)
    return state.method
