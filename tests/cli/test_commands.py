"""The commands through their entry point: what they print, where, and how they end."""

import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from fedclade import __version__
from fedclade import config as configuration
from tiny_runs import Answer, executable, fedclade, files, refusal, tiny


def installed(*words: str) -> Answer:
    """The same as a process of its own."""
    done = subprocess.run([executable(), *words], capture_output=True, text=True, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


def test_the_installed_command_tells_its_version():
    assert installed("--version") == Answer(0, f"fedclade {__version__}\n", "")
    assert metadata.version("fedclade") == __version__


def test_the_installed_command_prints_a_config_that_loads_back_to_an_equal_one():
    answer = installed("show", "quickstart", "--set", "run.seed=7")
    assert (answer.code, answer.err) == (0, "")
    assert configuration.load(tomllib.loads(answer.out)) == configuration.load("quickstart", ["run.seed=7"])


def test_the_installed_command_ends_a_mistake_with_one_line_and_code_2():
    line = "fedclade: --set run.seed = -1: must be at least 0\n"
    assert installed("show", "--set", "run.seed=-1") == Answer(2, "", line)


def test_presets_lists_every_preset_with_its_purpose():
    answer = fedclade("presets")
    for name, purpose in configuration.presets().items():
        (line,) = (line for line in answer.out.splitlines() if line.split()[0] == name)
        assert purpose[:60] in line


@pytest.mark.parametrize("preset", configuration.presets())
def test_show_prints_every_preset_whole(preset):
    data = tomllib.loads(fedclade("show", preset).out)
    assert configuration.load(data) == configuration.load(preset)
    assert set(data) == set(configuration.Config.model_fields)


def test_show_of_a_shown_file_is_the_same_text(here):
    text = fedclade("show", "tiny.toml").out
    assert text == Path("tiny.toml").read_text("utf-8")


def test_without_a_command_the_help_lists_them():
    for answer in (fedclade("--help"), fedclade()):
        assert all(name in answer.out for name in ("presets", "show", "plan", "run", "show-run"))


# -------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("show nosuch", "'nosuch' is neither a preset nor a .toml file"),
        ("show quikstart", "did you mean 'quickstart'?"),
        ("show missing.toml", "missing.toml: cannot be read: No such file or directory"),
        ("show broken.toml", "broken.toml: not valid TOML"),
        ("show tiny.toml --set run.sed=1", "--set run.sed = 1: no such field; did you mean 'seed'?"),
        ("show tiny.toml --set seed=1", "must be section.field=value"),
        ("plan tiny.toml --set population.devices=0", "--set population.devices = 0: must be at least 1"),
        ("plan tiny.toml --set scheduling.policy=fairr", 'scheduling.policy = "fairr": no such policy; did you mean'),
        ("plan tiny.toml --set scheduling.policy=nowhere:f", "cannot import 'nowhere'"),
        ("plan tiny.toml --set scheduling.policy=json:f", "module 'json' has no 'f'"),
        ("plan tiny.toml --set model.name=mlq", 'model.name = "mlq": no such model; did you mean'),
        ("plan tiny.toml --set model.name=cnn", "needs images of at least 16×16, not 8×8"),
        ("run tiny.toml --set population.samples=3", "3 images serve at most 0 devices"),
        ("run tiny.toml --set population.source=femnist --set population.root=none", "found no femnist"),
        ("show-run nothing", "nothing: no run here (config.toml is missing)"),
        ("plan tiny.toml --set edge.trace=/dev/zero", 'edge.trace = "/dev/zero": must be a file'),
        ("convert-fedscale /dev/zero --out mine.csv", "/dev/zero: must be a file"),
        ("convert-fedscale tiny.toml --out tiny.toml/x", "must be JSON"),
        (f"plan tiny.toml --set edge.trace={'x' * 300}", 'xxx": cannot be read: File name too long'),
        (f"show {'x' * 300}", "File name too long"),
        (f"run --resume {'x' * 300}", "File name too long"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_wrong_and_leaves_nothing_behind(words, complaint, here):
    Path("broken.toml").write_text("[run\n")
    before = files(here)
    line = refusal(*words.split())
    assert line.startswith("fedclade: ")
    assert complaint in line
    assert files(here) == before


def test_show_run_of_an_unfinished_run_says_how_to_go_on(here):
    with pytest.raises(KeyboardInterrupt):
        tiny().run("mine", on_round=_break_off)
    assert "mine: not finished; continue it with: fedclade run --resume mine" in refusal("show-run", "mine")


def _break_off(_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("run tiny.toml --rounds 5", "Did you mean --set run.rounds=5?"),
        ("run --rounds=5", "Did you mean --set run.rounds=5?"),
        ("plan --learning-rate 0.1", "Did you mean --set training.learning_rate=0.1?"),
        ("run --policy", "Did you mean --set scheduling.policy=…?"),
        ("compare --devces 5", "(see: fedclade --help)"),
    ],
)
def test_a_field_that_was_taken_for_an_option_is_told_how_to_set(words, hint, here):
    line = refusal(*words.split())
    assert "No such option" in line
    assert line.count("Did you mean") == hint.count("Did you mean") or "devces" in words
    assert line.endswith(hint)


OWN = """
def spoilt(situation):
    return [situation.round, situation.nothing]
def nobody(situation):
    return []
"""


def test_a_policy_that_fails_or_selects_nobody_is_named_in_one_line(here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    (here / "mine_too.py").write_text(OWN)
    for name, told in (
        ("spoilt", "round 1: fails: AttributeError: 'Situation' object has no attribute 'nothing'"),
        ("nobody", "selects nobody in round 1, though 6 devices of open clusters could take part"),
    ):
        words = ("run", "tiny.toml", "--out", name, "-q", "--set", f"scheduling.policy=mine_too:{name}")
        assert refusal(*words) == f"fedclade: policy 'mine_too:{name}': {told}"
    whole = fedclade("--traceback", "plan", "tiny.toml", "--set", "scheduling.policy=mine_too:spoilt").err
    assert 'mine_too.py", line 3, in spoilt' in whole
