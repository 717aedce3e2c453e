"""``python -m benchmarks.neighbours 10000 100000``: cuts by nearest neighbours, beside those of all pairs up to 10,000.

Sketches of 1,024 numbers of devices in two groups. Each cut is made in a process of its own, so that its peak memory is
its own.
"""

import json
import subprocess
import sys

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.machine import machine_facts, markdown
from benchmarks.server import GIBIBYTE, peak_bytes, timed
from fedclade.clustering import bipartition
from fedclade.clustering.neighbours import bipartition_by_neighbours, directions, extremes
from fedclade.config import NormThresholdsConfig
from fedclade.core.arrays import Bools, Singles
from fedclade.core.updates import cosine_similarity

WIDTH, GROUPS = 1024, (0.7, 0.3)
RULE = NormThresholdsConfig()
KINDS = ("minmax", "average")


def planted(devices: int) -> tuple[Singles, Bools]:
    """Sketches, and who is in the second group: updates of one group have cosines of about 0.2."""
    rng = np.random.default_rng(0)
    second = rng.random(devices) < GROUPS[1]
    middle = 0.5 * rng.standard_normal((2, WIDTH), dtype=np.float32)
    sketches = rng.standard_normal((devices, WIDTH), dtype=np.float32)
    sketches += middle[second.astype(int)]
    return sketches, second


def measured(devices: int, method: str, exact: bool) -> dict[str, object]:
    """One cut, and what is said of it."""
    sketches, second = planted(devices)
    if exact:
        seconds, side = timed(lambda: bipartition(cosine_similarity(sketches), method, 2))
        told = 0.0
    else:
        unit = directions(sketches)
        seconds, side = timed(bipartition_by_neighbours, unit, method, 2, RULE.neighbours)
        told, _ = timed(extremes, unit, second if side is None else side)
    right = 0.0 if side is None else float(adjusted_rand_score(second, side))
    return {"cut": seconds, "told": told, "peak": peak_bytes(), "right": right}


def main() -> None:
    if sys.argv[1] == "one":
        print(json.dumps(measured(int(sys.argv[2]), sys.argv[3], sys.argv[4] == "pairs")))
        return
    lines = []
    for devices in map(int, sys.argv[1:]):
        for how in ("pairs", "neighbours") if devices <= RULE.pairs_up_to else ("neighbours",):
            for method in KINDS:
                command = [sys.executable, "-m", "benchmarks.neighbours", "one", str(devices), method, how]
                one = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                seconds = f"{one['cut']:.1f}", f"{one['told']:.1f}" if how == "neighbours" else "–"
                lines.append(
                    [f"{devices:,}", how, method, *seconds, f"{one['peak'] / GIBIBYTE:.2f}", f"{one['right']:.3f}"]
                )
    print(machine_facts())
    print(markdown(["devices", "by", "cut", "cut, s", "its facts, s", "peak GiB", "ARI"], lines))


if __name__ == "__main__":
    main()
