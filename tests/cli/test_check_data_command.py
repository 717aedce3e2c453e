"""`fedclade check-data` through the command line."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from fedclade import open_run
from tiny_runs import fedclade, refusal

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "own-data.md").read_text("utf-8")


def test_the_page_shows_what_the_command_prints_and_the_last_line_is_a_command_that_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "examples")
    (command,) = re.findall(r"^fedclade (check-data .*)", PAGE, re.MULTILINE)
    answer = fedclade(*shlex.split(command))
    assert (answer.code, answer.err) == (0, "")
    (shown,) = re.findall(r"```text\n(Samples .*?)```", PAGE, re.DOTALL)
    assert answer.out == shown
    run = shlex.split(answer.out.splitlines()[-1].removeprefix("Run it      fedclade "))
    assert fedclade(*run, "--set", "run.rounds=1", "--set", "run.report=false", "--out", tmp_path / "run").code == 0
    assert len(open_run(tmp_path / "run").devices) == 10


def test_json_is_one_object_with_the_same_facts(here):
    np.savez("[odd] name.npz", x=np.zeros((9, 4, 4), np.uint8), y=np.arange(9) % 3, device=[0, 0, 1, 1, 1, 2, 2, 2, 2])
    found = json.loads(fedclade("check-data", "[odd] name.npz", "--json").out)
    assert (found["source"], found["samples"], found["shape"]) == ("[odd] name.npz", 9, [1, 4, 4])
    assert found["devices"]["sizes"] == [{"least": n, "most": n, "devices": 1} for n in (2, 3, 4)]
    assert found["command"].endswith("--set 'population.source=[odd] name.npz' --set population.devices=3")
    assert found["command"] in fedclade("check-data", "[odd] name.npz").out


def test_a_source_with_a_name_and_many_classes_is_told_in_few_lines(here):
    lines = fedclade("check-data", "digits").out.splitlines()
    assert lines[0] == "Samples     1,797 of uint8, C×H×W = 1×8×8, 0.115 MB"
    assert "Devices     none: a pool, which the section population deals out" in lines
    np.savez("many.npz", x=np.zeros((50, 4), np.uint8), y=np.arange(50))
    assert "Classes     50, with 1 samples each" in (out := fedclade("check-data", "many.npz").out)
    assert "49:" not in out


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (("nowhere.npz",), 'population.source = "nowhere.npz": there is no such file or folder'),
        (("digits", "--set", "population.sauce=1"), "--set population.sauce = 1: no such field"),
        ((), "Missing argument 'PATH'"),
    ],
)
def test_a_mistake_is_one_line(words, right, here):
    assert right in refusal("check-data", *words)
