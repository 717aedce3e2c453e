"""Numbers and lists of devices as a person reads them."""

import math


def percent(value: float | None) -> str:
    """A share as a person reads it."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def rate(bps: float) -> str:
    """A data rate as a person reads it."""
    for unit, size in (("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps:.3g} bit/s"


def spans(ids: list[int]) -> str:
    """0-6, 9, 11-13."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
