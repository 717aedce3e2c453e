"""The processes of a study: each run is one, so that one that dies takes nobody with it.

Where it can be, they are forks of one warm process (``fedclade.cli.nursery``), which has imported and read beforehand
what all of them need; elsewhere, and where that process is gone, each is started from nothing.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

CAN_FORK = sys.platform == "linux"  # elsewhere a fork does not get along with threads that libraries start
COMMAND = (sys.executable, "-m", "fedclade")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Child(Protocol):
    """A run's process."""

    def lines(self) -> Iterator[str]:
        """What it says, until it ends or closes its output."""
        ...

    def terminate(self) -> None:
        """Ask it to write its checkpoint and end."""
        ...

    def ended(self) -> int:
        """Wait for its end: the exit code, or below 0 the signal that killed it."""
        ...


class _Cold:
    """A process of its own from the beginning."""

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(
            words,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",  # users' own code may print anything
            start_new_session=True,  # Ctrl-C comes to this process alone, which hands it on
        )

    def lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        yield from self._process.stdout

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def ended(self) -> int:
        with self._process:
            return self._process.wait()


class _Warm:
    """A fork of the nursery; ``status`` tells its number and, in the end, its exit code."""

    def __init__(self, output: int, status: int) -> None:
        self._output = os.fdopen(output, encoding="utf-8", errors="replace")
        self._status = os.fdopen(status)
        self.number = int(self._status.readline() or 0)  # 0: the nursery is gone

    def lines(self) -> Iterator[str]:
        yield from self._output

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGTERM)

    def ended(self) -> int:
        with self._output, self._status:
            return int(self._status.readline() or -signal.SIGKILL)


class Children:
    """The processes that are running. Once they are asked to stop, no other one starts."""

    def __init__(self, warm: bool) -> None:
        self.stopping = False
        self._running: set[Child] = set()
        self._lock = threading.Lock()
        self._nursery = _started() if warm and CAN_FORK else None

    def start(self, words: list[str], folder: Path) -> Child | None:
        """Start one, the run in a folder; None when it is too late for that."""
        with self._lock:
            if self.stopping:
                return None
            child = self._forked(words, folder) or _Cold([*COMMAND, *words])
            self._running.add(child)
        return child

    def _forked(self, words: list[str], folder: Path) -> Child | None:
        if self._nursery is None:
            return None
        (output, their_output), (status, their_status) = os.pipe(), os.pipe()
        requests, _ = self._nursery
        request = json.dumps({"words": words, "folder": str(folder)}).encode()
        with contextlib.suppress(OSError):  # where the nursery is gone, nobody writes the number
            socket.send_fds(requests, [request], [their_output, their_status])
        os.close(their_output)
        os.close(their_status)
        child = _Warm(output, status)
        if child.number:
            return child
        child.ended()
        self.close()
        return None

    def forget(self, child: Child) -> None:
        """One has ended."""
        with self._lock:
            self._running.discard(child)

    def stop(self) -> None:
        """Ask all of them to write their checkpoints and end."""
        with self._lock:
            self.stopping = True
            for child in self._running:
                child.terminate()

    def close(self) -> None:
        """Let the nursery end; runs that are going on go on."""
        if self._nursery is not None:
            requests, process = self._nursery
            requests.close()
            process.wait()
            self._nursery = None


def _started() -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """The nursery, to be reached through this socket, which it ends with."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "fedclade.cli.nursery", str(theirs.fileno())],
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return ours, process
