import time

import pytest

from fedclade.core.stopwatch import Stopwatch


def test_a_phase_within_another_counts_for_itself_alone(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = Stopwatch()
    with watch.measure("clustering"):
        now[0] += 1
        with watch.measure("asking"):
            now[0] += 10
            with watch.measure("training"):
                now[0] += 100
        with watch.measure("asking"):
            now[0] += 20
        now[0] += 2
    now[0] += 1000
    spent = watch.spent()
    found = {name: spent[name] for name in ("clustering", "asking", "training", "seconds")}
    assert found == pytest.approx({"clustering": 3, "asking": 30, "training": 100, "seconds": 1133})
