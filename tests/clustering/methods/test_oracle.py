"""The oracle is told the planted groups: every group has a model of its own before anybody trains."""

import numpy as np
import pytest

from data_builders import error_line
from fedclade import config as configuration
from fedclade.clustering import find_method
from fedclade.core.records import Event
from made_up import FACING, clusters, kinds, make, play

GROUPS = np.array([1, 0, 1, 2, 0, 2])  # of no matter whose targets


def oracle(*overrides: str, groups: np.ndarray = GROUPS, **facts):
    return make(FACING, "clustering.method=oracle", *overrides, groups=groups, **facts)


def test_the_groups_are_clusters_before_anybody_trains_and_stay_so():
    state, (first, second) = play(oracle(), 2)
    assert clusters(state) == {"0.0": (1, 4), "0.1": (0, 2), "0.2": (3, 5)}
    assert first.events == [Event("split", "0", detail={"parts": [[1, 4], [0, 2], [3, 5]], "by": "oracle"})]
    assert second.events == []
    split = state.tree.nodes["0"].split
    assert (split.round, split.seconds, split.evidence) == (0, 0.0, {"by": "oracle"})


def test_every_group_trains_a_model_of_its_own_from_the_first_round_on():
    state, (record,) = play(oracle(samples=[1, 1, 3, 1, 2, 1]), 1)
    # targets 3, 3, 4, -3, -3 and -4, all from 0: (3 - 2·3) / 3, (3 + 3·4) / 4, (-3 - 4) / 2
    assert [state.models[f"0.{each}"].tolist() for each in range(3)] == [[-1.0], [3.75], [-3.5]]
    assert state.models["0"].tolist() == [0.0]
    assert [cluster.heard for cluster in record.clusters] == [2, 2, 2]


def test_the_conventional_model_starts_where_all_do():
    state, _ = play(oracle("run.conventional=continued"), 1)
    assert state.conventional.tolist() == [0.0]  # everybody's targets cancel
    state, _ = play(oracle("run.conventional=continued", samples=[1, 1, 4, 1, 1, 1]), 1)
    assert state.conventional.tolist() == pytest.approx([12 / 9])  # (3 + 3 + 4·4 - 3 - 3 - 4) / 9
    assert play(oracle("run.conventional=frozen", samples=[1, 1, 4, 1, 1, 1]), 1)[0].conventional.tolist() == [0.0]


def test_being_told_costs_nothing():
    told, none = (play(make(FACING, f"clustering.method={name}", groups=GROUPS), 2) for name in ("oracle", "none"))
    assert told[0].seconds == none[0].seconds
    assert told[0].energy_joules.tolist() == none[0].energy_joules.tolist()
    assert [record.asking_seconds for record in told[1]] == [0, 0]


def test_where_nobody_trains_in_the_first_round_the_groups_are_told_when_somebody_does():
    state, (first, second) = play(oracle(script={1: []}), 2)
    assert (kinds(first), kinds(second)) == ([], [("split", "0")])
    assert len(clusters(state)) == 3


def test_one_group_is_one_cluster():
    state, (record,) = play(oracle(groups=np.zeros(6, dtype=np.int64)), 1)
    assert clusters(state) == {"0": (0, 1, 2, 3, 4, 5)}
    assert record.events == []


def test_where_no_groups_are_known_there_is_nothing_to_tell():
    config = configuration.load(None, ["clustering.method=oracle"])
    assert error_line(find_method, config) == ('clustering.method = "oracle": this data has no planted groups to tell')
