"""The benchmarks still run, and what they find can be read: in small sizes and without the other simulators."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.machine import Goal
from benchmarks.server import exponents

ROOT = Path(__file__).parents[1]


def benchmark(folder: Path, name: str) -> tuple[object, str]:
    """The results of one, and its table."""
    page = folder / "page.md"
    page.write_text((ROOT / "docs" / "results" / "benchmarks.md").read_text("utf-8"), "utf-8")
    words = [sys.executable, "-m", "benchmarks", name, "--quick", "--no-peers", "--out", folder, "--page", page]
    words += ["--skip", "2 threads"]  # beside other tests they wait for each other
    told = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "| goal | wanted | found |" in told
    whole = json.loads((folder / f"{name}.json").read_text())
    assert {"cpu", "cores", "torch", "load_average_at_start"} <= set(whole["machine"])
    text = (folder / f"{name}.md").read_text("utf-8")
    assert text in page.read_text("utf-8")
    return whole["results"], text


@pytest.mark.slow
def test_round_measures_every_engine_against_the_plain_loop(tmp_path):
    results, text = benchmark(tmp_path, "round")
    assert set(results) == {"cnn", "mlp", "cnn-large"}
    for rows in results.values():
        assert {row["name"] for row in rows} == {"fedclade", "plain torch loop"}
        assert [row["times_fedclade"] for row in rows if row["setting"].startswith("auto")] == [1.0]
    engines = {row["setting"].removeprefix("auto: ") for row in results["mlp"] if row["name"] == "fedclade"}
    assert engines >= {"sequential, 1 process", "workers, 2 processes", "batched, 2 processes"}
    assert "| plain torch loop | 1 thread |" in text


@pytest.mark.slow
def test_run_measures_a_whole_run_against_the_plain_loop_and_tells_where_the_time_went(tmp_path):
    results, text = benchmark(tmp_path, "run")
    assert [row["name"] for row in results["ranking"] if row["times_fedclade"] == 1.0] == ["fedclade"]
    assert {row["name"] for row in results["ranking"]} == {"fedclade", "plain torch loop"}
    assert {"training", "asking", "clustering", "evaluation", "disk"} == set(results["shares"])
    assert 0 < sum(results["shares"].values()) <= 1
    assert "| fedclade | a whole clustered run |" in text


@pytest.mark.parametrize(
    ("goal", "row"),
    [
        (Goal("speed", 4, 4.2, "×"), ("speed", "at least 4×", "4.2×", "met")),
        (Goal("speed", 4, 3.9, "×"), ("speed", "at least 4×", "3.9×", "**not met**")),
        (Goal("memory", 4, 5.0, " GiB", at_most=True), ("memory", "at most 4 GiB", "5 GiB", "**not met**")),
        (Goal("speed", 4, None, "×"), ("speed", "at least 4×", "not measured", "")),
    ],
)
def test_goals_are_told_met_or_not(goal, row):
    assert goal.row() == row


def test_the_exponent_is_that_of_the_power_law():
    cubic = [{"devices": devices, "step_processor_seconds": devices**3 / 7} for devices in (100, 1000, 4000)]
    assert exponents(cubic) == ["3.00 from 100 to 1,000", "3.00 from 1,000 to 4,000"]


@pytest.mark.slow
def test_server_is_exact_and_finds_the_planted_groups(tmp_path):
    results, text = benchmark(tmp_path, "server")
    for row in results:
        assert row["groups_found"]
        assert row["loops_found_groups"]
        assert row["largest_error"] < 1e-5
    assert "≈" in text
    assert "Exponent of a whole round's processor time" in text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_memory_gives_the_bytes_of_a_device(tmp_path):
    results, text = benchmark(tmp_path, "memory")
    assert results["bytes_per_device"] > 0
    assert "18,506 parameters" in text


@pytest.mark.parametrize(
    ("word", "complaint"), [("rounds", "no such benchmark: rounds"), ("--repeats=0", "at least 1")]
)
def test_a_wrong_word_is_refused(word, complaint):
    answer = subprocess.run([sys.executable, "-m", "benchmarks", word], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 2
    assert complaint in answer.stderr


@pytest.mark.slow
def test_the_grid_of_populations_goes_on_where_it_stopped_and_puts_its_tables_into_the_page(tmp_path):
    page, results = tmp_path / "page.md", tmp_path / "grid.jsonl"
    page.write_text((ROOT / "docs" / "explanation" / "clustering.md").read_text("utf-8"), "utf-8")
    cells = "digits mlp; disjoint classes, 3 groups; α = 1.0; equal; E = 5, η × 1; all"
    words = [sys.executable, "-m", "benchmarks.clustering", "--only", cells, "--results", results, "--page", page]
    first, second = (subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True) for _ in range(2))
    assert first.stdout.startswith("1 of 1: digits mlp; disjoint classes, 3 groups;")
    assert "1 of 1: " not in second.stdout
    assert "Groups found exactly (adjusted Rand index 1.0): 1 of 1" in page.read_text("utf-8")


@pytest.mark.slow
def test_populations_without_groups_are_tried_and_not_split():
    from benchmarks.false_splits import POPULATIONS, tried

    for population in POPULATIONS:
        cuts, splits = tried(population, seed=1)
        assert (cuts >= 5, splits) == (True, 0)


@pytest.mark.slow
def test_the_table_of_attacks_holds_honest_devices_against_the_same_run_without_an_attack():
    from benchmarks.attacks import HEAD, rows

    attacks = [("not-finite", False), ("sign-flip", True)]
    none, absent, attacked = rows("i.i.d.", "none", "trimmed-mean", attacks, ["run.rounds=8"])
    assert len(none) == len(attacked) == len(HEAD)
    assert (none[:4], none[5], none[8]) == (("i.i.d.", "none", "none", "trimmed-mean"), "+0.0", "+0.0")
    assert (absent[1], absent[6], absent[9]) == ("not-finite", "+0.0", "+0.0")
    assert attacked[:4] == ("i.i.d.", "sign-flip + lies", "none", "trimmed-mean")
    assert float(none[4].removesuffix(" %")) > 80
    assert abs(float(attacked[5])) < 6
    assert float(none[-1].removesuffix("%")) < 30  # the trigger means nothing to a model without a backdoor
