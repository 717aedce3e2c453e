"""Whole runs of presets on real data: the planted groups are found, and where there are none, nothing splits."""

import pytest
from benchmarks import writers as by_writer
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


def test_random_cuts_of_writers_do_not_pass(real_data, monkeypatch):
    monkeypatch.setenv("FEDCLADE_DATA", str(real_data))
    random = measured(9, 31, "FEMNIST, 20 writers")["random"]
    assert len(random) == 18
    assert sum(each["images"] for each in random) > 9  # they would, if nothing else were asked
    assert sum(each["passes"] for each in random) == 0


def writers(real_data, tmp_path, *overrides: str):
    common = ["population.source=femnist", "population.partition=writer", f"population.root={real_data}"]
    common += ["run.rounds=8", "run.evaluate_every=8", "run.seed=42"]
    return run("quickstart", tmp_path / "writers", overrides=[*common, *overrides])


def test_writers_without_groups_are_left_together(real_data, tmp_path):
    alone = ("population.devices=20", "incongruence.kind=none", "incongruence.groups=[1]")
    finished = writers(real_data, tmp_path, *alone)
    assert finished.summary["clusters"] == 1
    told = finished.events[finished.events["kind"] == "split-test"]["detail"].tolist()
    assert any("p_gain" in each for each in told)  # random halves passed, so they judged without their own updates


def test_rotated_writers_are_parted_from_the_others_and_not_from_each_other(real_data, tmp_path):
    rotated = ("population.devices=20", "incongruence.kind=rotate", "incongruence.groups=[15,5]")
    finished = writers(real_data, tmp_path, *rotated)
    assert (finished.summary["clusters"], finished.summary["adjusted_rand_index"]) == (2, 1.0)


def test_the_benchmark_of_writers_tells_what_became_of_a_population(real_data, monkeypatch):
    monkeypatch.setenv("FEDCLADE_DATA", str(real_data))
    done = by_writer.run(next(by_writer.cells(8, "mlp", 51)))
    assert by_writer.row(done)[:5] == ("8", "mlp", "none", "all", "51")
    assert by_writer.right(done | {"clusters": 1})
    assert not by_writer.right(done | {"clusters": 2, "accuracy_min": done["one_model_min"] - 0.02})
