"""Users may bring an allocation rule of their own, and every rule is held to the same contract."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade.config import Config, EdgeConfig, RunConfig, SchedulingConfig
from fedclade.core.errors import UserError
from fedclade.edge import SimulatedEdge
from fedclade.scheduling import (
    ALLOCATIONS,
    Allocation,
    Effort,
    Planner,
    Rule,
    Slots,
    allocate,
    find_rule,
    plan_timeline,
    rule,
)
from fedclade.scheduling.allocation.fixed import fixed

SUBCHANNELS = 3


def slots_of(devices=8, seed=1, deadline=None, order="latency", **edge):
    """A planned round of the simulated edge on three sub-channels of 1 MHz."""
    config = Config(run=RunConfig(seed=seed), edge=EdgeConfig(**{"bandwidth_hz": 3e6, "cpu_max_hz": 2e9, **edge}))
    links = SimulatedEdge(config, np.full(devices, 100), 6272, 20_000).observe(1)
    timeline = plan_timeline(
        np.arange(devices), links.compute_seconds, links.upload_seconds, SUBCHANNELS, order=order, deadline=deadline
    )
    given_ = (links.compute_seconds, links.upload_seconds, links.compute_joules, links.upload_joules, links.snr)
    effort = Effort(*given_, **vars(links.limits)).of(timeline.device)
    return Slots(timeline, effort, SUBCHANNELS, deadline, links.uplink.of(timeline.device))


# -------------------------------------------------------------------------------- what a rule may do

rounds = st.builds(
    slots_of,
    devices=st.integers(0, 12),
    seed=st.integers(0, 50),
    deadline=st.none() | st.floats(0.05, 2.0),
    order=st.sampled_from(["latency", "compute", "longest-upload"]),
    availability=st.sampled_from(["always", "bernoulli"]),
    noise=st.sampled_from(["thermal", "paper-text"]),
)


@given(rounds)
def test_the_built_in_rules_keep_the_contract(slots):
    for name in ALLOCATIONS:
        assert allocate(find_rule(name), slots).timeline.makespan <= slots.timeline.makespan


@given(rounds)
def test_what_a_rule_leaves_out_stays_as_given(slots):
    settled, plain = (allocate(Rule("mine", settle), slots) for settle in (lambda now: now.settled(), fixed))
    for name, values in vars(plain.timeline).items():
        np.testing.assert_allclose(getattr(settled.timeline, name), values, rtol=1e-6, err_msg=name)
    assert settled.compute_joules == pytest.approx(plain.compute_joules, rel=1e-6)
    assert settled.upload_joules == pytest.approx(plain.upload_joules, rel=1e-6)
    assert settled.bandwidth_hz.tolist() == [1e6] * len(slots.timeline.device)


@given(rounds, st.integers(0, 2**32 - 1))
def test_the_whole_bandwidth_may_be_shared_in_any_way(slots, seed):
    slots = replace(slots, deadline=None)
    share = np.random.default_rng(seed).dirichlet(np.ones(SUBCHANNELS))
    width = 3e6 * share[slots.timeline.subchannel]
    power = np.full(len(width), slots.uplink.power_max_w)
    slow = 1.5 * slots.effort.compute_seconds
    found = allocate(
        Rule("mine", lambda now: now.settled(bandwidth_hz=width, power_w=power, compute_seconds=slow)), slots
    )
    on = ~found.timeline.missed
    lasts = slots.uplink.seconds(width, power)[on]
    assert found.timeline.end[on] - found.timeline.start[on] == pytest.approx(lasts)
    assert found.upload_joules[on] == pytest.approx(lasts * slots.uplink.power_max_w)
    assert found.compute_joules[on] == pytest.approx(slots.effort.compute_joules[on] / 1.5**2)
    assert found.timeline.lower_bound <= found.timeline.makespan


def test_a_wider_sub_channel_by_hand():
    # paper-text: 1e-6 W of noise over any bandwidth, so twice the bandwidth is half the time at the same power
    slots = slots_of(devices=1, noise="paper-text", fading="none")
    found = allocate(Rule("mine", lambda now: now.settled(bandwidth_hz=np.array([2e6]))), slots)
    assert found.timeline.end - found.timeline.start == pytest.approx(slots.effort.upload_seconds / 2)
    assert found.upload_joules == pytest.approx(slots.effort.upload_joules / 2)
    assert found.compute_joules == pytest.approx(slots.effort.compute_joules)


# -------------------------------------------------------------------------------- what a rule may not do


def changed(**fields):
    """A rule that changes the planned timeline: each field becomes what a function makes of it."""

    def settle(slots):
        plain = fixed(slots)
        new = {name: change(getattr(slots.timeline, name)) for name, change in fields.items()}
        return replace(plain, timeline=replace(plain.timeline, **new))

    return settle


def at_once(slots):
    """Everybody as soon as it has computed, whether or not a sub-channel is free."""
    plain, start = fixed(slots), slots.timeline.ready
    end = start + slots.effort.upload_seconds
    return replace(plain, timeline=replace(plain.timeline, start=start, end=end, makespan=float(end.max())))


def powers(factor):
    return lambda slots: slots.settled(power_w=factor(slots.uplink) * np.ones(len(slots.timeline.device)))


def widths(hertz):
    return lambda slots: slots.settled(bandwidth_hz=np.full(len(slots.timeline.device), hertz))


BROKEN = {
    "nothing": (lambda slots: None, "must give an Allocation, not a NoneType"),
    "timeline": (lambda slots: slots.timeline, "must give an Allocation, not a Timeline"),
    "twice": (changed(device=lambda ids: np.where(ids == 1, 0, ids)), "must name devices"),
    "backwards": (changed(device=lambda ids: ids[::-1]), "each once and in this order"),
    "short": (changed(device=lambda ids: ids[:-1]), "must name devices"),
    "no starts": (changed(start=lambda start: start[:3]), r"timeline.start must have the shape \(8,\), not \(3,\)"),
    "missing": (changed(missed=lambda missed: missed | (np.arange(8) == 2)), "exactly those devices upload"),
    "free": (lambda slots: replace(fixed(slots), upload_joules=-np.ones(8)), "upload_joules must be one finite"),
    "unknown": (lambda slots: replace(fixed(slots), compute_joules=np.full(8, np.nan)), "compute_joules must be one"),
    "few": (lambda slots: replace(fixed(slots), compute_joules=np.ones(3)), "for each of 8 devices"),
    "hasty": (changed(start=lambda start: start / 2), "begins to upload before it has computed"),
    "reversed": (changed(end=lambda end: 0 * end), "ends its upload before it begins"),
    "endless": (changed(end=lambda end: end + np.inf), "finite beginning and end"),
    "wrong": (changed(makespan=lambda seconds: 2 * seconds), "but the last upload ends at"),
    "at once": (at_once, "devices upload at once on 3 sub-channels"),
    "racing": (changed(ready=lambda ready: ready / 100), "computes faster than it can"),
    "loud": (powers(lambda uplink: 2 * uplink.power_max_w), "sends louder than its limit"),
    "soft": (powers(lambda uplink: uplink.power_min_w / 2), "sends more softly than its limit"),
    "silent": (lambda slots: replace(fixed(slots), bandwidth_hz=np.zeros(8)), "must be one number above 0"),
    "wide": (widths(2e6), "of a bandwidth of 3e+06 Hz"),
    "one width": (lambda slots: replace(fixed(slots), bandwidth_hz=np.array([1e6])), "bandwidth_hz must be one number"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_that_breaks_its_contract_is_named_in_one_line(name):
    settle, complaint = BROKEN[name]
    with pytest.raises(UserError, match=complaint.replace("+", r"\+")) as caught:
        allocate(Rule(name, settle), slots_of())
    message = str(caught.value)
    assert message.startswith(f'scheduling.allocation = "{name}": ')
    assert "\n" not in message


def test_a_rule_may_not_end_after_the_deadline():
    slots = slots_of()
    slots = replace(slots, deadline=slots.timeline.makespan)
    allocate(find_rule("slack"), slots)
    softly = Rule("softly", powers(lambda uplink: uplink.power_min_w))
    with pytest.raises(UserError, match=r'allocation = "softly": device \d+ ends after the deadline'):
        allocate(softly, slots)


def test_who_waits_for_all_norms_cannot_begin_earlier():
    slots = slots_of()
    late = plan_timeline(np.arange(8), np.full(8, 50.0), slots.effort.upload_seconds, SUBCHANNELS, order="compute")
    waiting = Slots(late, slots.effort.of(late.device), SUBCHANNELS)
    with pytest.raises(UserError, match="computes faster than it can"):
        allocate(Rule("eager", changed(ready=lambda ready: 0.5 * ready)), waiting)


def test_an_edge_that_measures_cannot_tell_of_other_bandwidths():
    with pytest.raises(UserError, match=r'allocation = "mine": this edge measures how long uploads take'):
        allocate(Rule("mine", lambda slots: slots.settled()), replace(slots_of(), known_uplink=None))


# -------------------------------------------------------------------------------- finding rules


@pytest.fixture
def own_module(monkeypatch, tmp_path):
    """The name of a module in the folder the user stands in; what it registers is forgotten afterwards."""
    from fedclade.scheduling.allocation import rule as protocol

    monkeypatch.setattr(protocol, "_registry", dict(protocol._registry))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_rules", raising=False)
    (tmp_path / "own_rules.py").write_text(
        "from fedclade.scheduling import rule\n"
        "answer = 42\n"
        "def plain(slots):\n"
        "    return slots.settled()\n"
        "@rule('named', needs_limits=True)\n"
        "def registered(slots):\n"
        "    return slots.settled()\n"
    )
    return "own_rules"


def test_a_function_of_a_module_in_the_current_folder_is_a_rule(own_module):
    found = find_rule(f"{own_module}:plain")
    assert (found.name, found.needs_limits) == ("own_rules:plain", False)
    assert isinstance(allocate(found, slots_of()), Allocation)
    assert find_rule(f"{own_module}:registered") == find_rule("named")
    assert find_rule("named").needs_limits


@pytest.mark.usefixtures("own_module")
def test_a_registered_function_is_found_by_its_name():
    @rule("mine")
    def mine(slots):
        return fixed(slots)

    assert find_rule("mine") == Rule("mine", mine)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("slak", "no such rule; did you mean 'slack'?"),
        ("zzz", "known: boost, fixed, "),
        ("own_rules:answer", "must be a function of Slots"),
        ("own_rules:missing", "module 'own_rules' has no 'missing'"),
        ("no_such_module:first", "cannot import 'no_such_module'"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_a_rule_that_cannot_be_found_is_one_line_that_helps_before_anything_is_planned(name, complaint, monkeypatch):
    built_in = {name: find_rule(name) for name in ALLOCATIONS}  # other tests may have brought rules of their own
    monkeypatch.setattr(sys.modules[Rule.__module__], "_registry", built_in)
    with pytest.raises(UserError) as caught:
        Planner(SchedulingConfig(allocation=name), 1, SUBCHANNELS)
    message = str(caught.value)
    assert complaint in message
    assert f"scheduling.allocation = {name!r}".replace("'", '"') in message.replace("'", '"')
    assert "\n" not in message
