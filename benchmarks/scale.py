"""``make bench-scale``: whole runs from 100 to 100,000 devices: time, memory, and whether the groups are found.

Three planted groups of a third each and one of 1 %, which label the digits differently; 20 to 50 images a device, drawn
again from MNIST's 5,000; an MLP of 50,890 parameters; the automatic method; ten rounds, everybody trains.
Each size is a process of its own: ``python -m benchmarks.scale --devices 1000``. Results are kept in ``--out`` after
every size, and sizes that are there are not run again. A run in ``--runs`` that was interrupted goes on; with
``--minutes`` it is interrupted after so many, and the next call goes on with it.
"""

import argparse
import json
import math
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.machine import machine_facts, markdown
from benchmarks.memory import resident_bytes
from fedclade.report.opened import OpenedRun

SIZES = (100, 1_000, 10_000, 100_000)
ROUNDS = 10
POLL_SECONDS = 2.0  # to add up the memory of a large process takes a while itself


def settings(devices: int, rounds: int, seed: int) -> list[str]:
    """The quickstart with so many devices."""
    return [
        f"run.rounds={rounds}",
        f"run.seed={seed}",
        "run.conventional=frozen",
        "run.record=clusters",
        "run.evaluate_devices=2000",
        "run.checkpoint_every=2",
        f"population.devices={devices}",
        "population.redraw=true",
        "population.sizes=power-law",
        "population.min_samples=20",
        "population.max_samples=50",
        "incongruence.groups=[33,33,33,1]",
        f"edge.bandwidth_hz={max(10, devices // 100)}e6",
    ]


def measured(wanted: argparse.Namespace, devices: int, runs: Path) -> dict[str, object] | None:
    """One run in a process of its own: its summary, its peak memory and its size on disk; None: it is not done yet."""
    rounds, seed, minutes = wanted.rounds, wanted.seed, wanted.minutes
    run, known = runs / f"{devices}-seed-{seed}", runs / f"{devices}-seed-{seed}.json"
    words = [word for each in [*settings(devices, rounds, seed), *wanted.set] for word in ("--set", each)]
    how = ["--resume", str(run)] if run.exists() else ["quickstart", "--out", str(run), *words]
    before = json.loads(known.read_text()) if known.exists() else {}
    peak, processor = before.get("peak_bytes", 0), before.get("processor_seconds", 0.0) - processor_of_children()
    begun, asked = time.monotonic(), False
    with subprocess.Popen([sys.executable, "-m", "fedclade", "run", *how], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, resident_bytes(process.pid))
            if not asked and time.monotonic() - begun > 60 * minutes:
                process.send_signal(signal.SIGINT)
                asked = True
            time.sleep(POLL_SECONDS)
    processor += processor_of_children()
    known.write_text(json.dumps({"peak_bytes": peak, "processor_seconds": processor}))
    if process.returncode and asked:
        return None
    if process.returncode:
        raise RuntimeError(f"a run of {devices} devices ended with exit code {process.returncode}")
    summary = json.loads((run / "summary.json").read_text())
    sizes = {path.name: path.stat().st_size for path in run.rglob("*") if path.is_file()}
    own = 1.0 - sum(float(summary[f"wall_share_{phase}"]) for phase in ("training", "asking", "evaluation"))
    return {
        "devices": devices,
        "rounds": summary["rounds"],
        "seed": seed,
        "seconds": summary["wall_seconds"],
        "seconds_a_round": float(summary["wall_seconds"]) / int(summary["rounds"]),
        "processor_seconds": processor,
        "server_share": own,
        "peak_bytes": peak,
        "disk_bytes": sum(sizes.values()),
        "page_bytes": sizes["report.html"],
        "clusters": summary["clusters"],
        "adjusted_rand_index": summary["adjusted_rand_index"],
        "small_group_found": small_group_found(OpenedRun(run).read_tree().leaf_of(), devices // 100),
        "accuracy_mean": summary["accuracy_mean"],
        "accuracy_error": summary["accuracy_error"],
    }


def processor_of_children() -> float:
    """Seconds that all processes took that this one started and that have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def small_group_found(leaf_of: list[str], count: int) -> float:
    """The share of the smallest group, the last ``count`` devices, that is in one cluster of its own; 0: none is."""
    group = Counter(leaf_of[-count:])
    size = Counter(leaf_of)
    own = [count for leaf, count in group.items() if 2 * count > size[leaf]]
    return max(own, default=0) / group.total()


def table(rows: list[dict[str, object]]) -> str:
    """As Markdown, and below it how the time grows."""
    heads = [
        "devices",
        "s a round",
        "processor s a round",
        "server's share",
        "peak memory",
        "bytes a device",
        "on disk",
        "clusters",
        "ARI",
        "1 % group",
        "accuracy",
    ]
    lines, first = [], rows[0]
    for row in rows:
        more = int(row["devices"]) - int(first["devices"])
        each = f"{(int(row['peak_bytes']) - int(first['peak_bytes'])) / more:,.0f}" if more else "–"
        lines.append(
            [
                f"{row['devices']:,}",
                f"{row['seconds_a_round']:.2f}",
                f"{float(row['processor_seconds']) / int(row['rounds']):.2f}",
                f"{100 * float(row['server_share']):.0f} %",
                f"{int(row['peak_bytes']) / 2**30:.2f} GiB",
                each,
                f"{int(row['disk_bytes']) / 1e6:.0f} MB",
                str(row["clusters"]),
                f"{row['adjusted_rand_index']:.4f}",
                f"{100 * float(row['small_group_found']):.0f} %",
                f"{100 * float(row['accuracy_mean']):.1f} ± {100 * float(row['accuracy_error'] or 0):.1f} %",
            ]
        )
    text = markdown(heads, lines)
    large = [row for row in rows if int(row["devices"]) >= 1_000]
    if len(large) > 1:
        logs = np.log([[float(row["devices"]), float(row["processor_seconds"])] for row in large])
        exponent = np.polyfit(logs[:, 0], logs[:, 1], 1)[0]
        text += f"\n\nFrom 1,000 devices on, processor seconds a round grow as K^{exponent:.2f}."
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--devices", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scale.json")
    parser.add_argument("--runs", type=Path, help="keep the runs in this folder; unset: they are deleted")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop a run after so many; needs --runs")
    parser.add_argument(
        "--set", action="append", default=[], help="a setting of the config, such as training.workers=1"
    )
    arguments = parser.parse_args()
    kept = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {"rows": []}
    rows = {row["devices"]: row for row in kept["rows"] if row["rounds"] == arguments.rounds}
    for devices in arguments.devices:
        if devices not in rows:
            with tempfile.TemporaryDirectory() as folder:
                runs = arguments.runs or Path(folder)
                found = measured(arguments, devices, runs)
            if found is None:
                print(f"{devices} devices are not done; the same command goes on")
                return
            rows[devices] = found
            arguments.out.parent.mkdir(exist_ok=True)
            everything = {"machine": machine_facts(), "rows": [rows[each] for each in sorted(rows)]}
            arguments.out.write_text(json.dumps(everything, indent=1) + "\n")
        print(json.dumps(rows[devices]), flush=True)
    print(table([rows[each] for each in sorted(rows)]))


if __name__ == "__main__":
    main()
