"""What cross-evaluation remembers between rounds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedclade.clustering.method import Move
from fedclade.clustering.methods.cross_evaluation.affinity import Affinity
from fedclade.clustering.methods.cross_evaluation.split_test import Outlook
from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.state import State
from fedclade.core.tree import Node


@dataclass(frozen=True)
class Known:
    """What the devices have said so far, and what that means for each cluster's future."""

    losses: Floats  # each device's last known loss on held-out images; NaN: unknown
    outlooks: Mapping[str, Outlook]  # of the clusters
    affinity: Affinity | None  # by images the devices train on; None: nobody was asked yet
    one_by_one: bool = False  # devices differ one by one, not only by their groups
    promising: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # second child of a cluster's cut that paid
    best_help: float = 0.0  # the most good, in misfit, that a round with one's own kind would have done
    left: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # the clusters that a device moved out of

    @classmethod
    def nothing(cls, devices: int) -> "Known":
        """At the beginning."""
        return cls(np.full(devices, np.nan), {}, None)

    def grown(self, more: int) -> "Known":
        """With room for so many new devices."""
        losses = np.append(self.losses, np.full(more, np.nan))
        return replace(self, losses=losses, affinity=self.affinity and self.affinity.grown(more))

    def outlook(self, leaf: Node, settings: CrossEvaluationConfig) -> Outlook:
        """What is known of a cluster's future."""
        first = leaf.born_round + settings.warmup_rounds + 1
        return self.outlooks.get(leaf.name, Outlook(next_test=first))

    def with_outlook(self, name: str, outlook: Outlook) -> "Known":
        """With a cluster's future seen anew."""
        return replace(self, outlooks={**self.outlooks, name: outlook})

    def helped(self, by: float) -> "Known":
        """With the good that a round did, if that is the most so far."""
        return replace(self, best_help=max(self.best_help, by))

    def with_promise(self, name: str, second: Ints | None) -> "Known":
        """With the second child of a cluster's cut that is to be tried once more; None: there is no such cut."""
        others = {leaf: cut for leaf, cut in self.promising.items() if leaf != name}
        return replace(self, promising=others if second is None else {**others, name: tuple(second.tolist())})

    def after_moves(self, moves: Sequence[Move]) -> "Known":
        """With who left which cluster. Whoever goes back contradicts itself: its word does not count any more."""
        left, back = dict(self.left), list[int]()
        for move in moves:
            before = left.get(move.device, ())
            back += [move.device] * (move.to in before)
            left[move.device] = (*before, str(move.evidence["from"]))
        return replace(self, left=left, affinity=self.affinity and self.affinity.doubting(back))

    def without_harm(self, devices: Ints, settings: CrossEvaluationConfig) -> Ints:
        """Whose updates are averaged: those whose training does not harm everybody else, again and again."""
        return devices if self.affinity is None else devices[~self.affinity.harmful(settings)[devices]]

    @property
    def doubted(self) -> Ints:
        """Devices whose answers do not count, as they are the reverse of what others say."""
        return np.zeros(0, dtype=np.int64) if self.affinity is None else np.flatnonzero(self.affinity.doubted)

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """As plain data, and as arrays."""
        losses = [None if np.isnan(loss) else float(loss) for loss in self.losses]
        outlooks = {name: asdict(outlook) for name, outlook in self.outlooks.items()}
        tables = {} if self.affinity is None else dict(vars(self.affinity))
        return {
            "losses": losses,
            "outlooks": outlooks,
            "one_by_one": self.one_by_one,
            "promising": {name: list(second) for name, second in self.promising.items()},
            "best_help": self.best_help,
            "left": {str(device): list(names) for device, names in self.left.items()},
        }, tables

    @classmethod
    def load(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Known":
        """The inverse of ``save``."""
        outlooks = {name: Outlook(**row) for name, row in facts["outlooks"].items()}
        losses = np.array([np.nan if loss is None else loss for loss in facts["losses"]], dtype=np.float64)
        affinity = Affinity(**arrays) if arrays else None
        promising = {name: tuple(second) for name, second in facts["promising"].items()}
        left = {int(device): tuple(names) for device, names in facts["left"].items()}
        return cls(losses, outlooks, affinity, facts["one_by_one"], promising, facts["best_help"], left)


def known_of(state: State) -> Known:
    """Cross-evaluation's own part of the server's state."""
    assert isinstance(state.method, Known)
    return state.method
