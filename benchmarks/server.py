"""The server's work after training: the paper's exact cut and aggregation, against loops as usually written.

Each number of devices is measured in a process of its own, so that its peak memory is its own:
``python -m benchmarks.server parts DEVICES PAIRS``, ``... step DEVICES``.
"""

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from sklearn.cluster import AgglomerativeClustering

from benchmarks.machine import Goal, Options, Report, markdown
from benchmarks.work import SHAPE
from fedclade import config as configuration
from fedclade.clustering.spanning import Pairs
from fedclade.core.arrays import Ints, Singles
from fedclade.core.tree import ROOT
from fedclade.core.updates import cosine_similarity
from fedclade.edge import SimulatedEdge
from fedclade.simulation import simulated_server

PARAMETERS = 18_506  # of the small CNN on FEMNIST
GROUPS = 2
GIBIBYTE = 1 << 30
CHECKED_PAIRS = 1000
Result = TypeVar("Result")


def planted_updates(devices: int) -> Singles:
    """Two groups that pull in different directions, under noise."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((GROUPS, PARAMETERS), dtype=np.float32)
    updates = np.empty((devices, PARAMETERS), dtype=np.float32)
    for device in range(devices):
        updates[device] = 0.5 * directions[device % GROUPS] + rng.standard_normal(PARAMETERS, dtype=np.float32)
    return updates


class GivenUpdates:
    """A Trainer whose devices have their updates ready."""

    def __init__(self, updates: Singles) -> None:
        self.updates, self.parameters = updates, updates.shape[1]
        self.incidents: list[str] = []

    def initial_model(self, variant: int = 0) -> Singles:
        return np.zeros(self.parameters, dtype=np.float32)

    def train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        return self.updates

    examiner = named_tensors = close = None  # never asked for here


def timed(function: Callable[..., Result], *arguments: Any) -> tuple[float, Result]:
    began = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - began, result


def peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# -------------------------------------------------------------------------------- as usually written


def cosines_by_pairs(updates: Singles, rows: int) -> Singles:
    """A double loop over pairs, the first ``rows`` lines of it."""
    devices = len(updates)
    cosines = np.zeros((rows, devices), dtype=np.float32)
    for i in range(rows):
        for j in range(devices):
            a, b = updates[i], updates[j]
            cosines[i, j] = np.sum(a * b) / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-12)
    return cosines


def complete_linkage(cosines: Singles) -> np.ndarray:
    return AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete").fit(-cosines).labels_


def means(updates: Singles, side: np.ndarray) -> list[Singles]:
    """Of each child, its members' updates collected into a list first."""
    return [np.mean(np.stack([updates[k] for k in np.flatnonzero(side == child)]), axis=0) for child in (0, 1)]


# -------------------------------------------------------------------------------- one number of devices


def measure_parts(devices: int, pairs: int) -> dict[str, Any]:
    """fedclade's cut of all pairs, checked against double precision and the truth; then the loops."""
    updates = planted_updates(devices)
    likeness = Pairs(updates)
    cut_seconds, side = timed(likeness.cut, 2)
    assert side is not None
    facts_seconds, _ = timed(likeness.extremes, side)
    peak = peak_bytes()
    return {
        "cut_seconds": cut_seconds,
        "facts_seconds": facts_seconds,
        "peak_bytes": peak,
        "largest_error": largest_error(updates, likeness),
        "groups_found": bool(np.array_equal(side, np.arange(devices) % GROUPS == 1)),
        **measure_loops(updates, cosine_similarity(updates), pairs),
    }


def largest_error(updates: Singles, likeness: Pairs) -> float:
    """Of the cosines of some pairs, against double precision."""
    rng = np.random.default_rng(1)
    first, second = np.sort(rng.integers(0, len(updates), (2, CHECKED_PAIRS)), axis=0)
    a, b = updates[first].astype(np.float64), updates[second].astype(np.float64)
    exact = (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))
    found = exact.copy()
    for start, block in likeness.blocks():
        here = np.flatnonzero((start <= first) & (first < start + len(block)))
        found[here] = block[first[here] - start, second[here] - start]
    return float(np.abs(found - exact).max())


def measure_step(devices: int) -> dict[str, Any]:
    """A whole round of the server but for the training: who uploads when, norms, split, and three models averaged."""
    config = configuration.load(
        {
            "run": {"evaluate_every": 10**6},
            "population": {"devices": devices},
            "scheduling": {"policy": "full"},
            "clustering": {"method": "norm-thresholds"},
            "norm_thresholds": {"epsilon1": 1e9, "epsilon2": 1e-9, "bipartition": "minmax"},
        }
    )
    samples = np.full(devices, 240)
    edge = SimulatedEdge(config, samples, int(np.prod(SHAPE)) * 8, PARAMETERS)
    server = simulated_server(config, GivenUpdates(planted_updates(devices)), edge, samples)  # type: ignore[arg-type]
    processor_began = time.process_time()
    seconds, advanced = timed(server.step, server.initial_state())
    processor_seconds = time.process_time() - processor_began
    assert advanced is not None
    assert advanced[0].tree.nodes[ROOT].split is not None
    return {"step_seconds": seconds, "step_processor_seconds": processor_seconds, "step_peak_bytes": peak_bytes()}


def measure_loops(updates: Singles, similarity: Singles, pairs: int) -> dict[str, Any]:
    """The usual way; the double loop for so many pairs, as many lines as that makes, and the rest by proportion."""
    devices = len(updates)
    rows = min(devices, max(1, pairs // devices))
    seconds, _ = timed(cosines_by_pairs, updates, rows)
    linkage_seconds, side = timed(complete_linkage, similarity)
    mean_seconds, _ = timed(means, updates, side)
    return {
        "pairs_seconds": seconds * devices / rows,
        "linkage_seconds": linkage_seconds,
        "means_seconds": mean_seconds,
        "loops_extrapolated": rows < devices,
        "loops_found_groups": len(np.unique((side + np.arange(devices)) % 2)) == 1,
    }


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {"parts": measure_parts, "step": measure_step}


def measured(name: str, *numbers: int) -> dict[str, Any]:
    """One measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.server", name, *map(str, numbers)]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def run(options: Options) -> Report:
    pairs = 2_000 if options.quick else 30_000
    results = [
        {"devices": devices, **measured("parts", devices, pairs), **measured("step", devices)}
        for devices in ((100, 400) if options.quick else (100, 1000, 10_000))
    ]
    rows = []
    for r in results:
        ours = r["cut_seconds"] + r["facts_seconds"]
        theirs = r["pairs_seconds"] + r["linkage_seconds"]
        about = "≈ " if r["loops_extrapolated"] else ""
        rows.append(
            (
                f"{r['devices']:,}",
                f"{r['cut_seconds']:.2f}",
                f"{r['facts_seconds']:.2f}",
                f"{r['step_seconds']:.2f}",
                f"{r['step_processor_seconds']:.2f}",
                f"{r['peak_bytes'] / GIBIBYTE:.2f}",
                f"{r['step_peak_bytes'] / GIBIBYTE:.2f}",
                f"{about}{theirs + r['means_seconds']:,.1f}",
                f"{about}{theirs / ours:,.0f}",
                f"{about}{(theirs + r['means_seconds']) / r['step_seconds']:,.0f}",
                f"{r['largest_error']:.0e}",
            )
        )
    head = (
        "devices",
        "cut, s",
        "its facts, s",
        "whole round, s",
        "of it processor, s",
        "peak GiB of the two",
        "peak GiB of the round",
        "loops, s",
        "loops / the two",
        "loops / round",
        "largest error",
    )
    text = (
        f"{markdown(head, rows)}\n\n≈: the double loop was timed for {pairs:,} pairs and extrapolated to all.\n\n"
        f"Exponent of a whole round's processor time in the number of devices: {', '.join(exponents(results))}."
    )
    last = results[-1]
    goals = [
        Goal(f"a round's server work of {last['devices']:,} devices", 60, last["step_seconds"], " s", at_most=True),
        Goal("its memory", 1.43, last["step_peak_bytes"] / GIBIBYTE, " GiB", at_most=True),
    ]
    return Report({"parameters": PARAMETERS, "pairs": pairs, "quick": options.quick}, results, text, goals)


def exponents(results: list[dict[str, Any]]) -> list[str]:
    """How a round's time grows from each number of devices to the next: 1 is in proportion, 2 with the square."""
    told = []
    for few, many in pairwise(results):
        times = many["step_processor_seconds"] / few["step_processor_seconds"]
        exponent = math.log(times) / math.log(many["devices"] / few["devices"])
        told.append(f"{exponent:.2f} from {few['devices']:,} to {many['devices']:,}")
    return told


if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](*map(int, sys.argv[2:]))))
