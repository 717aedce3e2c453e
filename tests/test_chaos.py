"""A share of the faults of ``make chaos``: nothing is lost, nothing differs unseen, no traceback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def chaos(folder: Path, *words: str) -> str:
    """What ``python -m chaos`` prints; all cases must hold."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "chaos", "--folder", str(folder), *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
    return ended.stdout


compiler = pytest.mark.skipif(
    sys.platform != "linux" or not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="needs Linux and a C compiler"
)


@compiler
@pytest.mark.slow
def test_a_share_of_all_faults_is_held(tmp_path):
    *_, last = chaos(tmp_path, "--quick").splitlines()
    name, tried, held, failed = last.split()
    assert (name, failed) == ("all", "0")
    assert int(tried) == int(held) > 100


@compiler
@pytest.mark.slow
def test_runs_that_are_killed_and_refused_again_and_again_end_with_the_same_bytes(tmp_path):
    *_, last = chaos(tmp_path, "--soak", "0.05").splitlines()
    assert ", 0 wrong," in last
