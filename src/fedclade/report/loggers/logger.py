"""What all loggers share: which numbers they are told, and that none of them can end a run."""

import contextlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from fedclade.core.errors import UserError
from fedclade.core.state import State
from fedclade.report.listener import Listener, Progress
from fedclade.report.terminal import event_lines
from fedclade.runs import Run, write_beside


class Logger(Listener, contextlib.AbstractContextManager["Logger"]):
    """Tells another program how a run goes. If that program fails, this warns once, and the run goes on without it.

    Parameters
    ----------
    folder : Path
        The run's directory. What the other program calls the run is kept there, so that a resumed run is the same one.
    """

    package: ClassVar[str]  # which must be installed; the option and the extra are called like it

    def __init__(self, folder: Path) -> None:
        try:
            found = find_spec(self.package) is not None
        except ValueError:  # somebody forbids it
            found = False
        if not found:
            raise UserError(f"--{self.package}: is not installed; pip install 'fedclade[{self.package}]'")
        self.folder, self._open = folder, False

    @abstractmethod
    def begin(self, run: Run, done: int) -> None:
        """The run begins, or goes on after so many rounds."""

    @abstractmethod
    def log(self, round_: int, seconds: float, scalars: Mapping[str, float], events: list[str]) -> None:
        """A round's numbers by name, and what happened in it; the simulated clock stands at ``seconds``."""

    @abstractmethod
    def end(self, summary: Mapping[str, Any] | None) -> None:
        """The run has ended with this summary, or, without one, before its time."""

    def began(self, state: State) -> None:
        """Open it."""
        self._open = True
        self._safely(lambda: self.begin(Run(self.folder), state.round))

    def round_ended(self, progress: Progress) -> None:
        """Hand the round on."""
        record, events = progress.record, list(event_lines(progress.record))
        self._safely(lambda: self.log(record.round, progress.state.seconds, scalars_of(progress), events))

    def ended(self, state: State, why: str) -> None:
        """Hand the summary on."""
        self._safely(lambda: self.end(Run(self.folder).summary))
        self._open = False

    def __exit__(self, *_: object) -> None:
        self._safely(lambda: self.end(None))  # unless it came to its end
        self._open = False

    def _safely(self, action: Callable[[], None]) -> None:
        if not self._open:
            return
        try:
            action()
        except Exception as error:  # somebody else's program, on somebody else's server
            self._open = False
            reason = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(f"--{self.package}: {reason}; the run goes on without it", stacklevel=2)

    def known_as(self, name: Callable[[], str]) -> str:
        """What the other program calls the run: asked for once, and kept in the run's directory."""
        path = self.folder / f"{self.package}-id.txt"
        if not path.is_file():
            write_beside(path, name().encode())
        return path.read_text("utf-8")


def scalars_of(progress: Progress) -> dict[str, float]:
    """A round's numbers by the names that loggers show."""
    record, state = progress.record, progress.state
    scalars: dict[str, float] = {
        "clusters": len(state.tree.leaves()),
        "cost/round_seconds": record.seconds,
        "cost/simulated_seconds": state.seconds,
        "cost/energy_joules": record.energy_joules,
        "cost/uploads": len(record.timeline.arrived),
    }
    scalars |= {metric.tag: value for metric, value in progress.metrics.items()}
    for cluster in record.clusters:
        if cluster.mean_norm is not None and cluster.max_norm is not None:
            scalars[f"norm_mean/{cluster.node}"] = cluster.mean_norm
            scalars[f"norm_max/{cluster.node}"] = cluster.max_norm
    return {name: float(value) for name, value in scalars.items()}


def numbers_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Those values of a summary that are numbers."""
    return {name: float(value) for name, value in summary.items() if isinstance(value, int | float)}
