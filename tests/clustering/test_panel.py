"""Many devices: the method is put to a panel, and everybody else is placed by the outcome."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedclade import Experiment
from fedclade.clustering import find_method
from fedclade.clustering.panel import Panelled, best_fitting
from fedclade.core.errors import Interrupted
from fedclade.fleet.answers import Paired, Survey
from fedclade.fleet.questions import SurveyModels
from tiny_runs import outcome

MANY = {
    "run": {"rounds": 4, "report": False, "conventional": "frozen", "checkpoint_every": 2},
    "population": {
        "source": "digits",
        "devices": 90,
        "redraw": True,
        "partition": "iid",
        "sizes": "power-law",
        "min_samples": 30,
        "max_samples": 60,
    },
    "incongruence": {"kind": "permute-labels", "groups": [5, 3, 1]},
    "model": {"name": "mlp", "hidden": 32},
    "training": {"epochs": 3, "batch_size": 10, "learning_rate": 0.1, "updates_gb": 5e-4},
    "clustering": {"panel_above": 50, "panel_devices": 30},
}


def many(*overrides: str, **parts: object) -> Experiment:
    return Experiment(MANY, overrides, **parts)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return many().run(tmp_path_factory.mktemp("many") / "run")


def test_groups_are_found_by_a_panel_and_everybody_is_placed(finished):
    tree, planted = finished.read_tree(), np.repeat([0, 1, 2], [50, 30, 10])
    assert adjusted_rand_score(planted, tree.leaf_of()) == 1.0
    for node in tree.nodes.values():
        if node.split:
            assert node.split.evidence["panel"] <= 30


def test_a_panel_survives_a_checkpoint(finished, tmp_path):
    seen = list[int]()
    stopped = many(stop_requested=lambda: len(seen) == 3)
    with pytest.raises(Interrupted):
        stopped.run(tmp_path / "run", on_round=lambda progress: seen.append(progress.record.round))
    again = Experiment(stopped.config).resume(tmp_path / "run")
    assert outcome(again.folder) == outcome(finished.folder)


def test_only_many_devices_need_a_panel():
    assert isinstance(find_method(many().config), Panelled)
    assert not isinstance(find_method(many("clustering.panel_above=90").config), Panelled)
    assert not isinstance(find_method(Experiment("quickstart").config), Panelled)
    no_need = ["population.devices=1001", "clustering.method=ifca"]
    assert not isinstance(find_method(Experiment("quickstart", no_need).config), Panelled)
    assert isinstance(find_method(Experiment("quickstart", ["population.devices=1001"]).config), Panelled)


class Told:
    """A conversation whose answers are made of the misfit of each model on each of a device's images."""

    def __init__(self, losses: np.ndarray) -> None:
        self.misfit = losses  # device × model × image

    def ask(self, question):
        whose = self.misfit[question.devices]
        if isinstance(question, SurveyModels):
            return Survey(np.full((len(whose), 1), whose.shape[2]), whose.mean(axis=2, keepdims=True))
        rows = np.arange(len(whose))
        better = whose[rows, question.second] - whose[rows, question.first]
        images = np.full((len(whose), 1), whose.shape[2])
        return Paired(images, better.mean(axis=1, keepdims=True), (better**2).mean(axis=1, keepdims=True))


def test_a_device_in_doubt_goes_to_the_larger_cluster():
    """Ten images whose misfits differ by 0.3 ± 0.1 speak clearly, by 0.05 ± 0.3 hardly; the larger is 19 to 1."""
    noise = np.resize([1.0, -1.0], 10)
    clear, vague = 0.5 - 0.3 + 0.1 * noise, 0.5 - 0.05 + 0.3 * noise
    half = np.full(10, 0.5)
    told = Told(np.array([[half, clear], [half, vague], [vague, half], [clear, half]]))
    everyone, models = np.arange(4), np.zeros((2, 3), dtype=np.float32)
    assert best_fitting(models, np.array([190, 10]), everyone, told).tolist() == [1, 0, 0, 0]
    assert best_fitting(models, np.array([100, 100]), everyone, told).tolist() == [1, 1, 0, 0]
    assert best_fitting(models, np.array([10, 190]), everyone, told).tolist() == [1, 1, 1, 0]
    assert best_fitting(models, np.array([1, 1]), everyone[:0], told).tolist() == []


def test_without_groups_nothing_is_split(tmp_path):
    run = many("incongruence.kind=none", "incongruence.groups=[1]", "run.rounds=3").run(tmp_path / "run")
    assert len(run.read_tree().leaves()) == 1


def test_a_large_run_records_sums_and_a_sample(finished, tmp_path):
    run = many("run.record=clusters", "run.evaluate_devices=20").run(tmp_path / "run")
    assert len(run.uploads) == 0
    assert run.rounds["uploads"].tolist() == finished.rounds["uploads"].tolist()
    assert run.evaluations.groupby("round").size().between(18, 32).all()
    assert run.events["device"].isna().all()
    moved = {one.round: one.detail["devices"] for one in run.events.itertuples() if one.kind == "moved"}
    assert moved == finished.events.query("kind == 'moved'").groupby("round").size().to_dict()
    assert run.read_tree().leaf_of() == finished.read_tree().leaf_of()
    whole, sample = finished.summary, run.summary
    assert whole["accuracy_error"] is None
    assert abs(sample["accuracy_mean"] - whole["accuracy_mean"]) < 4 * sample["accuracy_error"]
