"""Training on Ray: two nodes of one core each on this machine. The same bytes as worker processes, whatever dies."""

import os
import signal
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
from fedclade.fleet.questions import SurveyModels
from fedclade.fleet.simulated.engines import Engine, build_trainer
from fedclade.fleet.simulated.ray import IN_FLIGHT, RayTrainer
from fedclade.fleet.simulated.streamed import Recipe, StreamedUpdates
from ray_nodes import PATIENCE, QUIET, Nodes
from tiny_runs import tiny, tiny_file

ray = pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = pytest.mark.slow
DEVICES = 40


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    found = Nodes(Path(tmp_path_factory.mktemp("r")))
    os.environ |= QUIET
    try:
        end = time.monotonic() + PATIENCE
        while not _joined(found.address):
            assert time.monotonic() < end, "no head came"
            found.revive()
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
        ray={"chunk": 9, "start_seconds": PATIENCE},
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


def test_models_are_looked_at_on_the_nodes_with_the_bytes_of_one_process(trainer):
    trained(trainer)  # starts the actors
    plain = build_trainer(Engine("batched", 1), PLAN, POPULATION)
    models = np.stack([plain.initial_model(variant) for variant in range(3)])
    question, dealt = SurveyModels(models, np.arange(DEVICES)), list[object]()
    look = trainer._looked
    trainer.examiner._look = lambda *asked: dealt.append(len(asked[2])) or look(*asked)
    here, there = (question.run(which.examiner) for which in (plain, trainer))
    np.testing.assert_array_equal(there.misfit, here.misfit)
    assert sum(dealt) > 2  # in parts


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


def test_a_node_that_stands_still_for_a_while_holds_few_chunks_and_changes_no_byte(trainer, reference):
    while not trainer._workers or not all(worker.ready for worker in trainer._workers):
        trained(trainer)
    slow, *others = trainer._workers
    pid = int(ray.get(slow.actor.facts.remote())["pid"])
    trainer.incidents.clear()
    still, held = list[int](), list[int]()

    def in_mid_round() -> bool:
        if not still and all(worker.chunks for worker in trainer._workers):
            still.append(1)
            os.kill(pid, signal.SIGSTOP)
        elif still and not held and not any(worker.chunks for worker in others):
            held.append(len(slow.chunks))  # the others have trained all the rest
            os.kill(pid, signal.SIGCONT)
        return False

    trainer._stop_requested = in_mid_round
    try:
        np.testing.assert_array_equal(trained(trainer), reference)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert held
    assert held[0] <= IN_FLIGHT
    assert trainer.incidents == []


def checkpointed(folder: Path, driver: "subprocess.Popen[bytes]") -> None:
    """Wait for a driver's first checkpoint."""
    end = time.monotonic() + PATIENCE
    while not (folder / "state" / "state.json").is_file():
        assert driver.poll() is None
        assert time.monotonic() < end, "no checkpoint came"
        time.sleep(0.05)


def assert_same_models(folder: Path, other: Path) -> None:
    models = sorted((other / "models").glob("*.safetensors"))
    assert len(models) > 2
    for path in models:
        assert (folder / "models" / path.name).read_bytes() == path.read_bytes()


def test_after_the_head_was_started_anew_a_run_goes_on_from_its_checkpoint(tmp_path, tmp_path_factory):
    rounds = "run.rounds=60"
    tiny(rounds, "run.checkpoint_every=1").run(tmp_path / "without")
    first = Nodes(tmp_path_factory.mktemp("h"))
    on_ray = ["training.engine=ray", f"ray.address={first.address}", "training.workers=1"]
    toml = tiny_file(tmp_path, rounds, "run.checkpoint_every=1", *on_ray)
    folder, program = tmp_path / "on-ray", [sys.executable, "-m", "fedclade"]
    environment = {**os.environ, **QUIET, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    try:
        first.start_worker()
        driver = first.joined([*program, "run", toml, "--out", folder], environment)
        checkpointed(folder, driver)
        first.kill(0)
        assert driver.wait(PATIENCE) != 0
    finally:
        first.close()
    again = Nodes(tmp_path_factory.mktemp("a"), first.address)
    try:
        again.start_worker()
        assert again.joined([*program, "run", "--resume", folder], environment).wait(PATIENCE) == 0
    finally:
        again.close()
    assert_same_models(folder, tmp_path / "without")


def test_a_killed_driver_is_resumed_to_the_same_bytes(nodes, tmp_path):
    rounds = "run.rounds=6"
    tiny(rounds, "run.checkpoint_every=1").run(tmp_path / "without")
    toml = tiny_file(tmp_path, rounds, "run.checkpoint_every=1", "training.engine=ray", f"ray.address={nodes.address}")
    folder, program = tmp_path / "on-ray", [sys.executable, "-m", "fedclade"]
    driver = subprocess.Popen([*program, "run", toml, "--out", folder], env={**os.environ, **QUIET})
    checkpointed(folder, driver)
    driver.kill()
    driver.wait()
    subprocess.run([*program, "run", "--resume", folder], env={**os.environ, **QUIET}, check=True)
    assert_same_models(folder, tmp_path / "without")
