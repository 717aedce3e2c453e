"""Training on Ray: two nodes of one core each on this machine. The same bytes as worker processes, whatever dies."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from data_builders import config
from fedclade.config import Config
from fedclade.core.updates import sketch_signs
from fedclade.data import build_population
from fedclade.fleet.simulated.engines import Engine, build_trainer
from fedclade.fleet.simulated.ray import RayTrainer
from fedclade.fleet.simulated.streamed import Recipe, StreamedUpdates
from tiny_runs import tiny, tiny_file

ray = pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = pytest.mark.slow
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "OMP_NUM_THREADS": "1"}
DEVICES = 40
PATIENCE = 300  # seconds; generous, for a busy machine


class Nodes:
    """A head without cores and worker nodes with one core each, every one a group of processes of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        self.started = [self._start("--head", f"--port={port}", "--num-cpus=0", f"--temp-dir={folder}")]

    def add(self) -> None:
        """One more, and wait for it; on a busy machine it may need a second start."""
        cores, end = ray.cluster_resources().get("CPU", 0), time.monotonic() + PATIENCE
        self.started.append(self._start(f"--address={self.address}", "--num-cpus=1"))
        while ray.cluster_resources().get("CPU", 0) <= cores:
            assert time.monotonic() < end, "no node came"
            if self.started[-1].poll() is not None:
                self.started[-1] = self._start(f"--address={self.address}", "--num-cpus=1")
            time.sleep(0.2)

    def _start(self, *options: str) -> "subprocess.Popen[bytes]":
        command = [Path(sys.executable).with_name("ray"), "start", "--block", "--node-ip-address=127.0.0.1"]
        common = ["--object-store-memory=100000000", "--disable-usage-stats", "--include-dashboard=false"]
        return subprocess.Popen(
            [*command, *options, *(common if "--head" in options else common[:2])],
            env={**os.environ, **QUIET},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, node: int) -> None:
        """With everything on it."""
        os.killpg(self.started[node].pid, signal.SIGKILL)
        self.started[node].wait()

    def close(self) -> None:
        for node, process in enumerate(self.started):
            if process.poll() is None:
                self.kill(node)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    found = Nodes(Path(tmp_path_factory.mktemp("r")))
    os.environ |= QUIET
    try:
        end = time.monotonic() + PATIENCE
        while not _joined(found.address):
            assert time.monotonic() < end, "no head came"
        for _ in range(2):
            found.add()
        yield found
    finally:
        ray.shutdown()
        found.close()


def _joined(address: str) -> bool:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError):
        return False
    return True


def settings(**training: object) -> Config:
    return config(
        population={"source": "digits", "devices": DEVICES},
        model={"name": "mlp", "hidden": 384},  # nine devices fit into a stack
        training={"epochs": 60, "learning_rate": 0.05, **training},
        ray={"chunk": 9},
    )


PLAN = settings()
POPULATION = build_population(PLAN)
EVERYBODY = np.arange(DEVICES)[::-1].copy()


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    trainer = build_trainer(Engine("batched", 2), PLAN, POPULATION)
    try:
        return trained(trainer)
    finally:
        trainer.close()


def trained(trainer) -> np.ndarray:
    models = np.stack([trainer.initial_model(variant) for variant in range(2)])
    return trainer.train(3, models, EVERYBODY, EVERYBODY % 2)


@pytest.fixture
def trainer(nodes) -> Iterator[RayTrainer]:
    found = build_trainer(Engine("ray", 0), PLAN, POPULATION)
    assert isinstance(found, RayTrainer)
    yield found
    found.close()


def test_two_nodes_give_the_bytes_of_worker_processes(trainer, reference):
    np.testing.assert_array_equal(trained(trainer), reference)
    (told,) = trainer.incidents
    assert "2 cores" in told
    assert "2 actors" in told


def test_sums_and_sketches_made_on_the_nodes_agree_to_rounding(trainer):
    plain = build_trainer(Engine("batched", 1), PLAN, POPULATION)
    models, width = np.stack([plain.initial_model(variant) for variant in range(2)]), 16
    answers = []
    for which in (plain, trainer):
        recipe = Recipe(3, models, np.arange(DEVICES), np.arange(DEVICES) % 2)
        signs = sketch_signs(1, plain.parameters)
        found = StreamedUpdates(which, recipe, POPULATION.samples, signs, width, 1e9)
        side = np.arange(DEVICES) % 3
        sums = found.sums(np.arange(DEVICES), side, POPULATION.samples / 100, 3)
        answers.append((found.norms(np.arange(DEVICES)), found.sketched(signs, width).rows(np.arange(DEVICES)), sums))
    for here, there in zip(*answers, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


def test_a_killed_actor_is_replaced_and_its_chunks_are_trained_again(trainer, reference):
    while not trainer._workers or not all(worker.ready for worker in trainer._workers):
        trained(trainer)
    pids = [int(facts["pid"]) for facts in ray.get([worker.actor.facts.remote() for worker in trainer._workers])]
    trainer.incidents.clear()
    os.kill(pids[0], signal.SIGKILL)
    np.testing.assert_array_equal(trained(trainer), reference)
    assert any("actor died" in told for told in trainer.incidents)


def test_a_node_killed_in_mid_round_changes_no_byte(nodes, trainer, reference):
    while not trainer._workers or not all(worker.ready for worker in trainer._workers):
        trained(trainer)
    trainer.incidents.clear()
    killed = list[int]()

    def in_mid_round() -> bool:
        if not killed and all(worker.chunks for worker in trainer._workers):
            killed.append(1)
            nodes.kill(1)
        return False

    trainer._stop_requested = in_mid_round
    np.testing.assert_array_equal(trained(trainer), reference)
    assert killed
    assert any("actor died" in told for told in trainer.incidents)
    nodes.add()


def test_a_killed_driver_is_resumed_to_the_same_bytes(nodes, tmp_path):
    rounds = "run.rounds=6"
    tiny(rounds, "run.checkpoint_every=1").run(tmp_path / "without")
    toml = tiny_file(tmp_path, rounds, "run.checkpoint_every=1", "training.engine=ray", f"ray.address={nodes.address}")
    folder, program = tmp_path / "on-ray", [sys.executable, "-m", "fedclade"]
    driver = subprocess.Popen([*program, "run", toml, "--out", folder], env={**os.environ, **QUIET})
    end = time.monotonic() + PATIENCE
    while not (folder / "state" / "state.json").is_file():
        assert driver.poll() is None
        assert time.monotonic() < end, "no checkpoint came"
        time.sleep(0.05)
    driver.kill()
    driver.wait()
    subprocess.run([*program, "run", "--resume", folder], env={**os.environ, **QUIET}, check=True)
    models = sorted((tmp_path / "without" / "models").glob("*.safetensors"))
    assert len(models) > 2
    for path in models:
        assert (folder / "models" / path.name).read_bytes() == path.read_bytes()
