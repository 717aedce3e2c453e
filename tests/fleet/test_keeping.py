"""What devices keep for their training: SCAFFOLD's control variates and Ditto's personal models.

Worked out on springs, whose loss is ½ s (y − t)² and whose gradient is s (y − t); then in whole runs.
"""

import numpy as np
import pytest

from data_builders import error_line
from fedclade.config import TrainingConfig
from fedclade.fleet.simulated.ditto import ditto
from fedclade.fleet.simulated.scaffold import controls, scaffold
from fedclade.fleet.simulated.trainer import Steering
from tiny_runs import tiny

RATE, STEPS = 0.1, 10
TRAINING = TrainingConfig(learning_rate=RATE, epochs=STEPS, batch_size=1)
ONE = np.ones(2, dtype=np.int64)  # a sample each, so that there are as many steps as epochs
BOTH, SAME = np.arange(2), np.zeros(2, dtype=np.int64)


class Springs:
    """Two devices, one of them stiff and at 0, the other soft and at 4."""

    parameters, incidents = 1, []
    stiffness, targets = np.float32([[3], [1]]), np.float32([[0], [4]])

    def initial_model(self, variant=0):
        return np.zeros(1, dtype=np.float32)

    def train(self, round_, models, devices, model_of, steering=None):
        start = models[model_of]
        vectors, pull = (0, 0) if steering is None else (steering.vectors, steering.proximal)
        y = start
        for _ in range(STEPS):
            gradient = self.stiffness[devices] * (y - self.targets[devices])
            y = y - np.float32(RATE) * (gradient + vectors + pull * (y - start))
        return (y - start).astype(np.float32)


def conducted(trainer, rounds: int) -> tuple[float, np.ndarray]:
    """One model by all devices for some rounds: where it ends, and what the devices keep."""
    model = trainer.initial_model()
    for round_ in range(1, rounds + 1):
        updates = trainer.train_round(round_, model[None], BOTH, SAME, ONE)
        model, trainer = model + updates.mean(axis=0), trainer.holding(trainer.after)
    return float(model[0]), trainer.kept


# -------------------------------------------------------------------------------- SCAFFOLD


def test_a_control_variate_becomes_the_mean_gradient_on_the_way():
    trainer = scaffold(Springs(), TRAINING, 2)
    start = np.float32([[1.0]])
    updates = trainer.train_round(1, start, BOTH, SAME, ONE)
    # from 1 the soft one goes to 4 - 3 · 0.9^10, the stiff one to 0.7^10; at first c = c_i = 0
    np.testing.assert_allclose(updates[:, 0], [0.7**10 - 1, 3 - 3 * 0.9**10], rtol=1e-5)
    np.testing.assert_allclose(trainer.after, -updates / (RATE * STEPS), rtol=1e-5)
    again = trainer.holding(trainer.after)
    mean = again.kept.mean()
    aside = Steering(mean - again.kept)
    expected = Springs().train(2, start, BOTH, SAME, aside)
    np.testing.assert_allclose(again.train_round(2, start, BOTH, SAME, ONE), expected, rtol=1e-5)
    np.testing.assert_allclose(again.after, again.kept - mean - expected / (RATE * STEPS), rtol=1e-5)


def test_scaffold_ends_at_the_optimum_where_plain_averaging_does_not():
    """The optimum of both losses is (3 · 0 + 1 · 4) / 4 = 1; whoever steps more often is heard more."""
    assert conducted(scaffold(Springs(), TRAINING, 2), 60)[0] == pytest.approx(1, abs=1e-3)
    model = np.zeros(1, dtype=np.float32)
    for round_ in range(60):
        model = model + Springs().train(round_, model[None], BOTH, SAME).mean(axis=0)
    assert model[0] > 1.3


def test_each_cluster_has_the_mean_of_its_members_variates_by_data():
    kept = np.float32([[1, 0], [5, 4], [7, 7]])
    found = controls(kept, np.array([1, 1, 0]), np.array([3, 1, 9]), 3)
    np.testing.assert_allclose(found, [[7, 7], [2, 1], [0, 0]])


def test_a_variate_changes_only_with_an_upload_that_is_used():
    experiment = tiny("training.scaffold=true", "clustering.method=none", "attack.kind=huge", "attack.share=0.2")
    state, server = experiment.server.initial_state(), experiment.server
    state, record = server.step(state)
    state, record = server.step(state)
    refused = [event.device for event in record.events if event.kind == "rejected"]
    assert len(refused) > 0
    assert not state.kept[refused].any()
    assert state.kept[np.setdiff1d(np.arange(6), refused)].any(axis=1).all()


def test_scaffold_sends_twice_as_much_in_either_direction(tmp_path):
    one = "clustering.method=none", "run.rounds=2", "edge.downlink_bps=1e6"
    plain, twice = (tiny(*one, f"training.scaffold={on}").run(tmp_path / on).summary for on in ("false", "true"))
    for name in ("upload_bits", "downlink_bits"):
        assert twice[name] == 2 * plain[name]
    assert twice["simulated_seconds"] > plain["simulated_seconds"]
    assert twice["energy_joules"] > plain["energy_joules"]


def test_scaffold_learns_in_clusters(tmp_path):
    run = tiny("training.scaffold=true", "clustering.method=oracle", "run.rounds=6").run(tmp_path / "run")
    assert run.summary["clusters"] == 2
    assert run.summary["accuracy_mean"] > 0.6
    assert not (run.folder / "models" / "local.safetensors").exists()


# -------------------------------------------------------------------------------- Ditto


@pytest.mark.parametrize("pull", [0.5, 2.0])
def test_a_personal_model_ends_between_its_devices_optimum_and_the_shared_one(pull):
    """Where s (v − t) + λ (v − w) = 0."""
    shared, own = conducted(ditto(Springs(), pull, 2), 80)
    for stiffness, target, found in zip([3, 1], [0, 4], own[:, 0], strict=True):
        assert found == pytest.approx((stiffness * target + pull * shared) / (stiffness + pull), abs=1e-3)


def test_dittos_first_round_is_fedprox_from_the_same_start_and_leaves_the_shared_training_alone():
    trainer, start = ditto(Springs(), 2.0, 2), np.zeros((1, 1), dtype=np.float32)
    np.testing.assert_array_equal(trainer.train_round(1, start, BOTH, SAME, ONE), Springs().train(1, start, BOTH, SAME))
    # from 0 towards 4, drawn back by 2: halves of the way to 4 / 3 are 0.7 to the power of the steps
    np.testing.assert_allclose(trainer.after[:, 0], [0, 4 / 3 * (1 - 0.7**10)], rtol=1e-5)


def test_personal_models_are_told_beside_the_shared_ones_and_cost_as_much_computing_again(tmp_path):
    one = "clustering.method=none", "run.rounds=4"
    plain, own = (tiny(*one, f"training.ditto={pull}").run(tmp_path / pull) for pull in ("0.0", "0.5"))
    assert own.summary["accuracy_mean"] == plain.summary["accuracy_mean"]
    assert plain.summary["accuracy_personal_mean"] is None
    assert own.summary["accuracy_personal_mean"] > own.summary["accuracy_mean"]  # the groups label digits differently
    assert own.summary["accuracy_personal_min"] > 0
    assert own.summary["upload_bits"] == plain.summary["upload_bits"]
    once, twice = (tiny(*one, f"training.ditto={pull}").edge.observe(1) for pull in (0.0, 0.5))
    np.testing.assert_allclose(twice.compute_seconds, 2 * once.compute_seconds)
    np.testing.assert_allclose(twice.compute_joules, 2 * once.compute_joules)
    assert own.summary["energy_joules"] > plain.summary["energy_joules"]
    assert own.module("0", 2) is not None
    assert own.model("local")["1.weight"].shape[0] == 6


# -------------------------------------------------------------------------------- what does not go together


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["training.scaffold=true", "training.momentum=0.9"], "is for plain SGD: leave momentum, proximal and ditto"),
        (["training.scaffold=true", "training.ditto=1.0"], "is for plain SGD: leave momentum, proximal and ditto"),
        (["training.scaffold=true", "model.local=['1.bias']"], "cannot be had together with training.scaffold"),
        (["training.ditto=1.0", "model.local=['1.bias']"], "cannot be had together with training.ditto"),
    ],
)
def test_what_does_not_go_together_is_one_line(overrides, complaint):
    assert complaint in error_line(tiny, *overrides)


@pytest.mark.parametrize("setting", ["training.scaffold=true", "training.ditto=1.0"])
def test_more_devices_than_updates_are_kept_of_are_refused(setting):
    line = error_line(lambda: tiny(setting, "training.updates_gb=1e-9").server)
    assert "are for as many devices as whole updates are kept of" in line
