"""The metrics there are, by hand, and the page of the manual that lists them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedclade.core.objective import Best, Objective
from fedclade.core.task import R2
from fedclade.core.tree import Tree
from fedclade.metrics import Outcome
from fedclade.metrics.registry import METRICS, TABLES, compared, every_round, reference, summarise

OUTCOME = Outcome(
    policy="fair",
    method="none",
    reveals="sums",
    seed=1,
    downlink_bits=900.0,
    uplink_bits=600.0,
    planted=np.array([0, 0, 1, 1]),
    round=9,
    seconds=12.5,
    tree=Tree.planted(4).split("0", [[0, 1], [2, 3]], 3, 4.0),
    participation=np.array([3, 2, 1, 0]),
    present_rounds=np.array([3, 2, 1, 0]),
    energy_joules=np.array([1.0, 2.0, 3.0, 4.0]),
    score=np.array([0.5, 0.7, 0.9, np.nan]),  # the last device is gone
    conventional_score=np.array([0.2, 0.3, 0.4, np.nan]),
    personal_score=np.array([0.4, 0.6, 0.8, np.nan]),
    tuned_score=np.array([0.6, 0.8, 1.0, np.nan]),
    objective=Objective(
        1.2,
        {"0.0": 1.0, "0.1": 1.5},
        {"0.0": Best(8, 0.9, (0, 1), np.zeros(1)), "0.1": Best(9, 1.5, (2, 3), np.zeros(1))},
    ),
)


def test_every_metric_by_hand():
    told = summarise(OUTCOME)
    whole = ("clusters", "first_split_round", "last_split_round", "uploads")
    assert {name: told[name] for name in whole} == {
        "clusters": 2,
        "first_split_round": 3,
        "last_split_round": 3,
        "uploads": 6,
    }
    whole += tuple(name for name in told if name.startswith("drift_"))  # see test_drift.py
    whole += tuple(name for name in told if "r2" in name)
    assert {told[name] for name in told if "r2" in name} == {None}
    assert {name: value for name, value in told.items() if name not in whole} == pytest.approx(
        {
            "accuracy_min": 0.5,
            "accuracy_mean": 0.7,
            "accuracy_tuned_mean": 0.8,
            "accuracy_tuned_min": 0.6,
            "accuracy_personal_mean": 0.6,
            "accuracy_personal_min": 0.4,
            "accuracy_error": None,  # everybody was evaluated
            "accuracy_max": 0.9,
            "accuracy_gap": 0.4,
            "accuracy_std": np.sqrt(0.08 / 3),
            "accuracy_worst_tenth": 0.5,
            "jain_accuracy": 2.1**2 / (3 * (0.25 + 0.49 + 0.81)),
            "jain_participation": 1.0,  # whoever was there took part
            "conventional_accuracy_min": 0.2,
            "conventional_accuracy_mean": 0.3,
            "adjusted_rand_index": 1.0,
            "first_split_seconds": 4.0,
            "last_split_seconds": 4.0,
            "simulated_seconds": 12.5,
            "energy_joules": 10.0,
            "upload_bits": 600.0,
            "downlink_bits": 900.0,
            "loss": 1.2,
            "objective": 2.5,
            "objective_best": 2.4,
        }
    )


def test_what_does_not_exist_is_none():
    silent = {"score": np.full(4, np.nan), "objective": Objective(np.nan, {"0": np.inf}, {})}
    told = summarise(
        replace(OUTCOME, planted=None, personal_score=None, tuned_score=None, tree=Tree.planted(4), **silent)
    )
    nothing = {name for name, value in told.items() if value is None}
    assert {name for name in nothing if "accuracy" not in name and "r2" not in name} == {
        "adjusted_rand_index",
        *(f"drift_{what}" for what in ("devices", "followed", "rounds")),
        "loss",
        "objective",
        *(f"{which}_split_{unit}" for which in ("first", "last") for unit in ("round", "seconds")),
    }
    assert {"accuracy_min", "accuracy_mean", "jain_accuracy"} <= nothing


def test_curves_are_told_only_where_there_is_a_number():
    tags = {found.tag for found in every_round(OUTCOME)}
    accuracies = {f"accuracy/{name}" for name in ("min", "mean", "max", "gap", "one_model_mean")}
    assert tags == accuracies | {"loss/mean", "loss/P1"}
    silent = replace(OUTCOME, score=np.full(4, np.nan), objective=None)
    assert {found.tag for found in every_round(silent)} == {"accuracy/one_model_mean"}


def test_devices_with_numbers_have_r2_instead_of_accuracy():
    scores = {"score": np.array([-0.5, 0.7, 1.0, np.nan]), "conventional_score": np.array([0.2, 0.3, 0.4, np.nan])}
    told = summarise(replace(OUTCOME, scored=R2, **scores))
    assert {told[name] for name in told if "accuracy" in name} == {None}
    assert {name: told[name] for name in told if "r2" in name} == {
        "r2_min": -0.5,
        "r2_mean": pytest.approx(0.4),
        "r2_max": 1.0,
        "r2_gap": 1.5,
        "r2_worst_tenth": -0.5,
        "conventional_r2_min": 0.2,
        "conventional_r2_mean": pytest.approx(0.3),
        "drift_r2_lost": None,
    }
    shown = {found.name for found in compared(score=R2).values()}
    assert {"r2_mean", "clusters"} < shown
    assert not any("accuracy" in name for name in shown)


def test_comparisons_show_the_metrics_table_by_table():
    tables = [found.table for found in compared().values()]
    assert list(dict.fromkeys(tables)) == [table for table in TABLES if table != "own"]
    assert tables == sorted(tables, key=list(TABLES).index)
    assert set(compared()) < set(METRICS)


def test_the_manual_lists_exactly_the_metrics_there_are():
    manual = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text("utf-8")
    begin, end = "<!-- written by fedclade.metrics.registry.reference() -->\n", "<!-- until here -->"
    assert manual.split(begin)[1].split(end)[0].strip() == reference().strip()
