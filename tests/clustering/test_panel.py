"""Many devices: the method is put to a panel, and everybody else is placed by the outcome."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedclade import Experiment
from fedclade.clustering import find_method
from fedclade.clustering.method import Merge
from fedclade.clustering.panel import Panel, Panelled
from fedclade.clustering.panel_size import AMONG_WORST, NEEDED, chance, panel_size
from fedclade.clustering.placing import best_fitting, torn
from fedclade.config import ClusteringConfig
from fedclade.core.errors import Interrupted
from fedclade.core.tree import Node, Tree
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
        whose = self.misfit[question.devices][:, : len(question.models)]
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


def test_a_cluster_that_a_larger_one_s_model_fits_no_worse_was_torn_from_it():
    """Clusters of 5, 3 and 2 devices: the smallest is served as well by the first; the second is another group."""
    own, other = 0.2, 0.6
    rows = [[own, other, own]] * 5 + [[other, own, other]] * 3 + [[own - 0.01, other, own]] * 2
    told = Told(np.repeat(np.array(rows)[:, :, None], 4, axis=2))
    parts = {"0.0": range(5), "0.1": range(5, 8), "0.2": range(8, 10)}
    tree = Tree({name: Node(name, 1, tuple(part)) for name, part in parts.items()}, 10)
    models = {name: np.zeros(3, dtype=np.float32) for name in parts}
    asked = {name: np.array(part) for name, part in parts.items()}
    merge = torn(tree, models, asked, told)
    assert merge == Merge("0.2", "0.0", {"gain": pytest.approx(0.01), "asked": 2})
    asked["0.2"] = asked["0.2"][:0]  # nobody of it was heard
    assert torn(tree, models, asked, told) is None
    assert torn(tree, models, dict.fromkeys(asked, asked["0.2"]), told) is None


@pytest.mark.parametrize("ill_fitted", [True, False])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
def test_how_likely_a_panel_shows_a_group_is_the_binomial_law(share, ill_fitted):
    settings, draws = ClusteringConfig(panel_worst=0.1), np.random.default_rng(1)
    half, ill = (30, min(1.0, AMONG_WORST * share / 0.1)) if ill_fitted else (0, 0.0)
    seen = draws.binomial(60 - half, share, 100_000) + draws.binomial(half, ill, 100_000)
    assert chance(settings, 60, share, ill_fitted) == pytest.approx((seen >= NEEDED).mean(), abs=0.01)


@pytest.mark.parametrize("worst", [0.05, 0.0])
@pytest.mark.parametrize("smallest", [0.002, 0.01, 0.1, 0.5])
def test_a_panel_is_no_larger_than_the_smallest_group_needs(smallest, worst):
    settings = ClusteringConfig(panel_smallest=smallest, panel_worst=worst)
    size = panel_size(settings)
    assert chance(settings, size, smallest) >= settings.panel_chance > chance(settings, size - 2, smallest)
    assert panel_size(ClusteringConfig(panel_devices=200)) == 200


def test_a_panel_is_drawn_anew_when_its_cluster_is_twice_as_old():
    method, state = (
        find_method(many("clustering.panel_rounds=5").config),
        Experiment("quickstart").server.initial_state(),
    )
    leaf, members = state.tree.leaves()[0], np.arange(20)
    for drawn, rounds in ((1, 1), (2, 2), (4, 4), (8, 5), (20, 5)):
        panel = Panel(members[:9], drawn, None)
        serves = [method._serves(panel, replace(state, round=drawn + more), leaf, members) for more in range(7)]
        assert serves == [more < rounds for more in range(7)]
        assert method._serves(replace(panel, devices=members), replace(state, round=99), leaf, members)
        assert not method._serves(panel, state, leaf, members[1:])  # somebody has left


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
