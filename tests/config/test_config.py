import pickle
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from data_builders import config, error_line
from fedclade import Experiment
from fedclade.config import Config, EdgeConfig, fields_of, load, presets, section_fields, to_toml
from fedclade.config.moved import MOVED
from fedclade.runs import differences

positive = st.floats(min_value=1e-40, max_value=1e24)


def ini(section: str, field: str, value: str) -> str:
    return f"[{section}]\n{field} = {value}\n"


# -------------------------------------------------------------------------------- loading and writing


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_says_what_it_is_and_survives_writing(name):
    assert len(presets()[name]) > 10
    preset = load(name)
    assert load(tomllib.loads(to_toml(preset))) == preset
    narrow = to_toml(preset, 80)
    assert load(tomllib.loads(narrow)) == preset
    assert all(len(line) <= 80 for line in narrow.splitlines() if line.startswith("  ") or "  # " in line)


@given(
    st.fixed_dictionaries(
        {
            "run": st.fixed_dictionaries(
                {"seed": st.integers(0, 2**70)}, optional={"time_budget_seconds": positive | st.integers(1, 10**9)}
            ),
            "population": st.fixed_dictionaries({}, optional={"root": st.text()}),
            "incongruence": st.fixed_dictionaries(
                {"groups": st.lists(st.integers(1, 99), min_size=1, max_size=20)},
                optional={"angles": st.lists(st.integers(-(10**9), 10**9).map(float))},
            ),
            "model": st.fixed_dictionaries({"name": st.text()}),
            "training": st.fixed_dictionaries({"learning_rate": positive}),
            "norm_thresholds": st.fixed_dictionaries({"gamma": st.sampled_from(["off", "estimated"]) | positive}),
        }
    )
)
def test_what_is_written_loads_back_equal(sections):
    written = to_toml(config(**sections))
    assert load(tomllib.loads(written)) == config(**sections)


@pytest.mark.parametrize("text", ["\x7f", "\n", "\0", '"', "\\", "#", "é", "\u2028", "\U0001f642"])
def test_any_text_survives_writing(text):
    assert load(tomllib.loads(to_toml(config(model={"name": text})))).model.name == text


def test_overrides_win_over_the_file_and_the_last_one_wins(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[run]\nseed = 3\nrounds = 4\n")
    assert (load(file).run.seed, load(str(file)).run.rounds) == (3, 4)
    overridden = load(file, ["run.seed=5", "run.seed = 6", "model.name=mlp", 'population.root="a b"'])
    assert (overridden.run.seed, overridden.run.rounds) == (6, 4)
    assert (overridden.model.name, overridden.population.root) == ("mlp", "a b")


def test_overrides_may_be_a_mapping_whose_values_are_taken_as_they_are():
    changed = load("quickstart", {"run.rounds": 3, "model.name": "mlp", "run.time_budget_seconds": None})
    assert changed == load("quickstart", ["run.rounds=3", "model.name=mlp"])
    assert load(None, {"incongruence.groups": (2, 3)}).incongruence.groups == (2, 3)
    assert load(None, {"model.name": "3"}).model.name == "3"  # a text stays one
    assert Experiment("quickstart", {"run.rounds": 3}).config == load("quickstart", ["run.rounds=3"])


def test_a_file_without_the_toml_suffix_loads_too(tmp_path):
    (tmp_path / "plain").write_text("[run]\nseed = 3\n")
    assert load(tmp_path / "plain").run.seed == 3


def test_loading_leaves_the_callers_mapping_alone():
    mine = {"run": {"seed": 3}}
    load(mine, ["run.seed=4"])
    assert mine == {"run": {"seed": 3}}


def test_a_config_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        load().run.seed = 2
    with pytest.raises(ValidationError, match="frozen"):
        load().run = load().run


@pytest.mark.parametrize(("bandwidth", "width", "subchannels"), [(10e6, 1e6, 10), (0.3, 0.1, 3), (25e5, 1e6, 2)])
def test_subchannels_are_bandwidth_over_width(bandwidth, width, subchannels):
    assert EdgeConfig(bandwidth_hz=bandwidth, subchannel_hz=width).subchannels == subchannels


# -------------------------------------------------------------------------------- settings of users' own

names = st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True)
scalars = st.text() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(names, scalars | st.lists(scalars), max_size=5))
def test_custom_settings_survive_writing_and_the_way_to_a_worker(settings):
    mine = config(custom=settings)
    again = load(tomllib.loads(to_toml(mine)))
    assert again == mine
    assert hash(again) == hash(mine)
    assert Config.model_validate_json(mine.model_dump_json()) == mine
    assert pickle.loads(pickle.dumps(mine)) == mine
    told = {name: list(value) if isinstance(value, tuple) else value for name, value in mine.custom.items()}
    assert told == settings
    assert all(type(told[name]) is type(settings[name]) for name in settings)  # True is not 1, 1.0 is not 1


def test_custom_settings_are_overridden_like_every_other_field():
    mine = load({"custom": {"step": 1}}, ["custom.step=3", "custom.mode=fast", "custom.weights=[0.5, 1]"])
    assert mine.custom == {"step": 3, "mode": "fast", "weights": (0.5, 1)}
    assert load(mine.model_dump(), {"custom.step": 4}).custom["step"] == 4
    assert load().custom == {}


def test_custom_settings_are_fields_like_every_other():
    mine, theirs = config(custom={"step": 1, "mode": "fast"}), config(custom={"step": 2})
    assert ("custom.step", 1, "a setting of your own") in fields_of(mine)
    assert differences(mine, theirs) == {"custom.step": (1, 2), "custom.mode": ("fast", None)}
    assert differences(theirs, mine) == {"custom.step": (2, 1), "custom.mode": (None, "fast")}


def test_a_custom_setting_cannot_be_changed_in_place():
    with pytest.raises(TypeError):
        config(custom={"step": 1}).custom["step"] = 2


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        (3, "custom = 3: must be a section"),
        ({"a": {"b": 1}}, "custom.a: must be a text, a number, true, false, or a list of these"),
        ({"a": [[1]]}, "custom.a = [[1]]: must be a text, a number, true, false, or a list of these"),
        ({"a": None}, "custom.a = null: must be a text, a number, true, false, or a list of these"),
        ({"a": float("inf")}, "custom.a = Infinity: must be a finite number"),
        ({"a b": 1}, "custom.a b = 1: a name is made of letters, digits, _ and -"),
    ],
)
def test_a_custom_setting_that_cannot_be_kept_is_one_line(settings, right):
    assert error_line(load, {"custom": settings}) == f"config: {right}"


# -------------------------------------------------------------------------------- what users get wrong

mistakes = [
    ("norm_thresholds", "epsilon2", "0.0", "0.0", "must be greater than 0.0"),
    ("norm_thresholds", "epsilon2", "-1", "-1", "must be greater than 0.0"),
    ("run", "report", "1", "1", "must be true or false"),
    ("norm_thresholds", "gamma", '"maybe"', '"maybe"', "must be one of 'off' or 'estimated' or must be a number"),
    ("norm_thresholds", "gamma", "-1", "-1", "must be one of 'off' or 'estimated' or must be at least 0.0"),
    ("run", "seed", '"one"', '"one"', "must be a whole number"),
    ("run", "seed", "1.5", "1.5", "must be a whole number"),
    ("run", "seed", "true", "true", "must be a whole number"),
    ("run", "seed", "-1", "-1", "must be at least 0"),
    ("run", "sed", "3", "3", "no such field; did you mean 'seed'?"),
    ("run", "time_budget_seconds", "0", "0", "must be greater than 0.0"),
    ("training", "learning_rate", '"fast"', '"fast"', "must be a number"),
    ("training", "momentum", "1.0", "1.0", "must be less than 1.0"),
    ("training", "learning_rate_decay", "1.1", "1.1", "must be at most 1.0"),
    ("model", "name", "7", "7", "must be a text in quotes"),
    ("population", "source", "7", "7", "must be a text in quotes"),
    ("population", "max_samples", "5", "5", "must be at least min_samples = 10"),
    ("population", "validation_share", "0.8", "0.8", "with test_share = 0.2 nothing is left to train on"),
    ("population", "validation_share", "1.0", "1.0", "must be less than 1.0"),
    ("norm_thresholds", "norm", '"none"', '"none"', "must be one of 'update' or 'per-step'"),
    ("cross_evaluation", "level", "0.5", "0.5", "must be less than 0.5"),
    ("clustering", "sketch", "8", "8", "must be at least 16"),
    ("edge", "late_share", "1.0", "1.0", "must be less than 1.0"),
    ("attack", "share", "1.1", "1.1", "must be at most 1.0"),
    ("incongruence", "groups", "5", "5", "must be a list"),
    ("incongruence", "groups", "[]", "[]", "needs at least 1 entry"),
    ("incongruence", "groups", "[2, 0]", "[2, 0]", "every group needs a size of at least 1"),
    ("incongruence", "groups", "[7.5]", "7.5", "must be a whole number"),
    ("incongruence", "groups", str([1] * 21), str([1] * 21), "more groups than devices (20)"),
    ("edge", "noise_figure_db", "inf", "Infinity", "must be a finite number"),
    ("edge", "subchannel_hz", "2e7", "20000000.0", "must be at most bandwidth_hz = 10000000.0"),  # N < 1
    ("edge", "distance_max_m", "1.0", "1.0", "must be at least distance_min_m = 20.0"),
    ("edge", "power_max_dbm", "-11.0", "-11.0", "must be at least power_min_dbm = -10.0"),
    ("edge", "cpu_max_hz", "1.0", "1.0", "must be at least cpu_min_hz = 1000000000.0"),
]


@pytest.mark.parametrize(("section", "field", "written", "shown", "right"), mistakes)
def test_a_wrong_value_is_one_line_with_place_field_value_and_what_would_be_right(
    tmp_path, section, field, written, shown, right
):
    file = tmp_path / "mine.toml"
    file.write_text(ini(section, field, written))
    says = f"{section}.{field} = {shown}: {right}"
    assert error_line(load, file) == f"{file}: {says}"
    assert error_line(load, "quickstart", [f"{section}.{field}={written}"]) == f"--set {says}"


def test_a_field_like_no_other_lists_those_there_are():
    line = error_line(load, {"run": {"zzz": 3}})
    assert line.startswith("config: run.zzz = 3: no such field; known: checkpoint_every, ")
    assert line.endswith(", seed, time_budget_seconds")


def test_a_mistake_of_a_file_is_blamed_on_the_file_though_something_else_is_overridden(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(ini("run", "rounds", "0"))
    assert error_line(load, file, ["run.seed=3"]) == f"{file}: run.rounds = 0: must be at least 1"
    assert load(file, ["run.rounds=1"]).run.rounds == 1


def test_a_preset_that_an_override_makes_impossible_is_named():
    line = error_line(load, "quickstart", ["population.devices=2"])
    assert line == "preset quickstart: incongruence.groups = [7, 7, 6]: more groups than devices (2)"


def test_the_first_of_several_mistakes_is_told_and_the_others_are_counted():
    line = error_line(load, {"training": {"epochs": 0, "momentum": 2.0}, "run": {"seed": -1}})
    assert line == "config: run.seed = -1: must be at least 0 (and 2 more)"


def test_an_unknown_section_suggests_the_near_one(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(ini("clusterin", "epsilon1", "0.1"))
    right = "clusterin: no such section; did you mean 'clustering'?"
    assert error_line(load, file) == f"{file}: {right}"
    assert error_line(load, None, ["clusterin.epsilon1=0.1"]) == f"--set {right}"


def test_a_field_that_moved_says_what_to_write_instead(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(ini("compare", "trials", "3"))
    right = "compare.trials = 3: no such field any more; write compare.seeds"
    assert error_line(load, file) == f"{file}: {right}"
    assert error_line(load, "quickstart", ["compare.trials=3"]) == f"--set {right}"
    assert error_line(load, None, {"compare.trials": 3}) == f"overrides: {right}"


def test_a_section_that_moved_says_what_to_write_instead(monkeypatch):
    monkeypatch.setitem(MOVED, "radio", "[edge]")
    assert error_line(load, {"radio": {"seed": 3}}) == "config: radio: no such section any more; write [edge]"


@pytest.mark.parametrize("old", MOVED)
def test_what_moved_is_really_gone(old):
    section, _, field = old.partition(".")
    assert section not in Config.model_fields or (field and field not in section_fields(section))


def test_a_section_must_be_a_section():
    assert error_line(load, {"run": 3}) == "config: run = 3: must be a section"
    assert error_line(load, {"run": 3}, ["run.seed=1"]) == "config: run = 3: must be a section"


def test_rotation_needs_one_angle_for_each_group():
    line = error_line(load, {"incongruence": {"kind": "rotate", "groups": [1, 1], "angles": [90.0]}})
    assert line == "config: incongruence.angles = [90.0]: needs one angle for each of the 2 groups"


def test_writers_cannot_be_given_disjoint_classes():
    line = error_line(load, {"population": {"partition": "writer"}, "incongruence": {"kind": "disjoint-classes"}})
    assert line.startswith('config: incongruence.kind = "disjoint-classes": ')
    assert "population.partition" in line


@pytest.mark.parametrize("override", ["", "run.seed", "seed=3", "run.seed.deep=3", "=3", ".seed=3", "run.=3"])
def test_an_override_that_is_none_says_how_to_write_one(override):
    assert error_line(load, None, [override]) == (f"--set {override!r}: must be section.field=value, e.g. run.seed=7")


def test_a_mapping_of_overrides_is_blamed_as_such():
    assert error_line(load, None, {"run.seed": -1}) == "overrides: run.seed = -1: must be at least 0"
    assert error_line(load, None, {"seed": 3}) == "overrides: 'seed': must be 'section.field', e.g. 'run.seed'"


def test_an_unknown_preset_suggests_the_near_one():
    line = error_line(load, "quickstrat")
    assert line == "'quickstrat' is neither a preset nor a .toml file; did you mean 'quickstart'?"


@pytest.mark.parametrize(
    ("content", "right"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"[run\nseed = 3", "not valid TOML: "),
        (b"[run]\nseed = " + b"9" * 5000, "not valid TOML: "),
        ("# é\n".encode("latin-1"), "cannot be read: not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path, content, right):
    file = tmp_path / "mine.toml"
    if content is not None:
        file.write_bytes(content)
    assert error_line(load, file).startswith(f"{file}: {right}")


def test_a_number_of_too_many_digits_is_no_number():
    assert error_line(load, None, [f"run.seed={'9' * 5000}"]).endswith(": must be a whole number")
