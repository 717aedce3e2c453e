"""Peak resident memory of one round against the number of devices, and what the arithmetic says.

Summed over fedclade's process and its workers, memory they share counted once (Linux's proportional set size). Each
number of devices is a run of its own: ``python -m benchmarks.memory DEVICES``.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.machine import Options, Report, markdown
from benchmarks.work import SHAPE, random_population, work_config
from fedclade.edge import SimulatedEdge
from fedclade.fleet.simulated.engines import Engine, build_trainer
from fedclade.simulation import simulated_server

IMAGES = 20  # of each device
MEBIBYTE = 1 << 20
POLL_SECONDS = 0.02


def one_round(devices: int) -> None:
    """With two workers, one local epoch."""
    config, population = work_config("cnn", devices, epochs=1), random_population(devices, IMAGES)
    trainer = build_trainer(Engine("workers", 2), config, population)
    edge = SimulatedEdge(config, population.samples, population.bits_per_sample, trainer.parameters)
    server = simulated_server(config, trainer, edge, population.samples)
    advanced = server.step(server.initial_state())
    assert advanced is not None
    assert len(advanced[1].computed) == devices
    print(trainer.parameters)
    trainer.close()


def resident_bytes(process: int) -> int:
    """Of a process and its children now; 0 for one that has gone."""
    try:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    own = next((line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return int(own) * 1024 + sum(resident_bytes(int(child)) for child in children)


def peak_of_a_round(devices: int) -> tuple[int, int]:
    """Peak bytes, and the model's parameters."""
    command = [sys.executable, "-m", "benchmarks.memory", str(devices)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident_bytes(process.pid))
            time.sleep(POLL_SECONDS)
        assert process.stdout is not None
        if process.returncode:
            raise RuntimeError(f"a round of {devices} devices ended with exit code {process.returncode}")
        return peak, int(process.stdout.read())


def expected_bytes(parameters: int) -> dict[str, int]:
    """What grows with each device, in bytes."""
    row, images = 4 * parameters, IMAGES * (int(np.prod(SHAPE)) + 8)
    return {
        "updates, written by the workers, kept by the server": row,
        "images and labels": images,
        "the workers' images and labels": images,
    }


def run(options: Options) -> Report:
    counts = (20, 100) if options.quick else (20, 100, 500, 1000)
    peaks, parameters = [], 0
    for devices in counts:
        peak, parameters = peak_of_a_round(devices)
        peaks.append(peak)
    per_device = (peaks[-1] - peaks[0]) / (counts[-1] - counts[0])
    expected = expected_bytes(parameters)
    rows = [
        (f"{k:,}", f"{peak / MEBIBYTE:,.0f}", f"{(peak - peaks[0]) / MEBIBYTE:,.0f}")
        for k, peak in zip(counts, peaks, strict=True)
    ]
    head = ("devices", "peak MiB", f"MiB more than with {counts[0]}")
    parts = [(name, f"{size:,}") for name, size in expected.items()]
    text = (
        f"{markdown(head, rows)}\n\nBytes for each further device: {per_device:,.0f} measured, "
        f"{sum(expected.values()):,} by this arithmetic ({parameters:,} parameters, {IMAGES} images):\n\n"
        f"{markdown(('what', 'bytes per device'), parts)}"
    )
    results = {"devices": counts, "peak_bytes": peaks, "bytes_per_device": per_device, "expected": expected}
    return Report({"images": IMAGES, "model": "cnn", "epochs": 1, "quick": options.quick}, results, text)


if __name__ == "__main__":
    one_round(int(sys.argv[1]))
