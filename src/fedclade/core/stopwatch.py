"""Where a run's wall time goes. Not part of any result: everything else depends on the config and the seed alone."""

import contextlib
import time
from collections.abc import Iterator, Mapping

PHASES = ("training", "asking", "clustering", "evaluation", "disk")


class Stopwatch:
    """Seconds in each phase and in all, device updates and samples trained; added up over interruptions."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(("seconds", "updates", "samples", *PHASES), 0.0)
        self._begun, self._within = time.perf_counter(), 0.0  # seconds in phases within the present one

    def add(self, before: Mapping[str, float]) -> None:
        """Count what earlier processes spent on the same run, too."""
        for name, count in before.items():
            self._spent[name] += count

    @contextlib.contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Count the time inside towards a phase; what another phase within it takes counts towards that one alone."""
        begun, self._within, outside = time.perf_counter(), 0.0, self._within
        try:
            yield
        finally:
            took = time.perf_counter() - begun
            self._spent[phase] += took - self._within
            self._within = outside + took

    def trained(self, updates: int, samples: int) -> None:
        """Count what was trained."""
        self._spent["updates"] += updates
        self._spent["samples"] += samples

    def spent(self) -> dict[str, float]:
        """All counts up to now."""
        now = time.perf_counter()
        self._spent["seconds"] += now - self._begun
        self._begun = now
        return dict(self._spent)

    def summary(self) -> dict[str, float]:
        """The counts as a run's summary shows them; every name begins with ``wall_``."""
        spent = self.spent()
        training, seconds = max(spent["training"], 1e-9), max(spent["seconds"], 1e-9)
        return {
            "wall_seconds": round(spent["seconds"], 3),
            "wall_updates_per_second": round(spent["updates"] / training, 2),
            "wall_samples_per_second": round(spent["samples"] / training, 1),
            **{f"wall_share_{phase}": round(spent[phase] / seconds, 4) for phase in PHASES},
        }
