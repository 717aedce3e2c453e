"""`fedclade check-data` through the command line."""

import json
import re
import shlex
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest

from data_builders import stand_in_folder_with
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


ROWS = [(i % 2, float(i), i % 4 // 2) for i in range(16)]  # device, reading, class


def written(folder: Path, form: str) -> str:
    """Two devices with the same eight samples each, in one of the forms that a source may have."""
    frame = pd.DataFrame(ROWS, columns=["device", "reading", "y"])
    if form == "all.npz":
        np.savez(folder / form, x=frame[["reading"]].to_numpy(), y=frame["y"], device=frame["device"])
    elif form == "site":
        (folder / form).mkdir()
        for device, mine in frame.groupby("device"):
            np.savez(folder / form / f"pump-{device}.npz", x=mine[["reading"]], y=mine["y"])
    elif form == "all.csv":
        frame.to_csv(folder / form, index=False)
    elif form == "all.parquet":
        frame.to_parquet(folder / form, index=False)
    elif form == "saved":
        datasets.Dataset.from_pandas(frame).save_to_disk(folder / form)
    else:
        module = f"import pandas as pd\n\ndef rows(config):\n    return pd.DataFrame({frame.to_dict('list')})\n"
        (folder / "given_here.py").write_text(module)
    return form


@pytest.mark.parametrize("form", ["all.npz", "site", "all.csv", "all.parquet", "saved", "given_here:rows"])
def test_every_form_of_a_source_is_looked_at_and_told_alike(form, tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "nothing_here", "")
    told = fedclade("check-data", written(tmp_path, form), "--json")
    assert told.code == 0, told.err
    facts = json.loads(told.out)
    assert (facts["samples"], facts["dtype"], facts["classes"]) == (16, "float32", 2)
    assert (facts["devices"]["count"], facts["devices"]["samples_max"], facts["devices"]["label_skew"]) == (2, 8, 0.0)
