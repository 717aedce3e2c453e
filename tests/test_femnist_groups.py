"""Whole runs of presets on real data: the planted groups are found, and where there are none, nothing splits."""

import pytest
from benchmarks.random_cuts import measured

from fedclade import run

pytestmark = pytest.mark.slow


def test_femnist_rotated_splits_exactly_into_the_planted_groups(real_data, tmp_path):
    finished = run(
        "femnist-rotated",
        tmp_path / "rotated",
        overrides=[f"population.root={real_data}", "run.rounds=6", "run.evaluate_every=6"],
    )
    summary = finished.summary
    assert (summary["clusters"], summary["adjusted_rand_index"]) == (2, 1.0)
    assert sorted(node["members"] for node in finished.tree if not node["children"]) == [
        list(range(15)),
        list(range(15, 20)),
    ]
    assert summary["accuracy_min"] > summary["conventional_accuracy_min"] + 0.1


def test_an_iid_population_of_the_same_size_does_not_split(real_data, tmp_path):
    finished = run(
        "femnist-rotated",
        tmp_path / "iid",
        overrides=[
            f"population.root={real_data}",
            "population.partition=iid",
            "incongruence.kind=none",
            "run.rounds=6",
            "run.evaluate_every=6",
        ],
    )
    assert finished.summary["clusters"] == 1
    kinds = finished.events["kind"].tolist()
    assert "split-test" in kinds  # it was tried, and refused
    assert set(kinds) <= {"split-test", "stop"}


def test_quickstart_splits_exactly_into_the_planted_groups(tmp_path):
    finished = run("quickstart", tmp_path / "quickstart", overrides=["run.rounds=12", "run.evaluate_every=12"])
    assert finished.summary["adjusted_rand_index"] == 1.0
    planted = finished.devices.groupby("planted_group")["device"].apply(list).tolist()
    assert sorted(node["members"] for node in finished.tree if not node["children"]) == planted


def test_quickstart_without_groups_does_not_split(tmp_path):
    overrides = ["incongruence.kind=none", "population.partition=iid", "run.rounds=12", "run.evaluate_every=12"]
    finished = run("quickstart", tmp_path / "iid", overrides=overrides)
    assert finished.summary["clusters"] == 1
    assert "split-test" in set(finished.events["kind"])


def test_random_cuts_of_writers_pass_only_where_images_are_the_units(real_data, monkeypatch):
    monkeypatch.setenv("FEDCLADE_DATA", str(real_data))
    random = measured(9, 31, "FEMNIST, 20 writers")["random"]
    assert len(random) == 18
    assert sum(each["images"] < 1e-4 for each in random) > 9
    assert sum(each["devices"] < 1e-3 for each in random) <= 1  # some writers really are alike
