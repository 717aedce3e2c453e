"""What a person reads: plans, progress, closing tables."""

import io
import json
import re
import shutil
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedclade import Run
from fedclade.report import terminal
from fedclade.report.page import run_data
from tiny_runs import merged_run, tiny


def text_of(*parts: object, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for part in parts:
        console.print(part)
    return console.file.getvalue()


def cells(text: str, first: str) -> list[str]:
    """The columns of the table's line that begins with a cell."""
    lines = ([cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines())
    (found,) = (line for line in lines if line and line[0] == first)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return tiny().run(tmp_path_factory.mktemp("terminal") / "run")


# -------------------------------------------------------------------------------- words and numbers


@given(st.lists(st.integers(0, 60), unique=True))
def test_spans_name_exactly_the_ids_in_as_few_pieces_as_can_be(ids):
    pieces = [piece.split("-") for piece in terminal.spans(ids).split(", ") if piece]
    assert [i for piece in pieces for i in range(int(piece[0]), int(piece[-1]) + 1)] == sorted(ids)
    assert all(int(before[-1]) + 1 < int(after[0]) for before, after in pairwise(pieces))


@pytest.mark.parametrize(("value", "text"), [(0.5, "50.0 %"), (1.0, "100.0 %"), (None, "–"), (float("nan"), "–")])
def test_a_share_is_a_percentage(value, text):
    assert terminal.percent(value) == text


@pytest.mark.parametrize(
    ("bps", "text"),
    [(12.34e6, "12.3 Mbit/s"), (1e6, "1 Mbit/s"), (150.0, "150 bit/s"), (5e3, "5 kbit/s"), (0, "0 bit/s")],
)
def test_a_rate_has_the_unit_that_fits(bps, text):
    assert terminal.rate(bps) == text


# -------------------------------------------------------------------------------- a plan


def test_a_plan_shows_who_reuses_whose_sub_channel():
    planned = tiny("edge.bandwidth_hz=2e6").plan()  # two sub-channels for six devices
    text = text_of(*terminal.show_plan(planned, 1, "fair"), *terminal.show_plan_details(planned))
    table = re.split(r"─ *\n", text.partition("Who uploads when")[2])[1]
    rows, timeline = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()[:6]], planned.timeline
    assert [int(row[0]) for row in rows] == timeline.device.tolist()
    assert [int(row[1]) for row in rows] == [1, 1, 2, 2, 3, 3]
    assert [int(row[2]) for row in rows] == timeline.subchannel.tolist()
    assert [row[3] for row in rows] == ["–", "–", *(f"of {device}" for device in timeline.predecessor[2:])]
    assert "3 aggregation sets; a model is 0.0208 Mbit." in text  # 650 parameters of 32 bit


@pytest.mark.parametrize("width", [80, 120])
def test_the_details_of_a_plan_are_not_cut(width):
    planned = tiny("edge.bandwidth_hz=2e6").plan(compare=True)
    lines = text_of(*terminal.show_plan_details(planned), width=width).splitlines()
    assert "…" not in "".join(lines)
    assert max(map(len, map(str.rstrip, lines))) <= width
    assert sum(line.startswith("   0 ") for line in lines) >= 3  # the chart of an order has a line for each sub-channel


def test_a_plan_shows_who_misses_the_round():
    planned = tiny("scheduling.deadline_seconds=1e-9").plan()
    text = text_of(*terminal.show_plan(planned, 1, "fair"), *terminal.show_plan_details(planned))
    assert text.count("misses") == 6
    assert "0 aggregation sets" in text
    assert "Miss the round: 0-5." in text


def test_a_plan_for_programs_is_plain_json():
    third = sorted(tiny().plan().timeline.end)[2]
    planned = tiny(f"scheduling.deadline_seconds={third}").plan()
    data = json.loads(json.dumps(terminal.plan_as_json(planned), allow_nan=False))
    assert [row["missed"] for row in data["uploads"]] == planned.timeline.missed.tolist()
    assert sum(row["missed"] for row in data["uploads"]) == 3
    assert all((row["end_seconds"] is None) == row["missed"] for row in data["uploads"])


# -------------------------------------------------------------------------------- a finished run


def test_the_closing_tables_show_every_cluster_with_its_devices_accuracy(run):
    text = text_of(*terminal.show_run(run))
    for name, devices in (("0.0", [0, 1, 2]), ("0.1", [3, 4, 5])):
        own = run.models.query(f"model == '{name}' and device in {devices}")["accuracy"]
        shown = [terminal.percent(value) for value in (own.min(), own.mean(), own.max())]
        assert cells(text, name) == [name, terminal.spans(devices), "2", "not yet", *shown]


def test_the_closing_tables_show_only_the_cluster_that_another_was_merged_into(tmp_path):
    merged = merged_run(tmp_path / "run")
    text = text_of(*terminal.show_run(merged))
    assert cells(text, "0.0")[:2] == ["0.0", "0-5"]
    assert "0.1" not in [line.split()[0] for line in text.splitlines() if line.strip()]
    own = merged.models.query("model == '0.0'")["accuracy"]
    assert cells(text, "all")[4] == terminal.percent(own.min())


def test_the_closing_tables_hold_the_one_model_against_the_clusters(run):
    text = text_of(*terminal.show_run(run))
    last = run.evaluations.query("round == 3").set_index("device")
    for name, devices in (("0", [0, 1, 2]), ("1", [3, 4, 5]), ("all", [0, 1, 2, 3, 4, 5])):
        one, own = (last.loc[devices, column] for column in ("conventional_accuracy", "accuracy"))
        shown = [terminal.percent(value) for value in (one.min(), one.mean(), own.min(), own.mean())]
        gain = f"{100 * (own.min() - one.min()):+.1f}"
        assert cells(text, name) == [name, terminal.spans(devices), *shown, gain]
    assert "One model for all (trained on by everybody)" in text


def test_the_closing_lines_sum_up_groups_fairness_and_cost(run):
    text = text_of(*terminal.show_run(run))
    assert "2 clusters, adjusted Rand index 1.00: exactly the planted groups; split in round 2 (" in text
    assert f"in 3 rounds, {run.summary['uploads']} uploads" in text
    gap = 100 * (run.summary["accuracy_max"] - run.summary["accuracy_min"])
    assert f"(gap {gap:.1f} points)" in text


def test_a_run_of_many_clusters_is_told_on_one_screen_unless_details_are_wanted(tmp_path):
    many = tiny("population.devices=40", "population.samples=1700", "clustering.method=oracle", "run.rounds=1",
                f"incongruence.groups={[1] * 20}", "clustering.min_cluster_size=1").run(tmp_path / "run")  # fmt: skip
    shown = [line for line in text_of(*terminal.show_run(many)).splitlines() if line.strip()]
    assert shown[0].startswith("Groups      20 clusters, adjusted Rand index 1.00")
    assert any(f"… and 8 more; fedclade show-run {many.folder} --details has all." in line for line in shown)
    whole = text_of(*terminal.show_run(many, details=True))
    assert all(f"  {leaf.name} " in whole for leaf in many.leaves())


@pytest.mark.parametrize("width", [80, 120])
def test_the_closing_tables_keep_their_lines_and_a_long_fact_goes_on_below_itself(width, run):
    lines = text_of(*terminal.show_run(run), width=width).splitlines()
    assert "  cluster   devices   since round   stopped    worst     mean     best" in map(str.rstrip, lines)
    assert any(
        " ".join(line.split()) == "group devices one: worst one: mean own: worst own: mean worst +" for line in lines
    )
    facts = lines[: lines.index("")]
    assert all(re.match(r"(Groups|Fairness|Cost|Loss)? {4,}\S", line) for line in facts)
    assert max(map(len, lines)) <= width


def test_several_splits_are_told_from_the_first_to_the_last(run, monkeypatch):
    later = {**run.summary, "last_split_round": 3, "last_split_seconds": 2.0, "first_split_seconds": 1.0}
    monkeypatch.setattr("fedclade.runs.Run.summary", later)
    assert "; splits in rounds 2 to 3 (1 s to 2 s)" in text_of(*terminal.show_run(run))


def test_of_real_devices_nothing_is_called_simulated_and_no_joules_are_told(run, tmp_path):
    folder = tmp_path / "real"
    shutil.copytree(run.folder, folder)
    (folder / "devices.json").write_text("[]")
    text, page = text_of(*terminal.show_run(Run(folder))), run_data(Run(folder))
    assert " measured in 3 rounds" in text
    assert "energy unknown" in text
    assert "of them waiting for the devices" in text
    assert "simulated" not in text
    assert page["lead"].startswith("6 real devices took part.")
    assert page["seconds"] == "measured seconds"
    assert "Energy" not in [tile["label"] for tile in page["tiles"]]
    assert "simulated" not in json.dumps([page["tiles"], page["numbers"]]).lower()
    assert "joules" not in json.dumps(page["numbers"]).lower()
    assert [meaning for _, _, meaning in page["numbers"] if meaning[0].islower()] == []


def test_a_run_with_one_group_and_no_split_claims_neither(tmp_path):
    plain = ("incongruence.kind=none", "incongruence.groups=[1]", "run.conventional=frozen", "run.rounds=1")
    text = text_of(*terminal.show_run(tiny(*plain).run(tmp_path / "run")))
    assert "Groups      1 cluster\n" in text
    assert "as it stood at the first split" in text
    assert "planted" not in text
