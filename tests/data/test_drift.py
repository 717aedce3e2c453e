"""Devices whose data change: who, to what, and that everything else stays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_builders import config, error_line, image_set
from fedclade.config import Config, load
from fedclade.data import Source, populate
from fedclade.data.drift import Drift, drift_of
from fedclade.data.variations import find_variation

SHARES = ("train", "validation", "test")


def of(kind="group", share=0.3, groups=(3, 3), incongruence="permute-labels", devices=6, seed=1) -> Config:
    return config(
        run={"seed": seed},
        population={"devices": devices, "partition": "iid", "validation_share": 0.2},
        incongruence={"kind": incongruence, "groups": list(groups)},
        drift={"kind": kind, "share": share, "round": 5},
    )


def found_drift(settings: Config, source: Source) -> Drift | None:
    return drift_of(settings, populate(settings, source), lambda group: populate(settings, source, group))


@given(
    st.sampled_from(["rotate", "permute-labels", "contrast", "blur"]),
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.floats(0.01, 1.0),
    st.integers(0, 50),
)
def test_a_device_that_changes_group_holds_its_samples_as_the_new_group_sees_them(kind, groups, share, seed):
    settings = of(share=share, groups=groups, incongruence=kind, devices=12, seed=seed)
    source = image_set(360, 6)
    population = populate(settings, source)
    drift, vary = found_drift(settings, source), find_variation(settings, source)
    assert len(drift.devices) == max(1, round(share * 12))
    assert np.array_equal(np.flatnonzero(drift.group_before != drift.group_after), drift.devices)
    plain = populate(settings.model_copy(update={"incongruence": Config().incongruence}), source)
    for device in range(12):
        before, after = drift.rows(4)[device], drift.rows(5)[device]
        group = int(drift.group_after[device])
        for name in SHARES:
            old, new = (getattr(drift.population, name)[row] for row in (before, after))
            mine = getattr(plain, name)[device]
            images, labels = vary(plain.images[mine], plain.labels[mine], group)
            assert np.array_equal(drift.population.images[new], images)
            assert np.array_equal(drift.population.labels[new], labels)
            assert np.array_equal(old, getattr(population, name)[device])
    assert np.array_equal(drift.population.images[: len(population.images)], population.images)
    assert np.array_equal(drift.samples(5), population.samples)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=12), st.floats(0.01, 1.0), st.integers(0, 50))
def test_pairs_of_different_groups_swap_all_their_data(group, share, seed):
    group = np.unique(group, return_inverse=True)[1]  # groups are numbered from 0
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 30, len(group))
    data = [(rng.normal(size=(size, 3)), np.arange(size) % 2) for size in sizes]
    settings = of("swap", share, incongruence="none", groups=(1,), devices=len(group), seed=seed)
    population = populate(settings, Source.of_devices(data, group=group).checked("test"))
    drift = drift_of(settings, population, lambda group: population)
    rows = drift.rows(9)
    assert np.array_equal(rows[rows], np.arange(len(group)))  # partners have each other's
    assert drift.population is population
    assert np.array_equal(drift.samples(5), population.samples[rows])
    assert np.array_equal(drift.samples(4), population.samples)
    assert np.array_equal(drift.group(5), population.group[rows])
    changed = drift.devices
    assert 2 <= len(changed) <= max(2, round(share * len(group)))
    if len(np.unique(group)) > 1:
        assert (drift.group_before[changed] != drift.group_after[changed]).all()


def test_before_its_round_nothing_has_changed_and_it_is_told_in_its_round_alone():
    drift = found_drift(of(), image_set(60, 3))
    assert np.array_equal(drift.rows(4), np.arange(6))
    assert np.array_equal(drift.group(4), drift.group_before)
    assert drift.told(4) == drift.told(6) == {}
    assert drift.told(5) == {
        device: {"from": int(drift.group_before[device]), "to": int(drift.group_after[device])}
        for device in drift.devices.tolist()
    }


def test_another_seed_changes_other_devices():
    found = {tuple(found_drift(of(seed=seed), image_set(60, 3)).devices.tolist()) for seed in range(9)}
    assert len(found) > 3


def test_without_a_drift_there_is_none():
    assert found_drift(of("none"), image_set(60, 3)) is None


@pytest.mark.parametrize("incongruence", ["none", "disjoint-classes"])
def test_groups_that_cannot_be_planted_anew_are_refused(incongruence):
    changes = {"drift.kind": "group", "incongruence.kind": incongruence, "incongruence.groups": [1, 1]}
    assert error_line(load, None, changes) == (
        'overrides: drift.kind = "group": needs groups that incongruence.kind plants, "rotate" for instance; '
        'else take "swap"'
    )
