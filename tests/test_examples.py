"""The examples do what they say."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from fedclade import open_run
from tiny_runs import executable, tiny, tiny_file

EXAMPLES = Path(__file__).parent.parent / "examples"
POLICY = "scheduling.policy=own_policy:longest_waiting"
ALLOCATION = "scheduling.allocation=own_allocation:even_ends"


def test_a_policy_of_ones_own_decides_who_is_heard(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    run = tiny(POLICY, "scheduling.per_round=2", "clustering.enabled=false").run(tmp_path / "run")
    assert run.summary["policy"] == "longest-waiting"
    # three rounds of two of six devices: everybody once
    assert run.uploads.groupby("round").size().tolist() == [2, 2, 2]
    assert sorted(run.uploads["device"]) == [0, 1, 2, 3, 4, 5]


def test_an_allocation_of_ones_own_shares_the_bandwidth_and_shortens_every_round(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    few = ("edge.subchannel_hz=4e6", "clustering.enabled=false")  # two sub-channels for six devices
    fixed, own = (tiny(*few, *more).run(tmp_path / f"run{len(more)}") for more in ([], [ALLOCATION]))
    assert (own.rounds["makespan_seconds"] < 0.999 * fixed.rounds["makespan_seconds"]).all()
    experiment = tiny(*few, ALLOCATION)
    for round_ in (1, 2, 3):
        plan = experiment.plan(round_)
        assert plan.timeline.end.tolist() == own.uploads.query(f"round == {round_}")["end_seconds"].tolist()
        # by brute force: no other pair of widths makes the round much shorter
        timeline, uplink = plan.timeline, experiment.edge.observe(round_).uplink.of(plan.timeline.device)

        def makespan(share, timeline=timeline, uplink=uplink):
            width = np.array([share, 1 - share])[timeline.subchannel] * 10e6
            free = [0.0, 0.0]
            for channel, ready, upload in zip(
                timeline.subchannel, timeline.ready, uplink.seconds(width, uplink.power_w), strict=True
            ):
                free[channel] = max(ready, free[channel]) + upload
            return max(free)

        best = min(makespan(share) for share in np.linspace(0.01, 0.99, 99))
        assert timeline.makespan <= 1.001 * best


@pytest.mark.slow
@pytest.mark.parametrize(("file", "override"), [("own_policy.py", POLICY), ("own_allocation.py", ALLOCATION)])
def test_the_command_in_a_docstring_works_from_the_examples_folder(tmp_path, file, override):
    assert f"fedclade run quickstart --set {override}" in (EXAMPLES / file).read_text("utf-8")
    words = [executable(), "run", tiny_file(tmp_path), "--set", override, "--out", str(tmp_path / "run")]
    subprocess.run(words, cwd=EXAMPLES, check=True)
    run = open_run(tmp_path / "run")
    chosen = run.config.scheduling
    assert override in (f"scheduling.policy={chosen.policy}", f"scheduling.allocation={chosen.allocation}")
    assert run.summary["policy"] == ("longest-waiting" if override == POLICY else "fair")
