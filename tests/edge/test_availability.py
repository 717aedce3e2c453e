"""Devices that come and go: shares and stays are as asked for, and depend on seed and round alone."""

import numpy as np
import pytest

from fedclade import UserError
from fedclade import config as configuration
from fedclade.config import EdgeConfig
from fedclade.edge.availability import Presence


def presence(kind, share=0.8, rounds=5.0, devices=200, seed=1):
    config = EdgeConfig(availability=kind, availability_share=share, availability_rounds=rounds)
    return Presence(config, devices, seed)


def there(kind, **how):
    """Rounds × devices."""
    found = presence(kind, **how)
    return np.array([~found.away(round_) for round_ in range(1, 201)])


def test_by_default_everybody_is_always_there():
    assert there("always").all()


@pytest.mark.parametrize("kind", ["bernoulli", "markov"])
def test_devices_are_there_in_their_share_of_the_rounds(kind):
    # 40,000 draws: standard deviation 0.002 (Bernoulli), 0.005 with the chain's memory
    assert there(kind).mean() == pytest.approx(0.8, abs=0.02)
    assert there(kind, share=1.0).all()


def test_stays_last_as_long_as_asked_for_in_a_chain_and_are_memoryless_without():
    for kind, leaves in (("markov", 1 / 5), ("bernoulli", 0.2)):
        seen = there(kind, share=0.5 if kind == "markov" else 0.8)
        left = (seen[:-1] & ~seen[1:]).sum() / seen[:-1].sum()
        assert left == pytest.approx(leaves, abs=0.02)


@pytest.mark.parametrize("kind", ["bernoulli", "markov"])
def test_who_is_there_depends_on_seed_and_round_alone(kind):
    forward, one = presence(kind), presence(kind)
    seen = {round_: forward.away(round_) for round_ in (3, 4, 9)}
    for round_ in (9, 3, 4, 3):  # asked in any order, and again
        assert np.array_equal(one.away(round_), seen[round_])
    assert not np.array_equal(presence(kind, seed=2).away(3), seen[3])


def test_stays_too_short_for_the_share_are_refused():
    with pytest.raises(UserError, match=r"edge.availability_rounds = 2.0: must be at least 4 to be there in 0.8"):
        configuration.load({"edge": {"availability": "markov", "availability_rounds": 2.0}})


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9])
def test_so_many_devices_join_late_and_all_are_there_from_then_on(share):
    late = Presence(EdgeConfig(late_share=share, late_round=4), 20, seed=1)
    absent = [late.away(round_) for round_ in range(1, 7)]
    assert [int(away.sum()) for away in absent] == [round(20 * share)] * 3 + [0] * 3
    assert (absent[0] == absent[2]).all()
    if 0 < share < 1:
        other = Presence(EdgeConfig(late_share=share, late_round=4), 20, seed=2)
        assert (other.away(1) != absent[0]).any()


def test_a_device_that_joined_late_comes_and_goes_like_the_others():
    settings = {"availability": "bernoulli", "availability_share": 0.5}
    late, plain = (
        Presence(EdgeConfig(**settings, **more), 50, seed=3) for more in ({"late_share": 0.4, "late_round": 3}, {})
    )
    for round_ in range(1, 6):
        if round_ < 3:
            assert (late.away(round_) >= plain.away(round_)).all()
            assert late.away(round_).sum() > plain.away(round_).sum()
        else:
            np.testing.assert_array_equal(late.away(round_), plain.away(round_))
