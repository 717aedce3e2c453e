"""The commands of the pages about scheduling do what they say; runs and measurements on the tiny population."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from fedclade import Experiment
from tiny_runs import fedclade, tiny_file

ROOT = Path(__file__).parent.parent
PAGES = ("explanation/scheduling.md", "how-to/own-allocation.md", "results/scheduling.md")
TEXT = "\n".join((ROOT / "docs" / page).read_text("utf-8") for page in PAGES)
LINES = [line.split("#")[0].split() for line in TEXT.splitlines()]
COMMANDS = [words for words in LINES if words[:1] in (["fedclade"], ["python"])]


@pytest.mark.parametrize("words", [words[1:] for words in COMMANDS if words[0] == "fedclade"], ids=" ".join)
def test_a_command_works(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "own_allocation.py", tmp_path)
    words = [tiny_file(tmp_path) if word == "quickstart" and words[0] == "run" else word for word in words]
    assert fedclade(*words).code == 0


def test_the_round_that_is_shown_gains_so_much_by_a_rule_of_ones_own(monkeypatch):
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.syspath_prepend(ROOT / "examples")
    own = "scheduling.allocation=own_allocation:even_ends"
    before, after = (Experiment("quickstart", more).plan().timeline.makespan for more in ([], [own]))
    assert f"{before:.2f} s become {after:.2f} s" in TEXT
    assert after / before == pytest.approx(0.75, abs=0.01)


def test_every_module_that_is_named_is_there():
    room = ROOT / "src" / "fedclade" / "scheduling"
    named = {name.removeprefix("scheduling/") for name in re.findall(r"`([\w/]+(?:\.py|/))`", TEXT)}
    assert named >= {"planner.py", "timeline.py", "lower_bound.py", "policies/", "allocation/"}
    assert [name for name in sorted(named - {""}) if not (room / name).exists()] == []


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
