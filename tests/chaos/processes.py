"""Workers and runs that are killed at any moment: the run goes on, or is resumed, to the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from chaos.world import Case, World
from fedclade import config as configuration
from tiny_runs import outcome, tiny

CASES = 6
WORKERS = ("training.engine=workers", "training.workers=2", "run.rounds=6", "run.checkpoint_every=1")


def cases(world: World) -> Iterator[Case]:
    """A few of each: every one starts three processes."""
    for victim in ("worker", "run"):
        for number in range(CASES):
            yield Case(f"process/{victim}/{number}", partial(_held, world, victim, number))


def _reference(world: World) -> tuple[Path, dict[str, object]]:
    """The config, and what comes of it in one process: the number of workers changes nothing."""
    config, folder = world.folder / "workers.toml", world.folder / "finished-workers"
    if not (folder / "summary.json").is_file():
        config.write_text(configuration.to_toml(tiny(*WORKERS).config), "utf-8")
        tiny(*WORKERS, "training.workers=1").run(folder, overwrite=folder.exists())
    return config, outcome(folder)


def _held(world: World, victim: str, number: int) -> str | None:
    config, right = _reference(world)
    draw = random.Random(f"{victim} {number}")
    with world.scratch() as folder:
        process = _start("run", str(config), "--out", str(folder), "-q")
        try:
            workers = _wait_for_workers(process)
            time.sleep(draw.uniform(0, 1.0))
            os.kill(draw.choice(workers) if victim == "worker" else process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had ended before
        process.wait(600)
        if victim == "run" and process.returncode:
            process = _start("run", "--resume", str(folder), "-q")
            process.wait(600)
        if process.returncode:
            return f"exit code {process.returncode}"
        alive = [worker for worker in workers if Path(f"/proc/{worker}/cmdline").exists()]
        deadline = time.monotonic() + 60
        while alive and time.monotonic() < deadline:
            alive = [worker for worker in alive if Path(f"/proc/{worker}/cmdline").exists()]
            time.sleep(0.1)
        if alive:
            return f"workers {alive} outlive their run"
        return None if outcome(folder) == right else "differs"


def _start(*words: str) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "fedclade", *words], env=environment, **quiet)


def _wait_for_workers(process: "subprocess.Popen[bytes]") -> list[int]:
    while process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        found = [int(child) for child in children.read_text().split()] if children.is_file() else []
        if len(found) >= 2:
            return found
        time.sleep(0.05)
    raise ProcessLookupError
