"""On what a run is computed: the processor, and the libraries whose rounding its numbers depend on.

One machine gives the same bytes again and again. Another processor, instruction set or library adds the same numbers in
another order, so that results agree to rounding only. A run therefore records these facts, and whoever resumes it
elsewhere is told what differs.
"""

import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

LIBRARIES = ("torch", "numpy", "scipy", "fedclade")


def facts() -> dict[str, str]:
    """What this process computes with, as flat text fields.

    ``instruction_set`` is what torch uses (default, avx2, avx512), or "none" in a process that has not imported torch:
    whatever trains has. ``blas`` names NumPy's linear algebra and the kernels that it chose for this processor.
    """
    torch = sys.modules.get("torch")
    return {
        "processor": _processor(),
        "instruction_set": torch.backends.cpu.get_cpu_capability().lower() if torch else "none",
        "blas": _blas(),
        **{f"{name}_version": _version(name) for name in LIBRARIES},
        "python_version": platform.python_version(),
    }


def differences(recorded: Mapping[str, str], here: Mapping[str, str]) -> str | None:
    """One sentence that names every recorded fact which is different here; None where all are the same."""
    other = [(name, value) for name, value in recorded.items() if here.get(name) != value]
    if not other:
        return None
    named = "; ".join(f"{name} was {value}, here {here.get(name)}" for name, value in other)
    return f"begun on another machine or with other libraries, so its bytes may differ: {named}"


@cache
def _processor() -> str:
    """The model's name as Linux tells it, or what Python knows of the platform."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"


@cache
def _blas() -> str:
    """The name and version of NumPy's BLAS, and its kernels where it tells them: "scipy-openblas 0.3.31, Haswell"."""
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    mine = [each for each in threadpool_info() if each["user_api"] == "blas" and "numpy" in each["filepath"]]
    kernels = sorted({str(each["architecture"]) for each in mine if "architecture" in each})
    return ", ".join([f"{built['name']} {built['version']}", *kernels])
