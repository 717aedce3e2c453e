"""The shortest round there is, for few devices: OR-tools' CP-SAT as an optional extra.

The search is bounded by CP-SAT's deterministic time, not by the wall clock, and runs on one thread from a fixed seed:
the same round gives the same plan on every machine.
"""

from functools import lru_cache

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError

RESOLUTION = 10_000_000  # ticks in the shortest round known before the search
DETERMINISTIC_SECONDS = 1.0  # a few seconds of one core


def shortest_order(ready: Floats, upload: Floats, subchannels: int, known_start: Floats) -> tuple[Ints, float]:
    """The upload order of a shortest round, and the proven lower bound of its makespan in seconds.

    ``known_start`` is a schedule to begin the search with. Times are rounded down to ticks, so the bound holds for the
    real times, and the order, placed with the real times, is at most a few ticks longer than what the solver saw.
    """
    try:
        from ortools.sat.python import cp_model  # noqa: F401
    except ImportError as error:
        raise UserError(
            "scheduling.order = \"optimal\": needs OR-tools; install it with: pip install 'fedclade[optimal]'"
        ) from error
    order, proven = _searched(*(tuple(times.tolist()) for times in (ready, upload, known_start)), subchannels)
    return np.array(order, dtype=np.int64), proven


@lru_cache(maxsize=1)  # every allocation rule under which a round is planned asks for the same search
def _searched(
    ready_at: tuple[float, ...], lasts: tuple[float, ...], known_at: tuple[float, ...], subchannels: int
) -> tuple[tuple[int, ...], float]:
    from ortools.sat.python import cp_model

    ready, upload, known_start = (np.array(times) for times in (ready_at, lasts, known_at))
    known = np.argsort(known_start, kind="stable")
    horizon = float((known_start + upload).max(initial=0.0))
    if horizon == 0.0:
        return tuple(known.tolist()), 0.0
    tick = horizon / RESOLUTION
    release, length, hint = (np.floor(seconds / tick).astype(int).tolist() for seconds in (ready, upload, known_start))
    last = RESOLUTION + 1
    model = cp_model.CpModel()
    starts = [model.new_int_var(r, last, "") for r in release]
    intervals = [model.new_fixed_size_interval_var(s, p, "") for s, p in zip(starts, length, strict=True)]
    makespan = model.new_int_var(0, last, "")
    model.add_cumulative(intervals, [1] * len(intervals), subchannels)
    for i, s in enumerate(starts):
        model.add(makespan >= s + length[i])
        model.add_hint(s, hint[i])
    model.minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = DETERMINISTIC_SECONDS
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return tuple(known.tolist()), 0.0
    order = np.argsort(np.array([solver.value(s) for s in starts]), kind="stable")
    return tuple(order.tolist()), float(solver.best_objective_bound) * tick
