"""How many threads linear algebra uses: one within a round, as many as before after it."""

import numpy as np
import pytest
import scipy.linalg.blas  # noqa: F401  has a library of its own
from threadpoolctl import threadpool_info

from fedclade.core import updates
from fedclade.core.threads import blas_threads, cores, on_one_thread
from made_up import LINE, make, play


def threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_a_context_limits_every_library_and_gives_back_what_was():
    with blas_threads(2):
        before = threads()
        with blas_threads(1):
            assert set(threads()) == {1}
        assert threads() == before


@pytest.mark.parametrize("fails", [False, True])
def test_a_function_on_one_thread_gives_back_what_was_also_when_it_fails(fails):
    @on_one_thread
    def seen(number):
        if fails:
            raise ZeroDivisionError
        return number, threads()

    with blas_threads(2):
        if fails:
            with pytest.raises(ZeroDivisionError):
                seen(7)
        else:
            assert seen(7)[0] == 7
            assert set(seen(7)[1]) == {1}
        assert set(threads()) == {2}


def test_a_round_computes_on_one_thread():
    """Spinning threads of the server would take the cores that train the devices."""
    seen = []
    server = make(LINE, pull=lambda round_: seen.append(threads()) or 1.0)
    with blas_threads(2):
        play(server, 1)
        assert set(threads()) == {2}
    assert {number for each in seen for number in each} == {1}


def test_many_cosines_use_every_core_and_few_use_one(monkeypatch):
    asked = []
    monkeypatch.setattr(updates, "blas_threads", lambda count: asked.append(count) or blas_threads(count))
    rows = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
    few = updates.cosine_similarity(rows)
    monkeypatch.setattr(updates, "WORTH_THREADS", 0)
    many = updates.cosine_similarity(rows)
    assert asked == [1, cores()]
    np.testing.assert_allclose(few, many, atol=1e-6)
