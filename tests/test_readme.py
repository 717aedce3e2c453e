"""What the README and the pages of docs tell the reader to type works as it stands there, apart from fewer rounds."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
import typer

from fedclade import config as configuration
from fedclade.cli import app
from tiny_runs import fedclade

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/explanation/paper.md",
    "docs/explanation/clustering.md",
    "docs/explanation/methods.md",
    "docs/how-to/compare-methods.md",
    "docs/how-to/progress.md",
)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """The fedclade commands of a page, in order, as words."""
    lines = (line.removeprefix(".venv/bin/") for block in blocks(page, "sh") for line in block.splitlines())
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("fedclade ")]


TEXTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts and path.name != "CHANGELOG.md"
)


def told_anywhere(text: str) -> list[list[str]]:
    """Every fedclade command of a text, in a block of code or between backticks, as words; none with an ellipsis."""
    fenced = r"^```\w*\n(.*?)^```"
    lines = [line for block in re.findall(fenced, text, re.DOTALL | re.MULTILINE) for line in block.splitlines()]
    inline = re.findall(r"`(fedclade [^`]+)`", re.sub(fenced, "", text, flags=re.DOTALL | re.MULTILINE))
    told = [line.removeprefix(".venv/bin/").removesuffix("\\") for line in (*lines, *inline)]
    return [
        shlex.split(line, comments=True)[1:] for line in told if re.match(r"fedclade [a-z]", line) and "…" not in line
    ]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_is_named_anywhere_has_these_options_and_settings(page):
    commands = typer.main.get_command(app).commands
    for name, *words in told_anywhere(page.read_text("utf-8")):
        assert name in commands, (name, words)
        if words:
            given = commands[name].make_context(name, list(words)).params
            if given.get("source") in configuration.presets():
                configuration.load(given["source"], given.get("overrides") or [])


def test_the_pages_have_commands_to_try():
    assert len(commands("README.md")) >= 6
    assert len(commands("docs/explanation/paper.md")) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_works(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        if not needs_data(words):
            fewer = ("--set", "run.rounds=2") if words[0] in ("run", "compare") else ()
            works(*words, *fewer)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*PAGES, "docs/results/paper-experiments.md"])
def test_every_command_of_a_page_that_needs_real_data_works(page, real_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in filter(needs_data, commands(page)):
        few = ("--policies", "fair", "--set", "compare.variants=[]", "--devices", "20", "--seeds", "1")
        works(*words, "--set", "run.rounds=1", *(few if words[0] == "compare" else ()))


def needs_data(words: list[str]) -> bool:
    return any(name in word for word in words for name in ("femnist", "cifar10", "paper-literal"))


def works(*words: str) -> None:
    answer = fedclade(*words)
    assert (answer.code, answer.err) == (0, ""), words
    assert answer.out


@pytest.mark.slow
def test_the_python_example_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("README.md", "python")
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert len(names["finished"].rounds) == 10


@pytest.mark.slow
def test_what_the_how_to_pages_show_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    works("run", "quickstart", "--set", "run.rounds=2")
    for words in commands("docs/how-to/export.md"):
        works(*words)
    for page in ("export", "loggers", "own-model"):
        for example in blocks(f"docs/how-to/{page}.md", "python"):
            names: dict[str, object] = {}
            exec(compile(example, page, "exec"), names)
            if net := names.get("my_net"):
                assert net((1, 8, 8), 10)(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert (tmp_path / "runs/logged/tensorboard").is_dir()


def test_every_make_target_the_pages_name_is_there():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = {
        target
        for page in (*PAGES, "CONTRIBUTING.md", "docs/results/benchmarks.md")
        for block in blocks(page, "sh")
        for target in re.findall(r"^make ([a-z-]+)", block, re.MULTILINE)
    }
    assert {"run", "test", "lint"} <= named
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in named)


@pytest.mark.parametrize(("target", "extras"), [("run", ""), ("test", "[dev]"), ("lint", "[dev]"), ("bench", "[dev]")])
def test_a_target_installs_what_it_needs_and_no_more(target, extras):
    commands = subprocess.run(["make", "--dry-run", "--always-make", target], cwd=ROOT, capture_output=True, text=True)
    installed = re.findall(r"pip install .* -e '?(\.[^']*?)'?$", commands.stdout, re.MULTILINE)
    assert installed == [f".{extras}"]


def test_every_file_the_readme_points_to_is_there():
    targets = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []
