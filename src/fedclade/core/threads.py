"""How many threads the linear algebra of NumPy and SciPy uses.

After each product the threads of OpenBLAS spin for tens of milliseconds before they sleep. Where worker processes train
the devices, that takes a core from them; so a round computes with one thread, but for the few products that are worth
more. A round's numbers then do not depend on the number of cores either.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Given = ParamSpec("Given")
Result = TypeVar("Result")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blas_threads(count: int) -> AbstractContextManager[object]:
    """Within this context products of matrices use so many threads; afterwards as many as before it."""
    limit: AbstractContextManager[object] = _libraries().limit(limits=count)
    return limit


def on_one_thread(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function whose products of matrices use one thread, unless it says otherwise for some of them."""

    @wraps(function)
    def limited(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with blas_threads(1):
            return function(*args, **kwargs)

    return limited


@cache
def _libraries() -> ThreadpoolController:
    """Every OpenBLAS or MKL of this process. SciPy brings one of its own, which is found only once it is loaded."""
    import scipy.linalg.blas  # noqa: F401

    return ThreadpoolController().select(user_api="blas")
