"""Many devices on one server: ``python -m benchmarks.load --nodes 50 --rounds 20``.

A whole deployment with Flower's simulation engine: the real ServerApp and ClientApp, a SuperLink in memory, and so many
SuperNodes whose messages a few processes work off (needs Ray). Tells whether all rounds were completed, how many
updates came of those asked for, and how the memory of the server grew.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from benchmarks.machine import markdown
from fedclade import Run
from fedclade.deployment.flower.client_app import app as client_app
from fedclade.deployment.flower.demo import DEMO
from fedclade.deployment.flower.server_app import deploy

SAMPLE_SECONDS = 0.5
DIGITS = 1797  # images in the embedded data set


class Memory(threading.Thread):
    """Looks at the memory of this process again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, float]] = []  # when; MB

    def run(self) -> None:
        """Until the process ends."""
        while True:
            pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
            self.seen.append((time.monotonic(), pages * os.sysconf("SC_PAGE_SIZE") / 1e6))
            time.sleep(SAMPLE_SECONDS)

    def at(self, moment: float) -> float:
        """What it was then."""
        return min(self.seen, key=lambda one: abs(one[0] - moment))[1]


def loaded(nodes: int, rounds: int, processes: int, out: Path) -> tuple[Run, list[float], list[float]]:
    """A run; the memory of the server in its rounds (MB), and how long these took (s)."""
    settings = {
        **DEMO,
        "out": str(out),
        "run.rounds": rounds,
        "run.evaluate_every": rounds,
        "population.devices": nodes,
        "population.samples": min(DIGITS, 30 * nodes),
        "population.min_samples": min(10, DIGITS // nodes),
        "edge.bandwidth_hz": 1e6 * nodes,  # all uploads at once: one message a device and round
        "wait-seconds": 600,
        "grace-seconds": 600,
    }
    settings.pop("resume")
    memory, done, ended = Memory(), list[Run](), list[float]()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        memory.start()
        done.append(deploy(grid, settings))
        ended.append(time.monotonic())

    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": processes, "include_dashboard": False}}
    run_simulation(server, client_app, nodes, backend_config=resources)
    (run,) = done
    seconds = run.rounds["seconds"].tolist()
    moments = [ended[0] - sum(seconds[i + 1 :]) for i in range(len(seconds))]
    return run, [memory.at(moment) for moment in moments], seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    words = parser.parse_args()
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    with tempfile.TemporaryDirectory() as folder:
        run, memory, seconds = loaded(words.nodes, words.rounds, words.processes, Path(folder) / "run")
        asked, missed = len(run.uploads), int(run.uploads["missed"].sum())
        head = ("nodes", "rounds", "uploads asked for", "missed", "MB in the first round", "halfway", "in the last")
        half = memory[len(memory) // 2]
        told = [f"{each:.0f}" for each in (memory[0], half, memory[-1])]
        print(markdown(head, [(words.nodes, len(seconds), asked, missed, *told)]))


if __name__ == "__main__":
    main()
