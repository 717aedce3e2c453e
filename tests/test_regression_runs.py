"""Devices with numbers instead of classes, from the command line to every place where something is told of them."""

import json

import numpy as np
import pytest
import torch

from fedclade import Experiment, open_run
from fedclade.core.task import R2
from tiny_runs import fedclade, refusal

# Two groups of four devices, each with a linear rule of its own.
NUMBERS = {
    "run": {"rounds": 6, "checkpoint_every": 2},
    "population": {
        "source": "synthetic",
        "devices": 8,
        "synthetic_models": "group",
        "synthetic_targets": "numbers",
    },
    "incongruence": {"groups": [4, 4]},
    "model": {"name": "mlp", "hidden": 16},
    "training": {"epochs": 4, "learning_rate": 0.1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Experiment(NUMBERS).run(tmp_path_factory.mktemp("numbers") / "run")


def test_groups_are_found_and_scored_by_r2(run):
    summary = run.summary
    assert (summary["clusters"], summary["adjusted_rand_index"]) == (2, 1.0)
    assert summary["r2_mean"] > summary["conventional_r2_mean"] + 0.1
    assert {summary[name] for name in summary if "accuracy" in name} == {None}
    assert run.score == R2


def test_r2_is_that_of_the_saved_models_in_the_units_of_the_data(run):
    """Worked out anew: 1 - mean squared error over the variance of all devices' targets."""
    experiment = Experiment(run.config)
    population = experiment.population
    found = run.models.set_index(["model", "device"])["r2"]
    variance = population.task.std[0] ** 2
    for leaf in run.leaves():
        module = run.module(leaf.name)
        for device in leaf.devices:
            mine = population.test[device]
            with torch.no_grad():
                told = module(torch.from_numpy(population.images[mine])).numpy()
            error = told - population.task.restored(population.labels[mine])
            assert found[leaf.name, device] == pytest.approx(1.0 - (error**2).mean() / variance, abs=1e-4)


def test_the_terminal_the_page_and_the_figures_say_r2(run, tmp_path):
    told = fedclade("show-run", run.folder)
    assert told.code == 0
    assert "R²" in told.out
    assert "accuracy" not in told.out
    page = (run.folder / "report.html").read_text("utf-8")
    assert "<h2>R² while training</h2>" in page
    assert "@" + "score@" not in page
    assert fedclade("figures", run.folder, "--out", tmp_path).code == 0
    assert (tmp_path / "r2-column.png").is_file()
    assert run.plot_accuracy().layout.yaxis.title.text == "R²"


def test_a_run_is_resumed_to_the_same_result(run, tmp_path):
    class Enough(Exception):
        pass

    def stop(progress):
        if progress.record.round == 3:
            raise Enough

    with pytest.raises(Enough):
        Experiment(NUMBERS).run(tmp_path / "again", on_round=stop)
    again = Experiment(NUMBERS).resume(tmp_path / "again")
    timeless = [{n: v for n, v in each.summary.items() if not n.startswith("wall_")} for each in (run, again)]
    assert timeless[0] == timeless[1]


def test_a_device_is_assigned_by_its_numbers(run, tmp_path):
    experiment = Experiment(run.config)
    population = experiment.population
    mine = population.train[6]
    x, y = population.images[mine], population.task.restored(population.labels[mine])[:, 0]
    np.savez(tmp_path / "new.npz", x=x[:, 0, 0], y=y)
    found = json.loads(fedclade("assign", run.folder, "--data", tmp_path / "new.npz", "--json").out)
    assert (found["leaf"], found["scored"], found["fits"]) == (run.read_tree().leaf_of()[6], "r2", True)
    assert "R²" in fedclade("assign", run.folder, "--data", tmp_path / "new.npz").out
    np.savez(tmp_path / "two.npz", x=x[:, 0, 0], y=np.stack([y, y], axis=1))
    assert refusal("assign", run.folder, "--data", tmp_path / "two.npz").endswith(
        "y has 2 numbers for a sample, must have 1"
    )


def test_policies_are_compared_by_r2(tmp_path):
    changes = ["--set", "run.rounds=2", "--set", "compare.target_accuracy=0.2", "--set", "population.devices=8"]
    words = [
        "--policies",
        "fair,random",
        "--seeds",
        "1",
        "--out",
        tmp_path / "both",
        "--set",
        "incongruence.groups=[4,4]",
    ]
    told = fedclade("compare", "regression", *changes, *words, "--details")
    assert told.code == 0, told.err
    assert "Best on average" in told.out
    assert "R² over the devices" in told.out
    assert "First at R² 0.2 on average" in told.out
    assert (tmp_path / "both/figures/race-K8.png").is_file()
    assert "<h2>R² round by round</h2>" in (tmp_path / "both/report.html").read_text("utf-8")


def test_several_numbers_are_told_of_a_sample(tmp_path):
    """Three targets, two of which depend on the group."""
    rng = np.random.default_rng(0)
    devices = []
    for device in range(8):
        x = rng.normal(size=(80, 5))
        sign = 1.0 if device < 4 else -1.0
        devices.append((x, np.stack([100 + x[:, 0], sign * x[:, 1], 5 * sign * x[:, 2]], axis=1)))
    experiment = Experiment(
        NUMBERS, {"population.source": "digits", "incongruence.groups": [1], "run.report": False}, devices=devices
    )
    run = experiment.run(tmp_path / "three")
    assert run.summary["clusters"] == 2
    assert {leaf.devices for leaf in run.leaves()} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    card = open_run(run.folder).module(run.leaves()[0].name).card
    assert card.task.outputs == 3
    assert card.task.mean[0] == pytest.approx(100, abs=0.5)


def test_check_data_tells_of_numbers(tmp_path):
    rows = ["f,device,y", *(f"{i},{i % 2},{i / 4}" for i in range(20))]
    (tmp_path / "all.csv").write_text("\n".join(rows))
    told = fedclade("check-data", tmp_path / "all.csv")
    assert told.code == 0
    assert "Numbers     to be told, 0 to 4.75, mean 2.375" in told.out
    assert "Classes" not in told.out
    found = json.loads(fedclade("check-data", tmp_path / "all.csv", "--json").out)
    assert (found["targets"], found["classes"], found["numbers"][0]["most"]) == ("numbers", None, 4.75)
