"""Commands that only print do not wait for what trains: told by what the installed command imports, not by a clock."""

import subprocess
import sys

import pytest

from tiny_runs import executable, tiny

HEAVY = {"torch", "pandas", "plotly", "sklearn", "matplotlib", "scipy", "flwr", "ortools", "tensorboard"}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory) -> str:
    return str(tiny().run(tmp_path_factory.mktemp("startup") / "run").folder)


def imported(*words: str) -> set[str]:
    """The packages that the installed command imports; it must do its work, and print something."""
    command = [sys.executable, "-X", "importtime", executable(), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip()
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "fedclade.cli" in modules
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("words", ["--help", "--version", "presets", "show quickstart", "run --help"])
def test_what_only_prints_imports_nothing_heavy(words):
    assert not imported(*words.split()) & (HEAVY | {"numpy"})


@pytest.mark.parametrize("options", [[], ["--details"], ["--json"]])
def test_show_run_imports_nothing_heavy(finished_run, options):
    assert not imported("show-run", finished_run, *options) & HEAVY


def test_a_plan_needs_neither_torch_nor_what_draws():
    assert not imported("plan", "quickstart") & (HEAVY - {"pandas", "scipy"})
