"""The examples do what they say."""

import subprocess
from pathlib import Path

import pytest

from fedclade import open_run
from tiny_runs import executable, tiny, tiny_file

EXAMPLES = Path(__file__).parent.parent / "examples"
POLICY = "scheduling.policy=own_policy:longest_waiting"


def test_a_policy_of_ones_own_decides_who_is_heard(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    run = tiny(POLICY, "scheduling.per_round=2", "clustering.enabled=false").run(tmp_path / "run")
    assert run.summary["policy"] == "longest-waiting"
    # three rounds of two of six devices: everybody once
    assert run.uploads.groupby("round").size().tolist() == [2, 2, 2]
    assert sorted(run.uploads["device"]) == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_the_command_in_the_policys_docstring_works_from_the_examples_folder(tmp_path):
    assert f"fedclade run quickstart --set {POLICY}" in (EXAMPLES / "own_policy.py").read_text("utf-8")
    words = [executable(), "run", tiny_file(tmp_path), "--set", POLICY, "--out", str(tmp_path / "run")]
    subprocess.run(words, cwd=EXAMPLES, check=True)
    assert open_run(tmp_path / "run").summary["policy"] == "longest-waiting"
