"""docs/explanation/architecture.md names only what exists, and leaves out no room, no example and no layer."""

import ast
import operator
import re
import shlex
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

import fedclade
from fedclade.config import Config
from tiny_runs import fedclade as run_command

ROOT = Path(__file__).parents[1]
PACKAGE = Path(fedclade.__file__).parent
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
PROSE = re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
NAMED = set(re.findall(r"`([^`\n]+)`", PROSE))
ONLY_IN_RUNS = {"messages.jsonl", "latencies.csv", "devices.json"}  # files of a run on real devices


def matching(pattern: str) -> set[str]:
    return {name for name in NAMED if re.fullmatch(pattern, name)}


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def exists(place: str) -> bool:
    module, name = place.split(":")
    try:
        operator.attrgetter(name)(import_module(f"fedclade.{module}"))
    except (ImportError, AttributeError):
        return False
    return True


def test_every_file_and_folder_it_names_is_there():
    named = matching(r"[\w/]+(/|\.[a-z]+)") - ONLY_IN_RUNS
    named = {name for name in named if "/" in name or name.endswith(".py")}
    assert {"server.py", "clustering/method.py", "config/methods.py", "report/listener.py"} <= named
    assert sorted(name for name in named if not ((PACKAGE / name).exists() or (ROOT / name).exists())) == []


def test_every_function_and_class_it_names_is_there():
    places = matching(r"[\w.]+:[\w.]+")
    assert len(places) >= 8
    assert sorted(place for place in places if not exists(place)) == []
    trees = (ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py"))
    classes = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    named = matching(r"[A-Z][a-z]+([A-Z][a-z]+)*")
    assert {"State", "Decisions", "Arrival", "HeldUpdates", "PlannedRound"} <= named
    assert sorted(named - classes) == []


def test_every_field_of_the_config_it_names_is_there():
    named = [name.split(".") for name in matching(r"[a-z_]+\.[a-z_]+")]
    fields = [(section, field) for section, field in named if section in Config.model_fields]
    assert ("clustering", "method") in fields
    assert [each for each in fields if each[1] not in type(getattr(Config(), each[0])).model_fields] == []


def test_every_room_is_in_the_table():
    told = set(re.findall(r"^\| `([\w.]+/?)` \|", section("Rooms"), re.MULTILINE))
    folders = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert told == folders | modules


def test_the_layers_are_those_of_the_import_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
    layers = [re.findall(r"fedclade\.(\w+)", layer) for layer in contract["layers"]]
    (told,) = re.findall(r"^```\n(.*?)^```", section("Rooms"), re.DOTALL | re.MULTILINE)
    assert [line.split(", ") for line in told.splitlines()] == layers
    assert len(layers) == 8
    assert "in eight layers" in PAGE


def test_every_example_is_in_the_table_of_what_can_be_added():
    examples = {path.name for path in (ROOT / "examples").glob("own_*.py")}
    assert len(examples) >= 6
    linked = set(re.findall(r"\]\(\.\./\.\./examples/(\w+\.py)\)", section("To add X, write this one file")))
    assert linked == examples


@pytest.mark.parametrize(
    "page", ["docs/explanation/architecture.md", "docs/explanation/clustering.md", "examples/README.md"]
)
def test_every_link_leads_somewhere(page):
    text = (ROOT / page).read_text("utf-8")
    targets = set(re.findall(r"\]\((?!https?:)([^)#]+)", text))
    assert targets
    assert sorted(target for target in targets if not ((ROOT / page).parent / target).exists()) == []


def test_the_picture_has_the_steps_of_the_server_in_their_order():
    texts = ElementTree.parse(ROOT / "docs" / "explanation" / "round.svg").iter("{http://www.w3.org/2000/svg}text")
    steps = [text.text.split(", ") for text in texts if text.get("class") == "step" and text.text != "fleet.ask"]
    shown = [name.split(".")[-1] for names in steps for name in names if " " not in name]
    source = (PACKAGE / "server.py").read_text("utf-8")
    step = source[source.index("def step") : source.index("def initial_state")]
    carried_out = source[source.index("def _carried_out") : source.index("def _clocked")]
    assert {"muster", "carry_out", "after_training"} <= set(shown)
    assert [name for name in shown if not re.search(rf"\b{name}\(", source)] == []
    in_step = [name for name in shown if re.search(rf"\.{name}\(", step)]
    assert in_step == sorted(in_step, key=lambda name: step.index(f".{name}("))
    assert [name for name in ("regrouped", "averaged", "rearranged") if name not in carried_out] == []


def example_command(path: Path) -> list[str]:
    """The command that examples/README.md shows for a file, as words."""
    rows = (ROOT / "examples" / "README.md").read_text("utf-8").splitlines()
    (row,) = [row for row in rows if row.startswith(f"| [{path.name}]({path.name}) |")]
    (command,) = re.findall(r"`fedclade ([^`]+)`", row)
    return shlex.split(command)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("own_*.py")), ids=lambda path: path.stem)
def test_the_table_of_examples_shows_a_command_of_the_file_itself(path):
    first_lines = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    own = re.findall(r"fedclade (run .+)", first_lines.replace("\\\n", " "))
    assert example_command(path) in [shlex.split(command) for command in own]


@pytest.mark.parametrize("name", ["own_method", "own_metric"])
def test_the_command_of_an_example_works_from_its_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "examples")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, name, raising=False)
    words = example_command(ROOT / "examples" / f"{name}.py")
    answer = run_command(*words, "--set", "run.rounds=1", "--set", "run.report=false", "--out", tmp_path / "run")
    assert (answer.code, answer.err) == (0, "")
