"""Each policy does what its definition says, in random situations, and users can bring their own."""

import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedclade.config import SchedulingConfig
from fedclade.core.errors import UserError
from fedclade.scheduling import ClusterView, Policy, Situation, find_policy, policy, policy_names

BUILT_IN = policy_names()  # before any test registers one of its own
PICKY = ("random", "round-robin", "best-channel", "most-data")  # those that always pick a fixed number


def situations(**config):
    """1 to 8 devices in up to 3 clusters; small whole numbers, so that ties are common and sums exact."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_situation(np.random.default_rng(seed), config))


def random_situation(rng, config):
    devices = int(rng.integers(1, 9))
    few = rng.integers(0, 5, (4, devices))
    cluster = rng.integers(0, 3, devices)
    if rng.random() < 0.5:
        config = {**config, "per_round": int(rng.integers(1, 11))}
    return Situation(
        round=int(rng.integers(1, 51)),
        seed=int(rng.integers(0, 5)),
        subchannels=int(rng.integers(1, 11)),
        samples=rng.integers(1, 6, devices),
        snr=few[0].astype(float),
        rate_bps=few[0].astype(float),
        mean_rate_bps=np.full(devices, 2.0),
        compute_seconds=few[1].astype(float),
        upload_seconds=few[2].astype(float),
        losses=np.where(rng.random(devices) < 0.3, np.nan, few[3].astype(float)),
        reachable=rng.random(devices) < 0.5,
        last_heard=few[3],
        clusters=tuple(ClusterView(np.flatnonzero(cluster == c), rng.random() < 0.5) for c in np.unique(cluster)),
        config=SchedulingConfig(**{"after_stop": "greedy", "n_greedy": int(rng.integers(1, 4)), **config}),
    )


def twenty_devices(**changes):
    """A plain situation: 20 devices, one open cluster, 10 sub-channels."""
    ones = np.ones(20)
    plain = Situation(
        round=1,
        seed=1,
        subchannels=10,
        samples=np.full(20, 100),
        snr=ones,
        rate_bps=ones,
        mean_rate_bps=ones,
        compute_seconds=ones,
        upload_seconds=ones,
        reachable=ones > 0,
        last_heard=np.full(20, 0),
        losses=np.full(20, np.nan),
        clusters=(ClusterView(np.arange(20), True),),
        config=SchedulingConfig(),
    )
    return replace(plain, **changes)


def select(name, situation):
    return find_policy(name).select(situation).tolist()


def cheapest(ids, cost, count):
    """Of all groups of that many ids the one of least total cost, the first in order of ids if several."""
    count = min(count, len(ids))
    return list(min(combinations(ids, count), key=lambda group: (sum(cost[i] for i in group), group)))


def allowed(situation):
    return min(len(situation.samples), situation.config.per_round or situation.subchannels)


def test_the_policies_of_the_paper_are_there():
    promised = (
        "fair fair-cover fair-patient full random best-channel best-update most-data most-data-available round-robin"
    )
    assert set(promised.split()) <= set(policy_names())


@given(situations())
def test_every_policy_gives_distinct_ids_in_order_and_repeats_itself(situation):
    for name in BUILT_IN:
        chosen = select(name, situation)
        assert chosen == sorted(set(chosen)) == select(name, situation)
        assert set(chosen) <= set(range(situation.devices))


@given(situations())
def test_policies_that_pick_a_few_pick_as_many_as_they_may(situation):
    assert {len(select(name, situation)) for name in PICKY} == {allowed(situation)}
    reached = int(situation.reachable.sum())
    assert len(select("most-data-available", situation)) == min(allowed(situation), reached)


@given(situations())
def test_best_channel_picks_the_best_links_and_most_data_the_largest_devices(situation):
    everyone = range(situation.devices)
    assert select("best-channel", situation) == cheapest(everyone, -situation.rate_bps, allowed(situation))
    assert select("most-data", situation) == cheapest(everyone, -situation.samples, allowed(situation))


@given(situations())
def test_most_data_available_picks_the_largest_within_reach(situation):
    within_reach = np.flatnonzero(situation.reachable).tolist()
    chosen = select("most-data-available", situation)
    assert chosen == cheapest(within_reach, -situation.samples, allowed(situation))


@given(situations())
def test_full_and_best_update_let_everybody_compute(situation):
    assert select("full", situation) == select("best-update", situation) == list(range(situation.devices))


@given(situations(), st.data())
def test_best_update_lets_the_largest_norms_upload(situation, data):
    ids = np.array(sorted(data.draw(st.sets(st.integers(0, situation.devices - 1)))), dtype=np.int64)
    norms = data.draw(st.lists(st.integers(0, 4), min_size=len(ids), max_size=len(ids)))
    chosen = find_policy("best-update").choose_uploads(situation, ids, np.array(norms, dtype=np.float64))
    cost = {device: -norm for device, norm in zip(ids.tolist(), norms, strict=True)}
    assert chosen.tolist() == cheapest(ids.tolist(), cost, allowed(situation))


@given(situations())
def test_fair_hears_all_of_open_clusters_and_the_fastest_of_stopped_ones(situation):
    total = situation.compute_seconds + situation.upload_seconds
    expected = []
    for cluster in situation.clusters:
        members = cluster.members.tolist()
        expected += members if cluster.open else cheapest(members, total, situation.config.n_greedy)
    assert select("fair", situation) == sorted(expected)


@given(situations(after_stop="freeze"))
def test_freeze_gives_nobody_of_stopped_clusters(situation):
    expected = [device for cluster in situation.clusters if cluster.open for device in cluster.members]
    assert select("fair", situation) == sorted(expected)


@given(situations(after_stop="round-robin"))
def test_after_a_stop_round_robin_gives_every_member_the_same_number_of_turns(situation):
    stopped = (ClusterView(np.arange(situation.devices), False),)
    turns = [select("fair", replace(situation, clusters=stopped, round=r + 1)) for r in range(situation.devices)]
    each = min(situation.config.n_greedy, situation.devices)
    assert {len(turn) for turn in turns} == {each}
    assert np.bincount(np.concatenate(turns)).tolist() == [each] * situation.devices


@given(situations())
def test_round_robin_gives_every_device_the_same_number_of_turns(situation):
    turns = [select("round-robin", replace(situation, round=r + 1)) for r in range(situation.devices)]
    assert np.bincount(np.concatenate(turns)).tolist() == [allowed(situation)] * situation.devices


def test_round_robin_goes_around_before_anyone_is_heard_twice():
    turns = [select("round-robin", twenty_devices(round=r)) for r in (1, 2, 3)]
    assert turns == [list(range(10)), list(range(10, 20)), list(range(10))]


def test_random_depends_on_seed_and_round_alone():
    chosen = select("random", twenty_devices())
    assert chosen == select("random", twenty_devices(rate_bps=np.arange(20.0), samples=np.arange(1, 21)))
    assert chosen != select("random", twenty_devices(round=2))
    assert chosen != select("random", twenty_devices(seed=2))


def test_random_hears_everybody_about_equally_often():
    heard = np.bincount(np.concatenate([select("random", twenty_devices(round=r)) for r in range(1, 401)]))
    # 400 rounds at 1/2: 200 each, standard deviation 10
    assert np.abs(heard - 200).max() < 40


# -------------------------------------------------------------------------------- fair-cover


def covered(devices, per_round, window, rounds, seed):
    """Who fair-cover hears in each round under Rayleigh fading: rounds × devices."""
    rng = np.random.default_rng(seed)
    mean = 10 ** rng.uniform(5, 7, devices)
    last_heard, heard = np.zeros(devices, dtype=np.int64), []
    for round_ in range(1, rounds + 1):
        situation = twenty_devices(
            round=round_,
            samples=np.ones(devices, dtype=np.int64),
            rate_bps=mean * rng.exponential(1.0, devices),
            mean_rate_bps=mean,
            last_heard=last_heard,
            clusters=(ClusterView(np.arange(devices), True),),
            config=SchedulingConfig(per_round=per_round, window=window),
        )
        chosen = np.isin(np.arange(devices), select("fair-cover", situation))
        last_heard = np.where(chosen, round_, last_heard)
        heard.append(chosen)
    return np.array(heard)


@settings(max_examples=300)
@given(st.integers(1, 25), st.integers(1, 12), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_fair_cover_hears_everybody_within_every_window_and_never_more_than_it_may(devices, count, more, seed):
    window = -(-devices // count) + more
    heard = covered(devices, count, window, 3 * window, seed)
    assert (heard.sum(axis=1) == min(devices, count)).all()
    in_window = np.lib.stride_tricks.sliding_window_view(heard, window, axis=0).any(axis=-1)
    assert in_window.all()


def test_fair_cover_prefers_nobody_for_its_place_and_hears_them_in_good_moments():
    heard = covered(devices=20, per_round=10, window=4, rounds=400, seed=1).sum(axis=0)
    assert heard.sum() ** 2 / (20 * (heard**2).sum()) > 0.999  # Jain's index
    # by hand: of two at one a round, both heard last in the same round, the one above its own average goes first
    two = {"clusters": (ClusterView(np.arange(2), True),), "samples": np.ones(2), "last_heard": np.array([3, 3])}
    situation = twenty_devices(
        round=5,
        config=SchedulingConfig(per_round=1, window=4),
        rate_bps=np.array([9e6, 2e6]),
        mean_rate_bps=np.array([9e6, 1e6]),
        **two,
    )
    assert select("fair-cover", situation) == [1]
    # its window closes in round 7 for both, and in round 6 one of them must have gone
    assert select("fair-cover", replace(situation, round=7)) == [1]
    assert select("fair-cover", replace(situation, round=7, last_heard=np.array([3, 5]))) == [0]


@given(situations())
def test_fair_cover_serves_stopped_clusters_as_fair_does(situation):
    stopped = tuple(replace(cluster, open=False) for cluster in situation.clusters)
    situation = replace(situation, clusters=stopped)
    assert select("fair-cover", situation) == select("fair", situation)


def test_the_oldest_go_first_when_more_windows_close_than_there_are_turns():
    late = twenty_devices(round=30, last_heard=np.arange(20), config=SchedulingConfig(per_round=5, window=4))
    assert select("fair-cover", late) == [0, 1, 2, 3, 4]


def test_a_window_too_short_for_everybody_is_refused():
    with pytest.raises(UserError, match=r"scheduling.window = 1: 20 devices at 10 a round need at least 2 rounds"):
        select("fair-cover", twenty_devices(config=SchedulingConfig(window=1)))


@given(situations(after_stop="cover"))
def test_after_a_stop_cover_hears_every_member_within_twice_the_fewest_rounds(situation):
    members, each = situation.devices, min(situation.config.n_greedy, situation.devices)
    stopped = (ClusterView(np.arange(members), False),)
    heard, last = [], np.zeros(members, dtype=np.int64)
    for round_ in range(1, 4 * members + 1):
        now = replace(
            situation, clusters=stopped, round=round_, last_heard=last, rate_bps=np.roll(situation.rate_bps, round_)
        )
        heard.append(np.isin(np.arange(members), select("fair", now)))
        last = np.where(heard[-1], round_, last)
    window = 2 * -(-members // each)
    assert {int(turn.sum()) for turn in heard} == {each}
    assert np.lib.stride_tricks.sliding_window_view(np.array(heard), window, axis=0).any(axis=-1).all()


# -------------------------------------------------------------------------------- users' own


@pytest.fixture
def own_registry(monkeypatch):
    """What a test registers is forgotten after it."""
    from fedclade.scheduling.policies import policy as protocol

    monkeypatch.setattr(protocol, "_registry", dict(protocol._registry))


@pytest.fixture
def own_module(own_registry, monkeypatch, tmp_path):
    """The name of a module in the folder the user stands in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_policies", raising=False)
    (tmp_path / "own_policies.py").write_text(
        "import numpy as np\n"
        "from fedclade.scheduling import Policy, policy\n"
        "answer = 42\n"
        "def first(situation):\n"
        "    return np.arange(1)\n"
        "@policy('loudest', choose_uploads=lambda situation, ids, norms: ids[norms > 1])\n"
        "def loudest(situation):\n"
        "    return np.arange(situation.devices)\n"
        "whole = Policy('whole', first)\n"
    )
    return "own_policies"


@pytest.mark.usefixtures("own_registry")
def test_a_registered_function_is_found_by_its_name():
    @policy("last")
    def last(situation):
        return np.array([situation.devices - 1])

    assert find_policy("last") == Policy("last", last)
    assert "last" in policy_names()
    assert select("last", twenty_devices()) == [19]


def test_a_function_of_a_module_in_the_current_folder_is_a_policy(own_module):
    found = find_policy(f"{own_module}:first")
    assert (found.name, found.choose_uploads) == ("own_policies:first", None)
    assert found.select(twenty_devices()).tolist() == [0]
    assert find_policy(f"{own_module}:whole").name == "whole"


def test_a_function_that_its_module_registers_keeps_its_choice_of_uploads(own_module):
    found = find_policy(f"{own_module}:loudest")
    assert found == find_policy("loudest")
    assert found.choose_uploads(twenty_devices(), np.arange(3), np.array([0.0, 2.0, 3.0])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("best-chanel", "did you mean 'best-channel'?"),
        ("zzz", "known: best-channel, best-update, fair"),
        ("own_policies:answer", "must be a function of a Situation"),
        ("own_policies:missing", "module 'own_policies' has no 'missing'"),
        ("no_such_module:first", "cannot import 'no_such_module'"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_a_policy_that_cannot_be_found_is_one_line_that_helps(name, complaint):
    with pytest.raises(UserError) as caught:
        find_policy(name)
    message = str(caught.value)
    assert complaint in message
    assert name in message
    assert "\n" not in message


# -------------------------------------------------------------------------------- other papers' policies


def test_fedcs_takes_the_quickest_that_fit_into_the_deadline():
    compute, upload = np.arange(1.0, 21.0), np.ones(20)
    tight = twenty_devices(
        compute_seconds=compute, upload_seconds=upload, subchannels=2, config=SchedulingConfig(deadline_seconds=4.5)
    )
    assert select("fedcs", tight) == [0, 1, 2]  # done after 2, 3 and 4 seconds
    assert select("fedcs", replace(tight, config=SchedulingConfig(deadline_seconds=0.5))) == []
    assert select("fedcs", replace(tight, config=SchedulingConfig())) == [0, 1]  # the two quickest


def test_tifl_takes_devices_of_one_tier_of_speed_and_every_tier_in_time():
    speeds = twenty_devices(compute_seconds=np.arange(20.0), upload_seconds=np.ones(20), subchannels=3)
    seen = [select("tifl", replace(speeds, round=round_)) for round_ in range(1, 60)]
    assert all(len(chosen) == 3 and len({device // 4 for device in chosen}) == 1 for chosen in seen)
    assert {device for chosen in seen for device in chosen} == set(range(20))


def test_power_of_choice_takes_the_largest_losses_of_those_drawn():
    losses = np.arange(20.0)
    whole = twenty_devices(losses=losses, subchannels=10)  # twice ten are drawn: everybody
    assert select("power-of-choice", whole) == list(range(10, 20))
    unknown = twenty_devices(losses=np.where(losses < 3, np.nan, losses), subchannels=10)
    assert select("power-of-choice", unknown) == [0, 1, 2, *range(13, 20)]


def test_oort_explores_and_takes_what_is_useful_and_quick():
    losses, seconds = np.full(20, 1.0), np.full(20, 1.0)
    losses[[3, 4]] = 50.0
    seconds[4] = 100.0  # as useful as the other, and far too slow
    known = twenty_devices(losses=losses, compute_seconds=seconds, upload_seconds=np.zeros(20), subchannels=1, round=50)
    assert select("oort", known) == [3]
    new = replace(known, losses=np.where(np.arange(20) < 10, np.nan, 1.0), subchannels=10, round=1)
    assert sum(device < 10 for device in select("oort", new)) == 9  # ε = 0.9 at first
    later = replace(new, round=200)
    assert sum(device < 10 for device in select("oort", later)) == 2  # and 0.2 at last


def test_policies_that_need_losses_are_told_them():
    assert [name for name in BUILT_IN if find_policy(name).needs_losses] == ["power-of-choice", "oort"]
