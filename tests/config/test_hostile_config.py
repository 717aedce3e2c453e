"""Whatever a config holds: it is read, or refused in one line that names the field; never a traceback."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_builders import stand_in_folder_with
from fedclade import Experiment, UserError
from fedclade.config import fields_of, load, to_toml
from tiny_runs import TINY, refusal, tiny

FIELDS = [name for name, _, _ in fields_of(load())]
numbers = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from([0, -1, 2**62, 2**63, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf")]),
)
scalars = st.one_of(numbers, st.booleans(), st.text(max_size=20), st.sampled_from(["²", "os:path", "x" * 5000, "\n"]))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


def read_or_refused(*words: object) -> None:
    try:
        config = load(*words)
    except UserError as error:
        lines = str(error).splitlines()
    else:
        lines = [""]
        assert load(tomllib.loads(to_toml(config))) == config
    assert len(lines) == 1


@settings(max_examples=300)
@given(field=st.sampled_from(FIELDS), value=values)
def test_any_value_of_any_field_is_read_or_refused_in_one_line(field, value):
    read_or_refused(TINY, {field: value})


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text() | st.text(alphabet='[]{}="\\#,.\n0123456789eEnaif-_ \t', max_size=80))
def test_any_text_is_read_or_refused_in_one_line(text, tmp_path):
    (tmp_path / "mine.toml").write_text(text, "utf-8", errors="replace")
    read_or_refused(tmp_path / "mine.toml")
    read_or_refused(TINY, [f"custom.mine={text}"])


@pytest.mark.parametrize(
    ("override", "right"),
    [
        ("edge.path_gain_db=1e6", "must be from -400 to 400"),
        ("edge.power_max_dbm=1e7", "must be from -400 to 400"),
        ("edge.noise_figure_db=1e6", "must be from -400 to 400"),
        ("edge.reachable_snr_db=-1e6", "must be from -400 to 400"),
        ("edge.subchannel_hz=1e-308", "must be at least 1e-40"),
        ("edge.subchannel_hz=0.1", "must be at least bandwidth_hz / 1000000 = 10"),
        ("edge.distance_max_m=1e308", "must be at most 1e+24"),
        ("population.devices=1000000000000", "must be at most 10000000"),
        ("training.epochs=1000000000000", "must be at most 1000000"),
        ("training.batch_size=1000000000", "must be at most 1000000"),
        ("clustering.sketch=1000000000000", "must be at most 1000000"),
        ("scheduling.window=10000000000000", "must be at most 1e+12"),
        ("incongruence.groups=[1, 10000000000000]", "must be at most 1e+12"),
        ("incongruence.angles=[-1e300, 0]", "must be at least -1e+24"),
    ],
)
def test_decibels_of_a_million_tiny_subchannels_and_huge_numbers_are_refused(override, right):
    line = refusal("plan", "--set", override)
    assert line.startswith(f"fedclade: --set {override.split('=')[0]} = ")
    assert right in line


@pytest.mark.parametrize("text", ["[" * 50_000, "a = " + "[" * 50_000, "a = " + "{a=" * 50_000, "a." * 5000 + "b = 1"])
def test_deep_nesting_is_refused_in_one_line(text, tmp_path):
    (tmp_path / "mine.toml").write_text(text)
    assert refusal("plan", tmp_path / "mine.toml").startswith(f"fedclade: {tmp_path / 'mine.toml'}: ")
    assert "nested too deeply" in refusal("plan", "--set", "run.seed=" + "[" * 50_000)


def test_a_number_of_thousands_of_digits_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"run.rounds = …: must be at most"):
        load(None, {"run.rounds": 10**5000})


WRONG = "def none():\n    pass\n\ndef many(a, b, c, d, e, f):\n    pass\n\nnumber = 3\n"


@pytest.mark.parametrize(
    "field",
    [
        "scheduling.policy",
        "scheduling.allocation",
        "clustering.method",
        "aggregation.rule",
        "model.name",
        "population.source",
        "incongruence.kind",
        "run.metrics",
    ],
)
@pytest.mark.parametrize("thing", ["none", "many", "number"])
def test_a_plugin_of_the_wrong_signature_is_one_line(field, thing, tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "of_wrong_signature", WRONG)
    spec = f"of_wrong_signature:{thing}"

    def first_round() -> None:
        experiment = Experiment(TINY, {field: [spec] if field == "run.metrics" else spec})
        _ = experiment.server, experiment.metrics
        experiment.server.step(experiment.server.initial_state())

    with pytest.raises(UserError, match="must be a"):
        first_round()


def test_a_plugin_that_fails_when_it_is_imported_is_one_line(tmp_path, monkeypatch):
    stand_in_folder_with(monkeypatch, tmp_path, "cannot_be_imported", "1 / 0\n")
    with pytest.raises(UserError, match="cannot import 'cannot_be_imported': ZeroDivisionError: division by zero"):
        tiny('scheduling.policy="cannot_be_imported:x"').server  # noqa: B018
