"""``fedclade plan`` through its entry point."""

import csv
import json
import re

import pytest

from tiny_runs import fedclade, files, refusal, tiny


def test_plan_prints_one_line_a_device_and_the_rounds_length(here):
    answer = fedclade("plan", "tiny.toml", "--details")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("Round 1, policy fair: 6 devices selected")
    devices = [line.split()[0] for line in lines if re.match(r"  \s+\d+ .* Mbit/s .* (s|ms)\s*$", line)]
    assert sorted(devices) == ["0", "1", "2", "3", "4", "5"]
    assert "The round lasts" in answer.out
    assert set(files(here)) == {"tiny.toml"}


def test_plan_answers_on_one_screen(here):
    answer = fedclade("plan", "quickstart")
    lines = answer.out.splitlines()
    assert len(lines) <= 20
    planned = json.loads(fedclade("plan", "quickstart", "--json").out)
    shortest = min(planned["compared"], key=lambda row: row["makespan_seconds"])
    thriftiest = min(planned["compared"], key=lambda row: row["energy_joules"])
    assert f"by order {shortest['order']} and allocation {shortest['allocation']}." in answer.out
    assert f"Least energy: {thriftiest['energy_joules']:.3g} J" in answer.out
    assert "The paper's constraints P1: all hold." in answer.out
    assert "│" not in answer.out
    budget = fedclade("plan", "tiny.toml", "--set", "run.time_budget_seconds=1e-9")
    assert "The paper's constraints P1: broken: P1.1." in budget.out


def test_plan_compares_every_order_and_allocation_and_draws_them(here):
    out = fedclade("plan", "tiny.toml", "--set", "edge.bandwidth_hz=2e6", "--details").out
    for order in ("latency", "compute", "longest-upload", "optimal"):
        rows = [line.split() for line in out.splitlines() if line.split()[:1] == [order]]
        assert [row[1] for row in rows] == ["fixed", "slack", "boost"]
        chart = out.split(f"order {order}: ")[1].splitlines()[1:3]  # one line a sub-channel
        assert [line.split()[0] for line in chart] == ["0", "1"]
        assert all(len(line.split()[1]) == 72 for line in chart)
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  P1.")] == [
        f"P1.{i}" for i in range(1, 6)
    ]


def test_plan_for_ten_thousand_devices_needs_no_data_for_them():
    answer = fedclade("plan", "quickstart", "--devices", 10_000, "--json")
    planned = json.loads(answer.out)
    assert sorted(row["device"] for row in planned["uploads"]) == list(range(10_000))
    assert {(row["order"], row["allocation"]) for row in planned["compared"]} == {
        (order, kind) for order in ("latency", "compute", "longest-upload") for kind in ("fixed", "slack", "boost")
    }
    ratio = {row["order"]: row["makespan_ratio"] for row in planned["compared"] if row["allocation"] == "fixed"}
    assert ratio["longest-upload"] < 1.05 < ratio["latency"]
    assert all(constraint["holds"] for constraint in planned["constraints"])


def test_a_plan_of_many_devices_shows_the_first_ones(here):
    assert "… and 40 more; --json has all." in fedclade("plan", "tiny.toml", "--devices", 100, "--details").out


def test_plan_as_json_is_the_planned_timeline(here):
    answer = fedclade("plan", "tiny.toml", "--round", 2, "--json")
    planned = json.loads(answer.out)
    timeline = tiny().plan(2).timeline
    assert [row["device"] for row in planned["uploads"]] == timeline.device.tolist()
    assert [row["end_seconds"] for row in planned["uploads"]] == timeline.end.tolist()
    assert planned["makespan_seconds"] == timeline.makespan == max(row["end_seconds"] for row in planned["uploads"])
    assert planned["model_bits"] == 32 * 650
    assert planned["warnings"] == []


def test_plan_as_json_has_nulls_for_those_who_miss_the_round(here):
    answer = fedclade("plan", "tiny.toml", "--set", "scheduling.deadline_seconds=1e-9", "--json")
    for row in json.loads(answer.out)["uploads"]:
        assert (row["missed"], row["start_seconds"], row["end_seconds"]) == (True, None, None)


def test_plan_tells_who_misses_the_round(here):
    answer = fedclade("plan", "tiny.toml", "--set", "scheduling.deadline_seconds=1e-9")
    assert "Miss the round: 0-5." in answer.out


def test_implausible_physics_is_warned_of_but_not_refused(here):
    literal = ("tiny.toml", "--set", "edge.noise=paper-text", "--set", "edge.cycles_per=sample")
    for answer in (fedclade("plan", *literal), fedclade("run", *literal, "--set", "run.rounds=1")):
        assert answer.code == 0
        assert "Warning: median SNR" in answer.out
        assert "Warning: median computing time" in answer.out
    assert len(json.loads(fedclade("plan", *literal, "--json").out)["warnings"]) == 2


# -------------------------------------------------------------------------------- for other tools


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_plan_as_csv_has_every_device_and_when_and_how_it_sends(here):
    few = ("--set", "scheduling.policy=random", "--set", "scheduling.per_round=4")
    answer = fedclade("plan", "tiny.toml", *few, "--csv", "plan.csv", "--json")
    rows = rows_of("plan.csv")
    assert [row["device"] for row in rows] == list("012345")
    experiment = tiny("scheduling.policy=random", "scheduling.per_round=4")
    plan = experiment.plan()
    selected = [row for row in rows if row["selected"] == "1"]
    assert sorted(int(row["device"]) for row in selected) == sorted(plan.timeline.device.tolist())
    for row in selected:
        i = plan.timeline.device.tolist().index(int(row["device"]))
        assert float(row["end_seconds"]) == plan.timeline.end[i]
        # the rate formula at the row's own power and bandwidth gives its duration
        lasts = float(row["end_seconds"]) - float(row["start_seconds"])
        uplink = plan.links.uplink.of(plan.timeline.device[i : i + 1])
        seconds = uplink.seconds(float(row["bandwidth_hz"]), float(row["power_w"]))
        assert seconds[0] == pytest.approx(lasts, rel=1e-6)
        assert float(row["upload_bits"]) == pytest.approx(lasts * float(row["rate_bps"]))
    for row in rows:
        if row["selected"] == "0":
            assert (row["start_seconds"], row["subchannel"], row["missed"]) == ("", "", "")
    same = json.loads(answer.out)["devices"]
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in same] == rows


@pytest.mark.parametrize("settings", ["", "scheduling.allocation=slack", "edge.availability=bernoulli"])
def test_a_plan_as_csv_is_a_trace_that_gives_the_same_plan(here, settings):
    chosen = settings.split()
    changes = [word for setting in chosen for word in ("--set", setting)]
    assert fedclade("plan", "tiny.toml", *changes, "--csv", "plan.csv", "--rounds", 3).code == 0
    drawn = [setting for setting in chosen if setting.startswith("edge.")]  # what the trace tells instead
    before = tiny(*chosen)
    after = tiny(*set(chosen).difference(drawn), "edge.trace=plan.csv", "edge.device_trace=plan.csv")
    for round_ in (1, 2, 3):
        one, other = before.plan(round_), after.plan(round_)
        arrived = one.timeline.device[~one.timeline.missed]
        assert other.timeline.arrived.tolist() == one.timeline.arrived.tolist()
        assert other.timeline.makespan == pytest.approx(one.timeline.makespan)
        assert sorted(other.timeline.device.tolist()) == sorted(arrived.tolist())
    assert after.plan(4).timeline.makespan == after.plan(1).timeline.makespan


def test_several_rounds_without_a_file_for_them_are_refused(here):
    assert refusal("plan", "tiny.toml", "--rounds", 3).startswith("fedclade: --rounds 3: is for --csv FILE")


def test_a_plan_of_nobody_and_one_of_those_who_miss_it_have_all_columns(here):
    fedclade("plan", "tiny.toml", "--set", "scheduling.deadline_seconds=1e-9", "--csv", "missed.csv")
    assert {(row["selected"], row["missed"], row["power_w"]) for row in rows_of("missed.csv")} == {("1", "1", "")}
    (here / "nobody.csv").write_text("device,available\n" + "".join(f"{device},0\n" for device in range(6)))
    fedclade("plan", "tiny.toml", "--set", "edge.device_trace=nobody.csv", "--csv", "none.csv")
    assert {(row["available"], row["selected"]) for row in rows_of("none.csv")} == {("0", "0")}
    assert list(rows_of("none.csv")[0]) == list(rows_of("missed.csv")[0])


def test_a_csv_that_cannot_be_written_is_one_line(here):
    line = refusal("plan", "tiny.toml", "--csv", "no/such/folder.csv")
    assert line == "fedclade: --csv no/such/folder.csv: cannot be written: No such file or directory"
