"""The bounds held against runs of the strongly convex case, in Python and by command."""

import doctest
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from data_builders import error_line
from fedclade import config as configuration
from fedclade.report.convergence import bounds_as_json
from fedclade.theory.experiment import Curve, check_bounds
from tiny_runs import fedclade, refusal

# Two groups of three devices that label the digits differently; they split at round 27
SMALL = {
    "run": {"rounds": 80, "evaluate_every": 5},
    "population": {"source": "digits", "devices": 6, "samples": 300, "partition": "iid"},
    "incongruence": {"kind": "permute-labels", "groups": [3, 3]},
    "model": {"name": "logistic"},
    "training": {"epochs": 1, "batch_size": 20, "learning_rate": 0.02, "weight_decay": 0.5},
    "scheduling": {"policy": "full"},
    "clustering": {"method": "norm-thresholds", "min_cluster_size": 3},
    "norm_thresholds": {
        "warmup_rounds": 5,
        "norm": "per-step",
        "epsilon1": 0.4,
        "epsilon2": 1.0,
        "bipartition": "average",
    },
}

GREEDY = ["scheduling.policy=fair", "scheduling.after_stop=greedy", "scheduling.n_greedy=1"]  # the paper's


@pytest.fixture(scope="module")
def report():
    return check_bounds(SMALL)


def test_every_measured_value_is_under_its_bound(report):
    assert [curve.violations for curve in report.curves] == [0] * len(report.curves)
    assert not any(np.isnan([curve.theorem, curve.closing]).any() for curve in report.curves)


@pytest.mark.parametrize(("above", "violations"), [(0.0, 0), (1e-15, 0), (1e-12, 0), (1e-6, 4), (1.0, 4)])
def test_a_value_above_its_bound_by_rounding_alone_is_no_violation(above, violations):
    bound = np.array([2.0, 1.0])
    measured = bound * np.array([1 + above, 0.5])
    beta = 3.0
    curve = Curve(np.array([0, 1]), measured, beta / 2 * measured, theorem=bound, closing=bound, beta=beta)
    assert curve.violations == violations  # of distance and loss, by either bound


def test_the_split_gives_every_group_a_model_that_goes_to_the_groups_own_optimum(report):
    assert report.adjusted_rand_index == 1
    assert [cluster.name for cluster in report.clusters] == ["0", "0.0", "0.1"]
    for leaf in report.leaves:
        assert leaf.served.distance[-1] < 0.2 * leaf.one_model.distance[-1]
        assert leaf.served.loss_gap[-1] < 0.2 * leaf.one_model.loss_gap[-1]
        assert leaf.accuracy > leaf.one_model_accuracy
        assert (leaf.served.rounds[0], leaf.served.rounds[-1]) == (0, 80)


def test_before_the_split_all_are_served_by_one_model_and_after_it_by_their_own(report):
    for leaf, cluster in zip(report.leaves, report.clusters[1:], strict=True):
        before = leaf.served.rounds < leaf.born_round
        assert (leaf.served.distance[before] == leaf.one_model.distance[before]).all()
        own = np.isin(leaf.served.rounds, cluster.curve.rounds[1:])
        assert leaf.served.distance[own] == pytest.approx(cluster.curve.distance[1:])
        assert leaf.served.theorem[own] == pytest.approx(cluster.curve.theorem[1:])
        assert cluster.curve.rounds[0] == leaf.born_round - 1
        assert leaf.decreasing.distance[0] == cluster.curve.distance[0]


def test_incongruent_devices_have_the_larger_optimality_gap_and_floor(report):
    for cluster in report.clusters[1:]:
        assert cluster.constants.optimality_gap < 0.5 * report.one_model.constants.optimality_gap
        assert cluster.limit_floor("theorem") < 0.5 * report.one_model.limit_floor("theorem")
        assert cluster.limit_floor("closing") == 0
        assert cluster.floor("closing") < cluster.floor("theorem")


def test_the_same_config_gives_the_same_report(report):
    assert bounds_as_json(check_bounds(SMALL)) == bounds_as_json(report)


def test_where_a_stopped_cluster_goes_on_with_one_device_its_bound_ends():
    fair = configuration.load(
        SMALL, [*GREEDY, "norm_thresholds.epsilon2=3.0", "run.rounds=30", "scheduling.greedy_clusters=1"]
    )
    alone = check_bounds(fair)  # stops without a split
    (cluster,) = alone.clusters
    ended = np.isnan(cluster.curve.theorem)
    assert 0 < ended.sum() < len(ended)
    assert (np.diff(ended.astype(int)) >= 0).all()
    assert (np.isnan(alone.one_model.curve.closing) == ended).all()
    assert alone.leaves[0].born_round == 0


def test_a_leaf_that_stops_ends_its_own_bound_only():
    fair = configuration.load(SMALL, GREEDY)
    split = check_bounds(fair)
    ended = {cluster.name: bool(np.isnan(cluster.curve.closing[-1])) for cluster in split.clusters}
    assert (ended["0"], any(ended.values())) == (False, True)
    assert not np.isnan(split.one_model.curve.closing).any()


def test_where_more_local_epochs_are_too_many_for_the_rate_no_bound_is_told():
    fast = configuration.load(SMALL, ["training.learning_rate=0.05", "run.rounds=5"])
    told = bounds_as_json(check_bounds(fast))["local_epochs"]
    assert [row["floor_closing"] is None for row in told] == [False, False, False, False, True]


def test_unequal_data_means_unequal_local_steps_and_a_floor_that_stays():
    uneven = configuration.load(SMALL, ["population.sizes=power-law", "population.max_samples=80", "run.rounds=20"])
    unequal = check_bounds(uneven)
    assert len(np.unique(unequal.one_model.constants.steps)) > 1
    assert unequal.one_model.limit_floor("closing") > 0
    assert sum(curve.violations for curve in unequal.curves) == 0


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("model.name=cnn", "model.name = cnn: the bounds are of L2-regularised logistic regression"),
        ("training.weight_decay=0.0", "training.weight_decay = 0.0: "),
        ("training.momentum=0.9", "training.momentum = 0.9: "),
        ("clustering.method=none", "clustering.method = none: "),
        ("scheduling.policy=random", 'scheduling.policy = "random": left devices out of round 1'),
        ("training.learning_rate=0.9", "learning rate η = 0.9: gives ζ1 = "),
    ],
)
def test_a_case_that_the_bounds_are_not_of_is_refused(override, complaint):
    small = configuration.load(SMALL, [override, "scheduling.per_round=2", "run.rounds=2"])
    assert error_line(check_bounds, small).startswith(complaint)


# -------------------------------------------------------------------------------- by command


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(configuration.to_toml(configuration.load(SMALL)), "utf-8")
    return tmp_path


def test_the_command_prints_tables_and_writes_json_and_a_figure(here):
    answer = fedclade("bound", "small.toml")
    assert (answer.code, answer.err) == (0, "")
    for words in ("one model", "Why split", "What local epochs do", "exactly the planted groups"):
        assert words in answer.out
    assert "0 of " in answer.out
    assert answer.out.splitlines()[-1].split() == ["Written", "bounds/small:", "bound.json,", "bound.png"]
    assert (here / "bounds/small/bound.png").read_bytes().startswith(b"\x89PNG")


def test_the_commands_json_is_what_it_writes(here):
    answer = fedclade("bound", "small.toml", "--set", "run.rounds=10", "--json", "--out", "mine")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (here / "mine/bound.json").read_text("utf-8")
    first = json.loads(answer.out)["models"][0]
    assert (first["model"], first["alpha"], first["members"]) == ("one model", 0.5, [0, 1, 2, 3, 4, 5])
    for taken in ("mine", "small.toml"):
        complaint = refusal("bound", "small.toml", "--out", taken)
        assert complaint == f"fedclade: --out {taken}: is a file or already holds bound.json; choose another folder"


def test_without_matplotlib_all_but_the_figure_is_there(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = fedclade("bound", "small.toml", "--set", "run.rounds=5")
    assert answer.code == 0
    assert answer.out.endswith("bound.json, no figure: pip install 'fedclade[figures]' for matplotlib\n")
    assert [path.name for path in (here / "bounds/small").iterdir()] == ["bound.json"]


# -------------------------------------------------------------------------------- the pages of docs

DOCS = Path(__file__).parents[2] / "docs"
MEASURED = (DOCS / "results" / "convergence-bound.md").read_text("utf-8")
COMMANDS = [line for line in MEASURED.splitlines() if line.startswith("fedclade ")]


def test_the_python_on_the_page_gives_what_it_says():
    assert doctest.testfile(str(DOCS / "explanation" / "theory.md"), module_relative=False).failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_on_the_page_works_and_no_value_exceeds_its_bound(command, here):
    answer = fedclade(*command.split()[1:], "--json")
    told = json.loads(answer.out)
    assert told["violations"] == 0
    if "--set" not in command:  # a preset as it is
        assert (told["adjusted_rand_index"], len(told["leaves"])) == (1.0, 3)
        assert all(leaf["accuracy"] > 0.8 > 0.5 > leaf["one_model_accuracy"] for leaf in told["leaves"])
