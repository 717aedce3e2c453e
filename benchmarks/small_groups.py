"""``python -m benchmarks.small_groups``: how often a small group is found by panels, by its share of the devices.

2,000 devices with 20 to 50 handwritten digits each (8×8 pixels, an MLP) are a large group and a small one, which label
them differently. A group counts as found if, after ten rounds, more than half of it is in a cluster of which it is more
than half. Every run is a process of its own; results are kept in ``--out``, and runs that are there are not run again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import markdown
from benchmarks.scale import small_group_found
from fedclade.report.opened import OpenedRun

DEVICES = 2_000
SHARES = (0.5, 1.0, 2.0, 3.0, 5.0)  # percent
SEEDS = (11, 12, 13, 14, 15)


def settings(share: float, seed: int, worst: float) -> list[str]:
    """A run of two groups."""
    small = round(DEVICES * share / 100)
    return [
        f"run.seed={seed}",
        "run.rounds=10",
        "run.conventional=frozen",
        "run.record=clusters",
        "run.evaluate_every=10",
        "run.report=false",
        "population.source=digits",
        f"population.devices={DEVICES}",
        "population.redraw=true",
        "population.partition=iid",
        "population.sizes=power-law",
        "population.min_samples=20",
        "population.max_samples=50",
        "incongruence.kind=permute-labels",
        f"incongruence.groups=[{DEVICES - small},{small}]",
        "model.name=mlp",
        "model.hidden=32",
        "training.learning_rate=0.1",
        "training.workers=1",
        "edge.bandwidth_hz=2e7",
        f"clustering.panel_worst={worst}",
    ]


def found(share: float, seed: int, worst: float) -> float:
    """The share of the small group that is in a cluster of its own."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word for each in settings(share, seed, worst) for word in ("--set", each)]
        command = [sys.executable, "-m", "fedclade", "run", "quickstart", "--quiet", "--out", f"{folder}/run", *words]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        leaf_of = OpenedRun(Path(folder) / "run").read_tree().leaf_of()
    small = round(DEVICES * share / 100)
    return small_group_found(leaf_of, small)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_groups", description=__doc__)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="percent of the devices")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--worst", type=float, nargs="+", default=[0.05, 0.0], help="clustering.panel_worst")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "small-groups.json")
    wanted = parser.parse_args()
    known = json.loads(wanted.out.read_text()) if wanted.out.is_file() else {}
    for worst in wanted.worst:
        for share in wanted.shares:
            for seed in wanted.seeds:
                name = f"{worst:g}/{share:g}/{seed}"
                if name not in known:
                    known[name] = found(share, seed, worst)
                    wanted.out.parent.mkdir(exist_ok=True)
                    wanted.out.write_text(json.dumps(known, indent=1) + "\n")
                    print(name, known[name], flush=True)
    lines = []
    for share in wanted.shares:
        rows = [[known[f"{worst:g}/{share:g}/{seed}"] for seed in wanted.seeds] for worst in wanted.worst]
        told = [f"{sum(one > 0.5 for one in row)} of {len(row)} ({100 * sum(row) / len(row):.0f} %)" for row in rows]
        lines.append([f"{share:g} %: {round(DEVICES * share / 100)}", *told])
    heads = [f"found, panel_worst = {worst:g} (of its devices)" for worst in wanted.worst]
    print(markdown(["small group", *heads], lines))


if __name__ == "__main__":
    main()
