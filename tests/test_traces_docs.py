"""What docs/how-to/traces.md and the example of traces tell the reader to do works as it stands, on fewer rounds."""

import json
import pickle
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from data_builders import stand_in_folder_with
from fedclade import Experiment, open_run
from fedclade.core.errors import Interrupted
from tiny_runs import fedclade, refusal, tiny, tiny_file

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "how-to" / "traces.md").read_text("utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
COMMANDS = [shlex.split(line, comments=True) for line in LINES]
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
CAPACITY = {"10": {"computation": 100.0, "communication": 5000.0}, "9": {"computation": 50, "communication": 800.0}}
BEHAVIOUR = {"3": {"duration": 900, "active": [0, 3000], "inactive": [600, 3600], "finish_time": 4000, "model": "X"}}


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """The reader's folder: with the example in it, and FedScale's files as pickles."""
    shutil.copy(ROOT / "examples" / "own_traces.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, content in (("client_device_capacity", CAPACITY), ("client_behave_trace", BEHAVIOUR)):
        (tmp_path / name).write_bytes(pickle.dumps({int(client): said for client, said in content.items()}))
    return tmp_path


def write_example(monkeypatch, *words):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", list(words))
        runpy.run_path(words[0], run_name="__main__")


def test_every_command_works_in_the_order_in_which_it_is_shown(reader, monkeypatch):
    exec(PYTHON[-1], {})
    assert [words[:2] for words in COMMANDS].count(["fedclade", "run"]) == 4
    for number, (program, *words) in enumerate(COMMANDS):
        if program == "python":
            write_example(monkeypatch, *words)
            continue
        fast = ("--set", "run.rounds=2", "--set", "run.report=false", "--out", f"run{number}")
        answer = fedclade(*words, *(fast if words[0] == "run" else ()))
        assert (answer.code, answer.err) == (0, ""), words


def test_the_mistake_that_is_shown_is_what_is_told(reader):
    lines = ["device,round,gain_db", *(f"{device},1,-80" for device in range(5)), "5,1,n/a"]
    (reader / "own_trace.csv").write_text("\n".join(lines))
    line = refusal("plan", tiny_file(reader), "--set", "edge.trace=own_trace.csv")
    assert line in TEXT


def test_a_run_hears_exactly_those_who_are_there_and_goes_on_exactly_after_a_stop(reader):
    rows = [f"{device},{round_},{int((device + round_) % 3 > 0)}" for device in range(6) for round_ in (1, 2, 3)]
    (reader / "there.csv").write_text("\n".join(["device,round,available", *rows]))
    settings = ("edge.device_trace=there.csv", "run.rounds=5", "run.checkpoint_every=1", "clustering.method=none")
    run = tiny(*settings).run(reader / "whole")
    heard = {round_: sorted(part["device"]) for round_, part in run.uploads.groupby("round")}
    assert heard == {
        round_: [device for device in range(6) if (device + (round_ - 1) % 3 + 1) % 3 > 0] for round_ in range(1, 6)
    }
    assert "missed" not in set(run.events["kind"])
    assert run.summary["jain_participation"] == 1.0  # everybody was heard whenever it was there
    half = iter((False, False, True))
    stopped = tiny(*settings, stop_requested=lambda: next(half, True))
    with pytest.raises(Interrupted):
        stopped.run(reader / "halved")
    resumed = tiny(*settings).resume(reader / "halved")
    assert resumed.uploads.equals(run.uploads)
    assert resumed.model("0")["1.weight"].tolist() == run.model("0")["1.weight"].tolist()


def test_rounds_in_which_nobody_is_there_pass(reader):
    rows = [f"{device},{round_},{int(round_ != 2)}" for device in range(6) for round_ in (1, 2, 3)]
    (reader / "there.csv").write_text("\n".join(["device,round,available", *rows]))
    for policy in ("fair", "fair-cover", "random", "best-update"):
        chosen = ("edge.device_trace=there.csv", f"scheduling.policy={policy}", "scheduling.per_round=6")
        uploads = tiny(*chosen, "clustering.method=none").run(reader / policy).uploads
        assert uploads.groupby("round").size().to_dict() == {1: 6, 3: 6}


MOVING = ("edge.stations=3", "edge.mobility=random-waypoint", "edge.mobility_seconds=30.0", "run.rounds=6")


def test_the_policy_that_is_shown_takes_the_best_links_of_every_station(reader, monkeypatch):
    stand_in_folder_with(monkeypatch, reader, "of_each", PYTHON[0])
    experiment = tiny(*MOVING, "scheduling.policy=of_each:best_of_each", "clustering.method=none")
    links = {round_: experiment.edge.observe(round_) for round_ in range(1, 7)}
    run = experiment.run(reader / "run")
    handovers = run.events.query("kind == 'handover'")
    assert len(handovers) > 0
    for round_, seen in links.items():
        told = handovers[handovers["round"] == round_]
        changed = np.flatnonzero(seen.station != seen.station_before)
        assert told["device"].tolist() == changed.tolist()
        assert [detail["to"] for detail in told["detail"]] == seen.station[changed].tolist()
        heard = run.uploads.query(f"round == {round_}")["device"].to_numpy("int64")
        assert not np.isin(heard, changed).any()
        assert max(np.bincount(seen.station[heard])) <= 2


def test_a_run_with_moving_devices_and_stations_goes_on_exactly_after_a_stop(reader):
    settings = (*MOVING, "edge.shadowing_db=6.0", "run.checkpoint_every=1")
    whole, done = tiny(*settings).run(reader / "whole"), []
    with pytest.raises(Interrupted):
        tiny(*settings, stop_requested=lambda: len(done) >= 3).run(reader / "halved", on_round=done.append)
    resumed = tiny(*settings).resume(reader / "halved")
    assert resumed.uploads.equals(whole.uploads)
    assert resumed.events.equals(whole.events)


# -------------------------------------------------------------------------------- FedScale


def converted(folder, *words, capacity=CAPACITY, behaviour=BEHAVIOUR):
    (folder / "c.json").write_text(json.dumps(capacity))
    (folder / "b.json").write_text(json.dumps(behaviour))
    assert fedclade("convert-fedscale", "c.json", "--out", "t.csv", *words).code == 0
    return (folder / "t.csv").read_text().splitlines()


def test_fedscale_by_hand(reader):
    lines = converted(reader, "--availability", "b.json", "--devices", 2, "--rounds", 7, "--round-seconds", 1000.0)
    # rounds begin at 0, 1000, 2000, 3000, 4000 (0 again), 5000 and 6000 s; there from 0 to 600 and from 3000 to 3600 s
    stays = [(1, 1), (2, 0), (4, 1), (6, 0), (7, 0)]
    assert lines[0] == "device,round,rate_bps,seconds_per_sample,available"
    rows = [[float(cell) for cell in line.split(",")] for line in lines[1:]]
    assert rows == [  # client 9 comes before client 10
        pytest.approx([device, round_, *speed, there])
        for device, speed in enumerate([(8e5, 0.15), (5e6, 0.3)])
        for round_, there in stays
    ]


def test_without_availability_everybody_is_there_and_few_clients_begin_again(reader):
    lines = converted(reader, "--devices", 3, "--rounds", 1)
    assert [line.split(",")[2] for line in lines[1:]] == ["800000.0", "5000000.0", "800000.0"]
    assert {line.split(",")[-1] for line in lines[1:]} == {"1"}


def test_a_trace_from_fedscale_gives_the_seconds_that_fedscale_would(reader):
    converted(reader, "--devices", 6, "--rounds", 1)
    links = tiny("edge.trace=t.csv", "edge.device_trace=t.csv").edge.observe(1)
    samples = tiny().population.samples
    assert links.rate_bps.tolist() == pytest.approx([8e5, 5e6] * 3)
    assert links.compute_seconds.tolist() == pytest.approx(list(2 * samples * ([0.15, 0.3] * 3)))


@pytest.mark.parametrize(
    ("content", "right"),
    [
        (
            b"\x80\x04\x95",
            "must be JSON; a pickle is not read, because that runs code in it: see docs/how-to/traces.md",
        ),
        (
            b"device,round\n",
            "must be JSON; a pickle is not read, because that runs code in it: see docs/how-to/traces.md",
        ),
        (b"[1, 2]", 'must be an object of clients: {"1": {…}, "2": {…}, …}'),
        (b"{}", 'must be an object of clients: {"1": {…}, "2": {…}, …}'),
        (b'{"1": {"computation": 1}}', "client 1: communication = None: must be a number above 0"),
        (b'{"1": {"communication": 1, "computation": NaN}}', "client 1: computation = nan: must be a number above 0"),
    ],
)
def test_a_file_that_is_none_of_fedscales_is_refused_in_one_line(reader, content, right):
    (reader / "wrong.json").write_bytes(content)
    assert refusal("convert-fedscale", "wrong.json", "--out", "t.csv") == f"fedclade: wrong.json: {right}"
    assert not (reader / "t.csv").exists()


@pytest.mark.parametrize(
    ("stay", "right"),
    [
        ({"active": [1], "inactive": [2, 3]}, "has 1 times in active and 2 in inactive; must be as many"),
        ({"active": [1], "inactive": ["x"]}, "inactive: must be a list of seconds"),
        ({"active": 5, "inactive": [1]}, "active: must be a list of seconds"),
    ],
)
def test_stays_that_are_none_are_refused(reader, stay, right):
    (reader / "c.json").write_text(json.dumps(CAPACITY))
    (reader / "b.json").write_text(json.dumps({"7": {"finish_time": 10, **stay}}))
    words = ("convert-fedscale", "c.json", "--availability", "b.json", "--out", "t.csv")
    assert refusal(*words) == f"fedclade: b.json: client 7: {right}"


def test_an_existing_file_is_not_overwritten(reader):
    (reader / "t.csv").write_text("mine")
    assert refusal("convert-fedscale", "c.json", "--out", "t.csv").endswith("is there already; take another name")
    assert (reader / "t.csv").read_text() == "mine"


def test_the_command_of_the_example_works(reader, monkeypatch):
    write_example(monkeypatch, "own_traces.py", "own_trace.csv")
    assert len((reader / "own_trace.csv").read_text().splitlines()) == 1 + 20 * 24
    first_lines = (ROOT / "examples" / "own_traces.py").read_text("utf-8")
    (command,) = re.findall(r"fedclade (run .+)", first_lines)
    few = ("--set", "run.rounds=1", "--set", "run.report=false", "--out", "run")
    assert fedclade(*shlex.split(command), *few).code == 0
    assert len(open_run(reader / "run").uploads) == 20  # at midnight
    noon = Experiment("quickstart", ["edge.device_trace=own_trace.csv"]).plan(13)
    assert 0 < len(noon.timeline.device) < 20
