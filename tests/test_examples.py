"""The examples do what they say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from data_builders import stand_in_folder_with
from fedclade import Experiment, open_run
from tiny_runs import executable, fedclade, files, refusal, tiny, tiny_file

EXAMPLES = Path(__file__).parent.parent / "examples"
POLICY = "scheduling.policy=own_policy:longest_waiting"
METHOD = "clustering.method=own_method:SplitOnce"
ALLOCATION = "scheduling.allocation=own_allocation:even_ends"


def test_a_policy_of_ones_own_decides_who_is_heard(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    run = tiny(POLICY, "scheduling.per_round=2", "clustering.method=none").run(tmp_path / "run")
    assert run.summary["policy"] == "longest-waiting"
    # three rounds of two of six devices: everybody once
    assert run.uploads.groupby("round").size().tolist() == [2, 2, 2]
    assert sorted(run.uploads["device"]) == [0, 1, 2, 3, 4, 5]


def test_an_allocation_of_ones_own_shares_the_bandwidth_and_shortens_every_round(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    few = ("edge.subchannel_hz=4e6", "clustering.method=none")  # two sub-channels for six devices
    fixed, own = (tiny(*few, *more).run(tmp_path / f"run{len(more)}") for more in ([], [ALLOCATION]))
    assert (own.rounds["makespan_seconds"] < 0.999 * fixed.rounds["makespan_seconds"]).all()
    experiment = tiny(*few, ALLOCATION)
    for round_ in (1, 2, 3):
        plan = experiment.plan(round_)
        assert plan.timeline.end.tolist() == own.uploads.query(f"round == {round_}")["end_seconds"].tolist()
        # by brute force: no other pair of widths makes the round much shorter
        timeline, uplink = plan.timeline, experiment.edge.observe(round_).uplink.of(plan.timeline.device)

        def makespan(share, timeline=timeline, uplink=uplink):
            width = np.array([share, 1 - share])[timeline.subchannel] * 10e6
            free = [0.0, 0.0]
            for channel, ready, upload in zip(
                timeline.subchannel, timeline.ready, uplink.seconds(width, uplink.power_w), strict=True
            ):
                free[channel] = max(ready, free[channel]) + upload
            return max(free)

        best = min(makespan(share) for share in np.linspace(0.01, 0.99, 99))
        assert timeline.makespan <= 1.001 * best


def test_a_method_of_ones_own_decides_who_shares_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    run = tiny(METHOD, "custom.wait=2").run(tmp_path / "run")
    assert (run.summary["method"], run.summary["adjusted_rand_index"]) == ("split-once", 1.0)
    (split,) = (node["split"] for node in run.tree if node["split"])
    assert (split["round"], split["evidence"]) == (2, {"by": "direction"})


@pytest.mark.slow
@pytest.mark.parametrize(("file", "override"), [("own_policy.py", POLICY), ("own_allocation.py", ALLOCATION)])
def test_the_command_in_a_docstring_works_from_the_examples_folder(tmp_path, file, override):
    assert f"fedclade run quickstart --set {override}" in (EXAMPLES / file).read_text("utf-8")
    words = [executable(), "run", tiny_file(tmp_path), "--set", override, "--out", str(tmp_path / "run")]
    subprocess.run(words, cwd=EXAMPLES, check=True)
    run = open_run(tmp_path / "run")
    chosen = run.config.scheduling
    assert override in (f"scheduling.policy={chosen.policy}", f"scheduling.allocation={chosen.allocation}")
    assert run.summary["policy"] == ("longest-waiting" if override == POLICY else "fair")


# -------------------------------------------------------------------------------- own data, own model

DOCS = EXAMPLES.parent / "docs" / "how-to"
OWN_DATA = ("population.source=own_data:two_groups", "population.devices=12", "incongruence.kind=none")
FAST = ("--set", "run.rounds=1", "--set", "run.report=false")


@pytest.fixture
def in_examples(monkeypatch):
    """Stand in the folder of the examples; forget its modules afterwards."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for path in EXAMPLES.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)


def commands(path: Path) -> list[list[str]]:
    """Every `fedclade run …` that a file shows, as its words."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    return [shlex.split(words) for words in re.findall(r"fedclade (run [^`\n]*)", text)]


@pytest.mark.usefixtures("in_examples")
def test_the_planted_groups_of_ones_own_data_are_found(tmp_path):
    run = Experiment("quickstart", [*OWN_DATA, "model.name=logistic", "run.rounds=8"]).run(tmp_path / "run")
    assert run.summary["adjusted_rand_index"] == 1.0
    assert run.devices["planted_group"].tolist() == [0] * 8 + [1] * 4
    assert run.summary["accuracy_mean"] > 0.8


@pytest.mark.usefixtures("in_examples")
@pytest.mark.slow
def test_processes_that_train_get_floats_as_they_are(tmp_path):
    def models(workers: int) -> dict[str, bytes]:
        chosen = [*OWN_DATA, "model.name=mlp", "training.engine=workers", f"training.workers={workers}", "run.rounds=2"]
        return files(Experiment("quickstart", chosen).run(tmp_path / str(workers)).folder / "models")

    assert models(2) == models(1)


@pytest.mark.usefixtures("in_examples")
def test_a_model_of_ones_own_is_the_one_that_is_trained(tmp_path):
    run = tiny("model.name=own_model:small_residual_net", "run.rounds=1").run(tmp_path / "run")
    assert run.model("0")["1.convolve.weight"].shape == (8, 8, 3, 3)
    assert run.model("0")["4.weight"].shape == (10, 128)


@pytest.mark.usefixtures("in_examples")
@pytest.mark.parametrize(
    ("name", "page"),
    [("own_data", "own-data"), ("own_model", "own-model"), ("own_text", "own-text"), ("own_text_model", "own-text")],
)
def test_the_command_of_an_example_works_from_its_folder(tmp_path, name, page):
    (command,) = commands(EXAMPLES / f"{name}.py")
    assert command in commands(EXAMPLES / "README.md")
    assert command in commands(DOCS / f"{page}.md")
    answer = fedclade(*command, *FAST, "--out", tmp_path / "run")
    assert (answer.code, open_run(tmp_path / "run").summary["rounds"]) == (0, 1)


@pytest.mark.usefixtures("in_examples")
def test_the_machines_of_the_table_are_found_to_follow_two_rules(tmp_path):
    (command,) = [words for words in commands(EXAMPLES / "README.md") if "population.source=machines.csv" in words]
    assert command in commands(DOCS / "own-data.md")
    assert fedclade(*command, "--set", "run.rounds=5", "--set", "run.report=false", "--out", tmp_path / "run").code == 0
    run = open_run(tmp_path / "run")
    # ascending: fan-1 to fan-3, mill-1 to mill-3, press-1, pump-1 to pump-3; nobody says which are alike
    assert [leaf.devices for leaf in run.leaves()] == [(0, 1, 2, 7, 8, 9), (3, 4, 5, 6)]
    assert run.summary["adjusted_rand_index"] is None


def test_devices_in_python_print_the_groups_that_were_found(tmp_path):
    assert "`python devices_in_python.py`" in (EXAMPLES / "README.md").read_text("utf-8")
    script = EXAMPLES / "devices_in_python.py"
    answer = subprocess.run([sys.executable, script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert answer.stdout == "[(0, 1, 2, 3, 4, 5), (6, 7, 8, 9)]\n"


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


def test_the_devices_in_python_that_the_docs_show_are_found_to_be_of_two_groups(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in python_blocks("own-data.md") if "devices=devices" in block]
    exec(compile(block, "own-data.md", "exec"), {})
    assert capsys.readouterr().out == "[(0, 1, 2), (3, 4, 5)]\n"
    assert "# [(0, 1, 2), (3, 4, 5)]" in block


@pytest.mark.usefixtures("in_examples")
def test_the_groups_among_devices_with_texts_are_found(tmp_path):
    (command,) = commands(EXAMPLES / "own_text.py")
    assert fedclade(*command, "--set", "run.rounds=5", "--set", "run.report=false", "--out", tmp_path / "run").code == 0
    assert open_run(tmp_path / "run").summary["adjusted_rand_index"] == 1.0


@pytest.mark.usefixtures("in_examples")
def test_a_text_model_of_ones_own_learns_texts_and_its_groups_are_found(tmp_path):
    (command,) = commands(EXAMPLES / "own_text_model.py")
    fewer = ("--set", "run.rounds=3", "--set", "run.report=false")
    assert fedclade(*command, *fewer, "--out", tmp_path / "run").code == 0
    run = open_run(tmp_path / "run")
    assert set(run.model("0")) >= {"embed.weight", "read.weight_hh_l0", "score.bias"}
    assert run.summary["adjusted_rand_index"] == 1.0
    assert run.summary["accuracy_mean"] > 0.8  # by chance: a third


PRESETS = [
    ("synthetic", "made-up-data"),
    ("topics", "made-up-data"),
    ("mix", "made-up-data"),
    ("regression", "regression"),
]


@pytest.mark.parametrize(("preset", "page"), PRESETS)
def test_the_command_of_a_built_in_setting_runs(preset, page, tmp_path):
    (command,) = [words for words in commands(DOCS / f"{page}.md") if words[1] == preset]
    assert fedclade(*command, *FAST, "--out", tmp_path / "run").code == 0
    assert len(set(open_run(tmp_path / "run").devices["planted_group"])) > 1


def test_the_command_that_varies_contrast_by_group_runs(tmp_path):
    (command,) = commands(DOCS / "own-groups.md")
    answer = fedclade(*command, *FAST, "--out", tmp_path / "run")
    assert (answer.code, answer.err) == (0, "")
    assert open_run(tmp_path / "run").config.incongruence.kind == "contrast"


def test_the_function_that_the_docs_show_makes_devices_of_its_groups_see_other_numbers(tmp_path, monkeypatch):
    (function,) = python_blocks("own-groups.md")
    stand_in_folder_with(monkeypatch, tmp_path, "my_groups", function)
    devices = [(np.ones((20, 3)), np.arange(20) % 2) for _ in range(4)]
    planted = {"incongruence.kind": "my_groups:louder", "incongruence.groups": [2, 2], "custom.louder": 0.5}
    plain = {"population.standardise": False}
    population = Experiment("own-data", {**planted, **plain}, devices=devices).population
    seen = [population.images[population.train[k]].max() for k in range(4)]
    assert seen == [1.0, 1.0, 1.5, 1.5]


@pytest.mark.parametrize("source", ["images.npz", "site"])
def test_the_files_that_the_docs_make_are_read_by_the_command_below(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in python_blocks("own-data.md") if f'"{source}"' in block]
    exec(compile(block, "own-data.md", "exec"), {})
    (command,) = [words for words in commands(DOCS / "own-data.md") if f"population.source={source}" in words]
    answer = fedclade(*command, *FAST, "--out", "run")
    assert (answer.code, answer.err) == (0, "")


def test_the_function_that_the_docs_show_gives_devices_without_a_truth(tmp_path, monkeypatch):
    (function,) = [block for block in python_blocks("own-data.md") if "def readings" in block]
    stand_in_folder_with(monkeypatch, tmp_path, "my_sensors", function)
    (command,) = [words for words in commands(DOCS / "own-data.md") if any("my_sensors:" in word for word in words)]
    assert fedclade(*command, *FAST, "--out", "run").code == 0
    run = open_run(tmp_path / "run")
    assert run.summary["adjusted_rand_index"] is None
    assert (run.devices["train_samples"] + run.devices["test_samples"]).max() <= 100
    refused = refusal(*command, "--set", "population.devices=20", "--out", "other")
    assert refused == "fedclade: population.devices = 20: source my_sensors:readings gives 3 devices; set 3"
    assert refused in (DOCS / "own-data.md").read_text("utf-8")


def test_the_hugging_face_set_is_found_to_be_wired_in_two_ways(tmp_path):
    assert "`python hugging_face_in_python.py`" in (EXAMPLES / "README.md").read_text("utf-8")
    words = [sys.executable, str(EXAMPLES / "hugging_face_in_python.py")]
    told = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert sorted(line.split()[1:] for line in told.splitlines()) == [list("0123"), list("4567")]
