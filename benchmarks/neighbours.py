"""``python -m benchmarks.neighbours 10000 100000``: cuts of very many devices, by sketches of their updates.

Sketches of 1,024 numbers of devices in two groups. ``minmax`` is exact, of all pairs, a block at a time. ``average``
linkage is that of all pairs up to ``norm_thresholds.pairs_up_to`` devices, and of 2,000 of them beyond, whose sides the
others join; up to there both are shown. Each cut is made in a process of its own, so that its peak memory is its own.
"""

import json
import subprocess
import sys
import time

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.machine import machine_facts, markdown
from benchmarks.server import GIBIBYTE, peak_bytes, timed
from fedclade.clustering import bipartition
from fedclade.clustering.neighbours import bipartition_by_some, directions
from fedclade.clustering.spanning import Pairs
from fedclade.config import NormThresholdsConfig
from fedclade.core.arrays import Bools, Singles
from fedclade.core.updates import cosine_similarity

WIDTH, GROUPS = 1024, (0.7, 0.3)
RULE = NormThresholdsConfig()
CUTS = {
    "minmax, all pairs": lambda sketches: Pairs(sketches).cut(2),
    "average, all pairs": lambda sketches: bipartition(cosine_similarity(sketches), "average", 2),
    "average, of 2,000": lambda sketches: bipartition_by_some(directions(sketches), "average", 2, RULE.neighbours),
}


def planted(devices: int) -> tuple[Singles, Bools]:
    """Sketches, and who is in the second group: updates of one group have cosines of about 0.2."""
    rng = np.random.default_rng(0)
    second = rng.random(devices) < GROUPS[1]
    middle = 0.5 * rng.standard_normal((2, WIDTH), dtype=np.float32)
    sketches = rng.standard_normal((devices, WIDTH), dtype=np.float32)
    sketches += middle[second.astype(int)]
    return sketches, second


def measured(devices: int, name: str) -> dict[str, object]:
    """One cut."""
    sketches, second = planted(devices)
    processor = time.process_time()
    seconds, side = timed(CUTS[name], sketches)
    right = 0.0 if side is None else float(adjusted_rand_score(second, side))
    return {
        "seconds": seconds,
        "processor": time.process_time() - processor,
        "peak": peak_bytes(),
        "right": right,
    }


def main() -> None:
    if sys.argv[1] == "one":
        print(json.dumps(measured(int(sys.argv[2]), sys.argv[3])))
        return
    lines = []
    for devices in map(int, sys.argv[1:]):
        for name in CUTS:
            if name == "average, all pairs" and devices > RULE.pairs_up_to:
                continue
            command = [sys.executable, "-m", "benchmarks.neighbours", "one", str(devices), name]
            one = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
            numbers = f"{one['seconds']:.1f}", f"{one['processor']:.1f}", f"{one['peak'] / GIBIBYTE:.2f}"
            lines.append([f"{devices:,}", name, *numbers, f"{one['right']:.3f}"])
            print(lines[-1], flush=True)
    print(machine_facts())
    print(markdown(["devices", "cut", "s", "processor s", "peak GiB", "ARI"], lines))


if __name__ == "__main__":
    main()
