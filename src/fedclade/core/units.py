"""Numbers with units, as a person reads them."""

import math


def duration(seconds: float) -> str:
    """A time a person can read: 214 days, 39.6 s, 12 ms, 3 µs."""
    if seconds == 0:
        return "0 s"
    if not math.isfinite(seconds):
        return "forever"
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 3 * length:
            return f"{seconds / length:.{0 if unit == 'days' else 1}f} {unit}"
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * length:  # 999.7 ms would be rounded to 1e+03 ms
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def number(value: float, digits: int = 3) -> str:
    """A few digits, and whole numbers instead of powers of ten: 2.9, 296, 1476, 14,760."""
    if abs(value) < 10**digits - 0.5 or not math.isfinite(value):
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.0f}"
