"""Randomness is counted, not consumed.

Every draw is keyed by what it is for, never by what was drawn before it. So a result depends on neither the
policy's order, the number of workers, nor on whether the run was interrupted.
"""

import zlib

import numpy as np


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """A fresh generator for one purpose, e.g. ``generator(seed, "batches", round, device)``."""
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, counters)))


def derived_seed(seed: int, purpose: str, *counters: int) -> int:
    """A 63-bit seed for libraries that keep a generator of their own (torch)."""
    return int(_sequence(seed, purpose, counters).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: str, counters: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), *counters))
