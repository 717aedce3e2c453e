"""A plan is selection, timeline and allocation put together; every number of the small ones is worked out by hand."""

from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade import UserError
from fedclade.config import SchedulingConfig
from fedclade.core.links import Links
from fedclade.scheduling import ClusterView, Planner, Policy, cluster_views, plan_timeline

NOBODY = np.zeros(0, dtype=np.int64)


def links_of(compute, upload, **more):
    """Computing costs 1 J and an upload 10 J."""
    compute, upload = np.array(compute, dtype=float), np.array(upload, dtype=float)
    one = np.ones(len(upload))
    return Links(one, 8.0 / upload, compute, upload, one, 10 * one, np.isfinite(upload), **more)


def plan_of(links, subchannels=2, clusters=None, called=NOBODY, own=None, **config):
    """Of round 1, everybody in one open cluster and never heard, unless a test says otherwise."""
    devices = len(links.upload_seconds)
    planner = Planner(SchedulingConfig(**{"order": "latency", **config}), 1, subchannels)
    planner.policy = own or planner.policy
    everybody = (ClusterView(np.arange(devices), open=True),)
    never = np.zeros(devices, dtype=np.int64)
    return planner.plan(1, links, clusters or everybody, never + 1, never, called)


rounds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@given(rounds, st.sampled_from(["fair", "full", "random", "best-channel", "most-data-available"]))
def test_a_plan_is_the_timeline_of_those_whom_the_policy_selects_and_of_the_lost(rng, name):
    devices, subchannels = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    upload = np.where(rng.random(devices) < 0.2, np.inf, rng.integers(1, 5, devices))
    links = links_of(rng.integers(0, 5, devices), upload)
    retry = np.flatnonzero(rng.random(devices) < 0.2)
    deadline = float(rng.integers(1, 9)) if rng.random() < 0.5 else None
    seen = []

    def spy(situation):
        seen.append(known.select(situation))
        return seen[-1]

    known = Planner(SchedulingConfig(policy=name), 1, subchannels).policy
    plan = plan_of(links, subchannels, called=retry, own=Policy(name, spy), deadline_seconds=deadline)
    chosen = np.union1d(seen[0], retry)
    expected = plan_timeline(
        chosen, links.compute_seconds[chosen], links.upload_seconds[chosen], subchannels, deadline=deadline
    )
    np.testing.assert_equal(asdict(plan.timeline), asdict(expected))
    assert plan.choose is None
    # exactly those train whose upload arrives; each of them pays for both
    assert plan.computing.tolist() == sorted(expected.arrived.tolist())
    assert plan.joules_of().tolist() == [11.0 if k in plan.computing else 0.0 for k in range(devices)]
    assert plan.seconds == (expected.makespan if len(plan.computing) else deadline or 0.0)


def test_who_fails_while_a_plan_is_carried_out_has_computed_all_the_same():
    plan = plan_of(links_of([1, 1, 1], [1, 2, 3]))
    happened = replace(plan.timeline, missed=plan.timeline.device == 1)
    assert plan.joules_of(happened).tolist() == [11, 1, 11]


def test_best_update_lets_everybody_compute_and_those_upload_whose_norms_are_largest():
    # everybody waits for the slowest, 4 s; two sub-channels, so the two largest norms: devices 1 and 2
    plan = plan_of(links_of([1, 2, 3, 4], [1, 1, 2, 1]), policy="best-update")
    assert plan.computing.tolist() == [0, 1, 2, 3]
    assert plan.choose is not None
    decided = plan.choose(np.array([1.0, 5.0, 3.0, 2.0]))
    assert decided.choose is None
    assert decided.computing.tolist() == [0, 1, 2, 3]
    assert decided.timeline.device.tolist() == [1, 2]
    assert decided.timeline.start.tolist() == [4, 4]
    assert decided.seconds == 6
    assert decided.joules_of().tolist() == [1, 11, 11, 1]


def test_a_policy_cannot_let_devices_upload_that_did_not_compute():
    policy = Policy("mine", lambda situation: np.array([0, 1]), lambda situation, ids, norms: np.array([2]))
    plan = plan_of(links_of([1, 1, 1], [1, 1, 1]), own=policy)
    assert plan.choose is not None
    with pytest.raises(UserError, match=r"policy 'mine': lets \[2\] upload, of whom some did not compute"):
        plan.choose(np.ones(2))


@dataclass(frozen=True)
class Leaf:
    devices: tuple[int, ...]
    stopped_round: int | None = None


@pytest.mark.parametrize(
    ("every", "due"),
    [(0, []), (1, [4, 5, 6, 7, 8]), (2, [5, 7]), (3, [6])],
)
def test_a_stopped_cluster_is_open_again_every_so_many_rounds(every, due):
    config = SchedulingConfig(recheck_every=every)
    for round_ in range(1, 9):
        going, stopped = cluster_views([Leaf((0, 2)), Leaf((1,), stopped_round=3)], config, round_)
        assert (going.members.tolist(), going.open, going.stopped) == ([0, 2], True, False)
        assert (stopped.members.tolist(), stopped.open, stopped.stopped) == ([1], round_ in due, True)


@pytest.mark.parametrize(
    ("clusters", "least", "greedy"), [(1, 2, False), (1, 1, True), (2, 2, True), (2, 3, False), (3, 2, True)]
)
def test_stopped_clusters_let_only_a_few_go_on_once_there_are_enough_of_them(clusters, least, greedy):
    leaves = [Leaf((device,), stopped_round=3) for device in range(clusters)]
    views = cluster_views(
        [*leaves, Leaf(())], SchedulingConfig(greedy_clusters=least), 5
    )  # an empty one does not count
    assert [(view.open, view.stopped) for view in views] == [(not greedy, greedy)] * clusters


@pytest.mark.parametrize(("stopped", "deadline"), [([], 8), ([0], 6.5), ([1], 3.5), ([0, 1], 2)])
@pytest.mark.parametrize("open_", [True, False])
def test_the_deadline_shrinks_with_the_share_of_devices_in_stopped_clusters_due_for_a_re_check_or_not(
    stopped, deadline, open_
):
    clusters = tuple(
        ClusterView(np.array(members), open=open_ or i not in stopped, stopped=i in stopped)
        for i, members in enumerate([[0], [1, 2, 3]])
    )
    config = {"deadline_seconds": 8.0, "deadline_final_seconds": 2.0}
    assert plan_of(links_of([1] * 4, [1] * 4), clusters=clusters, **config).deadline == deadline


# -------------------------------------------------------------------------------- devices that are known to be absent

POLICIES = [
    "fair",
    "fair-cover",
    "fair-patient",
    "full",
    "random",
    "round-robin",
    "best-channel",
    "most-data",
    "best-update",
]


@given(rounds, st.sampled_from(POLICIES))
def test_a_plan_without_the_absent_is_that_of_a_fleet_without_them(rng, name):
    devices, subchannels = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    absent = rng.random(devices) < 0.4
    compute, upload = rng.integers(0, 5, devices), rng.integers(1, 5, devices)
    retry, group = np.flatnonzero(rng.random(devices) < 0.2), rng.random(devices) < 0.5
    here = np.flatnonzero(~absent)
    sides = [side for side in (np.flatnonzero(group), np.flatnonzero(~group)) if len(side)]
    fewer = [np.searchsorted(here, np.intersect1d(side, here)) for side in sides]
    views, fewer_views = (tuple(ClusterView(side, open=True) for side in each if len(side)) for each in (sides, fewer))
    plan = plan_of(links_of(compute, upload, absent=absent, away=absent), subchannels, views, retry, policy=name)
    if len(here) == 0:
        assert (len(plan.computing), len(plan.timeline.device)) == (0, 0)
        return
    alone = plan_of(
        links_of(compute[here], upload[here]),
        subchannels,
        fewer_views,
        np.searchsorted(here, np.intersect1d(retry, here)),
        policy=name,
    )
    if plan.choose is not None:
        norms = rng.random(len(plan.computing))
        plan, alone = plan.choose(norms), alone.choose(norms)
    assert plan.computing.tolist() == here[alone.computing].tolist()
    assert plan.timeline.device.tolist() == here[alone.timeline.device].tolist()
    assert plan.timeline.end.tolist() == alone.timeline.end.tolist()
    assert not absent[plan.timeline.device].any()
