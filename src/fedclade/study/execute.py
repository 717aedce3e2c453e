"""Run the jobs of a study, each in a process of its own."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from fedclade.core.errors import Interrupted
from fedclade.study.plan import Job

LAST_WORDS = 30  # lines kept of a run that failed

OnProgress = Callable[[Job, int], None]  # rounds done of a job; all of them when it ends


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def carry_out(
    jobs: Sequence[Job],
    processes: int,
    on_progress: OnProgress = lambda job, rounds: None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> dict[Job, str]:
    """Run what is not finished, each in a process of its own; gives what went wrong with those that failed.

    Asked to stop, it lets every run write its checkpoint and raises Interrupted.
    """
    stopping, children, lock = threading.Event(), set[subprocess.Popen[str]](), threading.Lock()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

    def one(job: Job) -> str | None:
        words = [sys.executable, "-m", "fedclade", "run", "--resume", str(job.folder)]
        with lock:
            if stopping.is_set():
                return None
            child = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # Ctrl-C comes to this process alone, which hands it on
            )
            children.add(child)
        said: deque[str] = deque(maxlen=LAST_WORDS)
        with child:
            assert child.stdout is not None
            for line in child.stdout:
                said.append(line)
                if told := re.match(r"round (\d+)/", line):
                    on_progress(job, int(told[1]))
        with lock:
            children.discard(child)
        failure = job.folder / "failure.txt"
        if child.returncode == 0 or stopping.is_set():
            failure.unlink(missing_ok=True)
            return None
        failure.write_text("".join(said), "utf-8")
        last = next((line.strip() for line in reversed(said) if line.strip()), "no word")
        return f"{last.removeprefix('fedclade: ')} (exit code {child.returncode})"

    failed: dict[Job, str] = {}
    with ThreadPoolExecutor(processes) as pool:
        futures = {pool.submit(one, job): job for job in jobs if not job.finished}
        left = set(futures)
        while left:
            done, left = wait(left, timeout=0.2)
            for future in done:
                if message := future.result():
                    failed[futures[future]] = message
                if not stopping.is_set():
                    on_progress(futures[future], futures[future].config.run.rounds)
            if stop_requested() and not stopping.is_set():
                with lock:
                    stopping.set()
                    for child in children:
                        with contextlib.suppress(ProcessLookupError):
                            child.terminate()
    if stopping.is_set():
        raise Interrupted
    return failed
