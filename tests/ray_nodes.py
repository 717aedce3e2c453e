"""A Ray cluster of several nodes on this machine, each of them a group of processes that can be killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="needs the extra ray")

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # not 15, with which actors starve beside other work
    "OMP_NUM_THREADS": "1",
}
PATIENCE = 300  # seconds; generous, for a busy machine


class Nodes:
    """A head without cores and worker nodes with one core each, every one a group of processes of its own."""

    def __init__(self, folder: Path, address: str = "") -> None:
        """The head's ``address`` may be that of another one, which is gone."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = address or f"127.0.0.1:{free.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        self._head = ["--head", f"--port={port}", "--num-cpus=0", f"--temp-dir={folder}"]
        self.started, self._killed = [self._start(*self._head)], set[int]()

    def revive(self) -> None:
        """Start anew what ended by itself: on a busy machine a node may need more than one start."""
        for node, process in enumerate(self.started):
            if process.poll() is not None and node not in self._killed:
                options = [f"--address={self.address}", "--num-cpus=1"] if node else self._head
                self.started[node] = self._start(*options)

    def add(self) -> None:
        """One more; wait until it is there, and nobody who was killed is counted any more."""
        end = time.monotonic() + PATIENCE
        self.start_worker()
        workers = len(self.started) - 1 - len(self._killed - {0})
        while ray.cluster_resources().get("CPU", 0) != workers:
            assert time.monotonic() < end, "no node came"
            self.revive()
            time.sleep(0.2)

    def start_worker(self) -> None:
        """One more, for whoever waits for it."""
        self.started.append(self._start(f"--address={self.address}", "--num-cpus=1"))

    def joined(self, command: "list[str | Path]", environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        """A program that needs a cluster, as soon as all nodes are there."""
        status = [Path(sys.executable).with_name("ray"), "status", f"--address={self.address}"]
        end = time.monotonic() + PATIENCE
        while True:
            told = subprocess.run(status, env=environment, capture_output=True, text=True, check=False).stdout
            if f"/{len(self.started) - 1}.0 CPU" in told:
                return subprocess.Popen(command, env=environment)
            assert time.monotonic() < end, f"the nodes did not come: {told}"
            self.revive()
            time.sleep(0.2)

    def _start(self, *options: str) -> "subprocess.Popen[bytes]":
        command = [Path(sys.executable).with_name("ray"), "start", "--block", "--node-ip-address=127.0.0.1"]
        common = ["--object-store-memory=100000000", "--disable-usage-stats", "--include-dashboard=false"]
        return subprocess.Popen(
            [*command, *options, *(common if "--head" in options else common[:2])],
            env={**os.environ, **QUIET},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, node: int) -> None:
        """With everything on it, for good."""
        self._killed.add(node)
        os.killpg(self.started[node].pid, signal.SIGKILL)
        self.started[node].wait()

    def close(self) -> None:
        for node, process in enumerate(self.started):
            if process.poll() is None:
                self.kill(node)
