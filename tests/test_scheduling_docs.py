"""The commands of docs/scheduling.md do what they say; runs and measurements on the tiny population."""

import sys
from pathlib import Path

import pytest

from tiny_runs import fedclade, tiny_file

ROOT = Path(__file__).parent.parent
LINES = [line.split("#")[0].split() for line in (ROOT / "docs/scheduling.md").read_text("utf-8").splitlines()]
COMMANDS = [words for words in LINES if words[:1] in (["fedclade"], ["python"])]


@pytest.mark.parametrize("words", [words[1:] for words in COMMANDS if words[0] == "fedclade"], ids=" ".join)
def test_a_command_works(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [tiny_file(tmp_path) if word == "quickstart" and words[0] == "run" else word for word in words]
    assert fedclade(*words).code == 0


@pytest.mark.parametrize(
    ("module", "few"),
    [
        ("scheduling", ["--draws", "2", "--devices", "5", "50"]),
        ("policies", ["--preset", "tiny.toml", "--seeds", "1", "--target", "0", "--only", "fair;fair-cover"]),
    ],
)
def test_a_measurement_prints_its_table_and_writes_it(module, few, tmp_path, monkeypatch, capsys):
    assert ["python", "-m", f"benchmarks.{module}"] in [words[:3] for words in COMMANDS]
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.chdir(tmp_path)
    tiny_file(tmp_path)
    measured = __import__(f"benchmarks.{module}", fromlist=["main"])
    monkeypatch.setattr(measured, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["measure", *few])
    measured.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + (2 if module == "policies" else 4 * 3 + 3 * 3)
    assert len(list((tmp_path / "results").iterdir())) == 1
