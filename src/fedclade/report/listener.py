"""Who listens to a run as it goes: progress displays, records, pages, loggers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedclade.core.records import RoundRecord
from fedclade.core.state import State
from fedclade.core.task import ACCURACY, Score
from fedclade.metrics import Metric


@dataclass(frozen=True)
class Progress:
    """What a listener is told after each round."""

    record: RoundRecord
    state: State
    rounds: int
    wall_seconds: float  # since this process began the run
    done_before: int  # rounds done by earlier processes
    samples_per_second: float  # trained, by the wall clock
    metrics: Mapping[Metric, float]  # those of every round, where the round was evaluated
    score: Score = ACCURACY  # what devices are scored by


OnRound = Callable[[Progress], None]


class Listener:
    """Is told of a run as it goes. One's own overrides what it wants to hear; whatever it raises ends the run."""

    def began(self, state: State) -> None:
        """The run begins, or goes on, from this state."""

    def round_ended(self, progress: Progress) -> None:
        """One more round is done."""

    def interrupted(self, state: State) -> None:
        """Somebody asked the run to stop; this is the state after the last whole round."""

    def ended(self, state: State, why: str) -> None:
        """The run came to its end."""


class Calls(Listener):
    """Calls a function after each round."""

    def __init__(self, on_round: OnRound) -> None:
        self._on_round = on_round

    def round_ended(self, progress: Progress) -> None:
        """Hand it on."""
        self._on_round(progress)
