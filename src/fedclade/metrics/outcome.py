"""Where a run stands after a round: all that a metric may look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.objective import Objective
from fedclade.core.task import ACCURACY, Score
from fedclade.core.tree import Split, Tree
from fedclade.metrics.following import Following


@dataclass(frozen=True)
class Outcome:
    """What came out of a run up to one of its rounds. Entry k of every array belongs to device k."""

    policy: str  # who takes part
    method: str  # how clusters are found
    reveals: str  # in a word, what that lets the server see of a single device
    seed: int
    downlink_bits: float  # sent to the devices
    uplink_bits: float  # sent by the devices
    planted: Ints | None  # the group that each device was put into; None: there is only one, or nobody knows
    round: int  # rounds done
    seconds: float  # on the simulated clock
    tree: Tree  # clusters, past and present
    participation: Ints  # uploads of each device
    present_rounds: Ints  # rounds in which the device was there
    energy_joules: Floats  # spent by each device
    score: Floats  # accuracy or R² of its cluster's model on its test data; NaN: it did not answer
    conventional_score: Floats  # the same of the one model for all
    scored: Score = ACCURACY  # which of the two it is
    personal_score: Floats | None = None  # of the model that each device keeps for itself; None: nobody keeps one
    tuned_score: Floats | None = None  # after each device has trained its model on, alone; None: nobody did
    score_of: Mapping[str, Floats] = field(default_factory=dict)  # of every model; empty before the run's end
    drift: Following | None = None  # how devices whose data changed were followed; None before the run's end
    objective: Objective | None = None  # the clusters' losses, and the best that they have had
    asked: Ints | None = None  # the devices that were evaluated, where that is a sample; None: everybody was

    def known_score(self, of: Score = ACCURACY, which: str = "score") -> Floats:
        """One of the devices' scores, of those that answered; NaN where they are scored by another."""
        return known(getattr(self, which)) if of == self.scored else np.array([np.nan])

    @property
    def known_accuracy(self) -> Floats:
        """Accuracy of the devices that answered; NaN where they have numbers instead of classes."""
        return self.known_score()

    @property
    def splits(self) -> list[Split]:
        """All splits there were, in the order of their rounds."""
        return sorted((node.split for node in self.tree.nodes.values() if node.split), key=lambda split: split.round)


def known(score: Floats) -> Floats:
    """Of the devices that answered: a real one may be gone; where none answered, all of them."""
    told = ~np.isnan(score)
    return score[told] if told.any() else score
