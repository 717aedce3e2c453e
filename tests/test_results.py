"""The registry of results: its tables are those of the runs kept beside the pages, and it knows which are stale."""

import re
import subprocess
import sys

import pytest
from benchmarks import results
from benchmarks.results import PAGES, RESULTS, Result, code_hash, config_hash, keep, stale, text_of

from fedclade import config as configuration
from tiny_runs import TINY

KEPT = [name for name in RESULTS if (PAGES / f"{name}.csv").is_file()]


@pytest.mark.parametrize("name", KEPT)
def test_a_pages_tables_are_made_of_the_runs_beside_it(name):
    shown = results._shown(PAGES / RESULTS[name].page, name)
    assert shown.strip().startswith(text_of(name).strip())
    assert re.search(r"^Made of config `\w+` by code `\w+`\.$", shown, re.MULTILINE)


def test_every_result_has_its_place_in_a_page_and_no_runs_are_nobodys():
    assert "methods-mnist5k" in KEPT
    for name, result in RESULTS.items():
        assert f"<!-- end of {name} -->" in (PAGES / result.page).read_text("utf-8")
    assert {path.name for path in PAGES.glob("*.csv")} == {f"{name}.csv" for name in KEPT}


def test_the_code_that_numbers_come_from_has_a_hash_and_the_rest_does_not_count(tmp_path):
    for room in ("fleet", "report"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "file.py").write_text("1\n")
    before = code_hash(tmp_path)
    (tmp_path / "report" / "file.py").write_text("2\n")
    assert code_hash(tmp_path) == before
    (tmp_path / "fleet" / "file.py").write_text("2\n")
    assert code_hash(tmp_path) != before


def test_a_config_has_the_hash_of_what_is_not_left_at_its_default():
    plain, seed, same = (configuration.load(None, words) for words in ([], ["run.seed=9"], ["run.seed=1"]))
    assert config_hash(plain) == config_hash(same) != config_hash(seed)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A registry of one tiny comparison, and a page for it."""
    preset = tmp_path / "small.toml"
    two = ["compare.policies=['full']", "compare.methods=['none', 'oracle']", "compare.seeds=1"]
    preset.write_text(configuration.to_toml(configuration.load(TINY, two)), "utf-8")
    (tmp_path / "page.md").write_text("before\n<!-- small -->\n<!-- end of small -->\nafter\n", "utf-8")
    monkeypatch.setitem(RESULTS, "small", Result("page.md", str(preset)))
    monkeypatch.setattr(results, "PAGES", tmp_path)
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    return tmp_path


@pytest.mark.slow
def test_a_result_is_run_shown_fresh_rebuilt_and_stale_once_its_config_or_the_code_changes(small, monkeypatch):
    assert stale("small", small) == "it was never run to its end"
    code = code_hash()
    result = RESULTS["small"]
    out = small / "out"
    subprocess.run([sys.executable, "-m", *result.command(out)], check=True, capture_output=True)
    keep("small", out, (config_hash(result.config), code), small)
    text = (small / "page.md").read_text("utf-8")
    assert "| oracle |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert stale("small", small) is None
    results.show("small", pages=small)
    assert (small / "page.md").read_text("utf-8") == text
    monkeypatch.setitem(RESULTS, "small", Result("page.md", result.preset, ("run.rounds=5",)))
    assert stale("small", small) == "config changed"
    monkeypatch.setattr(results, "code_hash", lambda: "0")
    assert stale("small", small) == "config and code changed"
    monkeypatch.setitem(RESULTS, "small", Result("page.md", result.preset, as_leaderboard=False))
    assert "**Accuracy over the devices**" in text_of("small", small)


def test_the_list_names_every_result_and_a_wrong_name_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["results", "--list"])
    results.main()
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told[: len(RESULTS)]] == list(RESULTS)
    monkeypatch.setattr(sys, "argv", ["results", "nonsense"])
    with pytest.raises(SystemExit, match="2"):
        results.main()
    assert "no such result: nonsense" in capsys.readouterr().err
