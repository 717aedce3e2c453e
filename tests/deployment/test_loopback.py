"""The must-haves on real processes of this machine: SuperLink, SuperNodes, flwr run. Each test is a story."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from replay import simulated
from test_deployment import SETTINGS

from fedclade import UserError, open_run
from fedclade.deployment.flower.demo import LocalFederation, write_app
from fedclade.deployment.transport import DELIVER, TRAIN, UPLOAD
from fedclade.runs import Run

pytestmark = pytest.mark.slow
LIMIT_SECONDS, PARTS = 240, 4
# Flower starts a Python process for every message, so messages are what costs time: few rounds, evaluated at the end.
FAST = {**SETTINGS, "run.evaluate_every": 99, "grace-seconds": 15.0, "resume": "", "wait-seconds": 120}


def start(federation: LocalFederation, nodes: Iterable[int]) -> dict[int, subprocess.Popen[bytes]]:
    """A SuperLink, and a SuperNode with each of these parts of the data."""
    federation.start_superlink()
    return {k: federation.start_member(k, f"partition-id={k} num-partitions={PARTS}") for k in nodes}


def wait_for(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < until, f"waited {LIMIT_SECONDS} s for {what}"
        time.sleep(0.1)


def messages(run: Path) -> list[dict]:
    path = run / "messages.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def training(run: Path, round_: int) -> bool:
    return any((m["what"], m["kind"], m.get("round")) == ("sent", TRAIN, round_) for m in messages(run))


def completed(federation: LocalFederation, process: subprocess.Popen[str], folder: Path) -> Run:
    said: list[str] = []
    try:
        federation.watch(process, said.append)
    except UserError:
        pytest.fail("\n".join(said))
    assert said[-1] == f"Run         {folder}"
    return open_run(folder)


def waited_too_long(run: Run) -> list[int]:
    """Rounds that took longer than their deadline, by the clock."""
    deadline = {m["round"]: m["deadline_seconds"] for m in messages(run.folder) if m["kind"] == "round"}
    return [row.round for row in run.rounds.itertuples() if row.seconds > deadline[row.round] + 2]


def test_four_nodes_find_the_planted_groups_as_the_simulator_does_with_at_most_two_uploads_at_once(tmp_path):
    folder = tmp_path / "run"
    four = {"population.devices": 4, "incongruence.groups": "[2, 2]", "clustering.min_cluster_size": 2}
    split_at_once = {"norm_thresholds.warmup_rounds": 0, "run.rounds": 2}
    two_at_once = {"edge.bandwidth_hz": 2e6, "run.report": True, "out": str(folder)}
    app = write_app(tmp_path / "app", {**FAST, **four, **split_at_once, **two_at_once})
    with contextlib.closing(LocalFederation(tmp_path)) as federation:
        start(federation, range(4))
        run = completed(federation, federation.run(app, {}), folder)

    assert sorted(node["members"] for node in run.tree if not node["children"]) == [[0, 1], [2, 3]]
    assert run.summary["adjusted_rand_index"] == 1.0
    same = simulated(run, tmp_path / "simulated")
    for table, columns in (("uploads", ["round", "device"]), ("clusters", ["round", "node", "heard", "verdict"])):
        mine, theirs = (one.table(table)[columns].sort_values(columns).to_numpy() for one in (run, same))
        assert mine.tolist() == theirs.tolist()
    assert [node["members"] for node in run.tree] == [node["members"] for node in same.tree]
    for node in run.tree:
        for name, tensor in run.model(node["name"]).items():
            np.testing.assert_allclose(tensor, same.model(node["name"])[name], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(run.models["accuracy"], same.models["accuracy"])

    flying, most, sent = 0, 0, 0
    for message in messages(folder):
        if message["kind"] == UPLOAD:
            flying += {"sent": 1, "arrived": -1}[message["what"]]
            sent, most = sent + (message["what"] == "sent"), max(most, flying)
    assert (sent, most) == (8, 2)
    assert {path.name for path in folder.iterdir()} >= {"run.db", "models", "state", "summary.json", "report.html"}


def test_a_killed_node_costs_its_update_only_and_a_killed_superlink_does_not_cost_the_run(tmp_path):
    folder = tmp_path / "run"
    app = write_app(tmp_path / "app", {**FAST, "run.rounds": 3, "clustering.method": "none", "out": "", "devices": 3})
    with contextlib.closing(LocalFederation(tmp_path / "before")) as federation:
        nodes = start(federation, range(3))
        running = federation.run(app, {"out": str(folder)})
        wait_for(lambda: training(folder, 1), "round 1")
        os.kill(nodes[1].pid, signal.SIGKILL)
        wait_for(lambda: training(folder, 3), "round 3")
        federation.superlink.kill()
        federation.superlink.wait()
        running.wait(LIMIT_SECONDS)
    assert open_run(folder).rounds["round"].tolist() == [1, 2]

    with contextlib.closing(LocalFederation(tmp_path / "after")) as federation:
        start(federation, (0, 2))
        run = completed(federation, federation.run(app, {"resume": str(folder), "devices": 2}), folder)
    assert run.rounds["round"].tolist() == [1, 2, 3]
    assert waited_too_long(run) == []
    missed = run.events[run.events["kind"] == "missed"]
    assert list(zip(missed["round"], missed["device"], strict=True)) == [(1, 1), (2, 1), (3, 1)]
    assert missed["detail"].iloc[0]["failure"] in ("late", "gone")
    assert run.uploads.query("missed == 0").groupby("device").size().to_dict() == {0: 3, 2: 3}
    assert run.models.dropna(subset=["accuracy"])["device"].unique().tolist() == [0, 2]
    delivered = [m["device"] for m in messages(folder) if (m["what"], m["kind"]) == ("arrived", DELIVER)]
    assert sorted(delivered) == [0, 2]
