"""Children that meet a fault: a copy of this process runs a command, and dies or is refused at a chosen file event."""

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
COUNT, KILL, TEAR, REFUSE, REFUSE_FROM = range(5)
PATIENCE_SECONDS = 300.0  # by the wall clock, as the machine may be busy: longer is called a hang
MEMORY_BYTES = 16 << 30  # of addresses, most of which torch only reserves: more is called unbounded


def begin_again_with_faults() -> None:
    """Start this program once more with the library in front of the system's own; nothing happens the second time."""
    if "CHAOS_FAULTS" in os.environ:
        return
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        raise SystemExit("chaos: needs Linux and a C compiler (cc)")
    library = Path(tempfile.mkdtemp(prefix="chaos-")) / "faults.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **single, "LD_PRELOAD": str(library), "CHAOS_FAULTS": str(library)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


@dataclass(frozen=True)
class Fault:
    """What happens at which file event below which folder."""

    folder: Path
    action: int = COUNT
    event: int = 0
    error: int = 0

    def arm(self) -> None:
        """From now on, in this process."""
        ctypes.CDLL(None).chaos_arm(str(self.folder).encode(), self.action, ctypes.c_long(self.event), self.error)


def events() -> int:
    """File events since a fault was armed."""
    count = ctypes.CDLL(None).chaos_events
    count.restype = ctypes.c_long
    return int(count())


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code, or below 0 the signal; what it said on stderr; file events, if it counted."""

    code: int
    said: str
    events: int

    @property
    def complaint(self) -> str | None:
        """What is wrong with how it ended; None for success, and for a refusal in one line with exit code 2."""
        if self.code == 0:
            return None
        lines = self.said.splitlines()
        if self.code == 2 and len(lines) == 1 and lines[0].startswith("fedclade: "):
            return None
        return f"exit code {self.code}: {' | '.join(lines[-3:])}"


def command(words: list[str], fault: Fault) -> Ended:
    """``fedclade words`` in a copy of this process that meets a fault."""

    def work() -> None:
        from fedclade.cli import main

        sys.argv = ["fedclade", *words]
        main()

    return in_copy(work, fault)


def in_copy(work: Callable[[], None], fault: Fault) -> Ended:
    """Work in a copy of this process that meets a fault."""
    with tempfile.TemporaryFile("w+b") as said, tempfile.TemporaryFile("w+b") as counted:
        child = os.fork()
        if child == 0:
            _become(work, fault, said.fileno(), counted.fileno())
        code = _wait(child)
        said.seek(0)
        counted.seek(0)
        return Ended(code, said.read().decode("utf-8", "replace"), int(counted.read() or 0))


def _become(work: Callable[[], None], fault: Fault, said: int, counted: int) -> None:
    """Never comes back."""
    code = 99
    try:
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        fault.arm()
        try:
            work()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os.write(counted, str(events()).encode())
    finally:
        os._exit(code)


def _wait(child: int) -> int:
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE_SECONDS:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 98  # a hang


def limit_memory() -> None:
    """A child that wants more is told MemoryError, and that is a failure."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
