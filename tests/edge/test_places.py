"""Devices that move, and shadowing: in their bounds, at their speeds, and functions of seed and round alone."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedclade import UserError
from fedclade.config import EdgeConfig, load
from fedclade.edge import SimulatedEdge
from fedclade.edge.devices import draw_devices
from fedclade.edge.places import Places, RandomWaypoint, Serving, Shadowing, stations


def places_of(devices=20, seed=1, **settings):
    config = EdgeConfig(mobility="random-waypoint", **settings)
    return Places(config, draw_devices(config, devices, seed).distance_m, seed)


def edge_of(devices=20, seed=1, **settings):
    config = load({"run": {"seed": seed}, "edge": settings})
    return SimulatedEdge(config, np.full(devices, 100), 28 * 28 * 8, 1000)


# -------------------------------------------------------------------------------- movement

walks = st.fixed_dictionaries(
    {
        "speed_min_mps": st.floats(0.1, 2.0),
        "speed_max_mps": st.floats(2.0, 40.0),
        "pause_seconds": st.just(0.0) | st.floats(0.0, 200.0),
        "mobility_seconds": st.floats(0.1, 300.0),
        "distance_min_m": st.floats(1.0, 50.0),
        "distance_max_m": st.floats(50.0, 500.0),
    }
)


@given(walks, st.integers(1, 6), st.integers(0, 99))
def test_devices_stay_in_the_cell_and_keep_to_their_speed(settings, devices, seed):
    places = places_of(devices, seed, **settings)
    position = [places.positions(round_) for round_ in range(1, 20)]
    assert max(np.hypot(*at.T).max() for at in position) <= settings["distance_max_m"] * (1 + 1e-9)
    assert min(places.distance_m(round_).min() for round_ in range(1, 20)) >= settings["distance_min_m"]
    moved = np.array([np.hypot(*(there - here).T) for here, there in pairwise(position)])
    assert (moved <= settings["speed_max_mps"] * settings["mobility_seconds"] * (1 + 1e-9)).all()


@given(walks, st.permutations(range(1, 12)))
def test_a_place_depends_on_seed_and_round_alone(settings, order):
    forward, any_order = places_of(4, **settings), places_of(4, **settings)
    seen = {round_: forward.positions(round_) for round_ in range(1, 12)}
    for round_ in order:
        assert np.array_equal(any_order.positions(round_), seen[round_])
        assert np.array_equal(places_of(4, **settings).positions(round_), seen[round_])
    fewer = places_of(2, **settings)
    assert np.array_equal(fewer.positions(9), seen[9][:2])  # who else there is does not matter


def test_one_way_by_hand():
    config = EdgeConfig(mobility="random-waypoint", speed_min_mps=2.0, speed_max_mps=2.0, pause_seconds=5.0)
    walk = RandomWaypoint(config, np.array([[30.0, 0.0]]), seed=3)
    path = np.array([walk.positions(second / 4)[0] for second in range(4000)])
    assert path[0].tolist() == [30.0, 0.0]
    steps = np.hypot(*np.diff(path, axis=0).T)
    resting = steps < 1e-12
    # 2 m/s is half a metre in a quarter of a second, but for the quarters in which it arrives, sets off or rests
    assert np.isclose(steps[~resting], 0.5).mean() > 0.9
    assert steps.max() <= 0.5 + 1e-9
    # it rests five seconds, twenty quarters, at each place (one more or less where it arrives between two of them)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], resting.astype(int), [0]])))
    rests = np.diff(edges)[::2]
    assert len(rests) > 5
    assert set(rests[:-1].tolist()) <= {19, 20}


def test_with_time_devices_come_everywhere():
    places = places_of(50)
    distance = np.array([places.distance_m(round_) for round_ in range(1, 200)])
    assert ((distance.max(axis=0) > 60) & (distance.min(axis=0) < 60)).all()
    assert (np.ptp(distance, axis=0) > 20).all()


def test_by_default_nobody_moves_and_nothing_is_in_the_way():
    plain, still = edge_of(), edge_of(fading="none")
    assert np.array_equal(still.observe(1).snr, still.observe(50).snr)
    assert np.array_equal(Places(EdgeConfig(), plain.devices.distance_m, 1).distance_m(7), plain.devices.distance_m)


def test_who_walks_away_is_heard_less():
    edge = edge_of(fading="none", mobility="random-waypoint", power_min_dbm=20.0)
    config = EdgeConfig(mobility="random-waypoint")
    places = Places(config, edge.devices.distance_m, 1)
    for round_ in (1, 10, 40):
        assert np.array_equal(np.argsort(edge.observe(round_).snr), np.argsort(-places.distance_m(round_)))


def test_speeds_the_wrong_way_round_are_refused():
    with pytest.raises(UserError, match=r"edge.speed_max_mps = 0.1: must be at least speed_min_mps = 0.5"):
        load({"edge": {"speed_max_mps": 0.1}})


# -------------------------------------------------------------------------------- shadowing


def shadowing_db(devices=4000, rounds=(1,), **settings):
    config = EdgeConfig(shadowing_db=8.0, **settings)
    places = Places(config, draw_devices(config, devices, 1).distance_m, 1)
    shadowing = Shadowing(config, places, devices, 1)
    return places, np.array([10 * np.log10(shadowing.gain(round_)) for round_ in rounds])


@pytest.mark.parametrize("mobility", ["none", "random-waypoint"])
def test_shadowing_is_normal_in_decibels_in_every_round(mobility):
    _, shadow = shadowing_db(mobility=mobility, rounds=(1, 5, 20))
    # 4,000 draws: standard deviation of the mean 0.13 dB, of the standard deviation 0.09 dB
    assert shadow.mean(axis=1) == pytest.approx([0.0] * 3, abs=0.5)
    assert shadow.std(axis=1) == pytest.approx([8.0] * 3, abs=0.4)


def test_who_stands_still_keeps_its_shadow():
    _, shadow = shadowing_db(rounds=(1, 2, 50))
    assert np.array_equal(shadow[0], shadow[1])
    assert np.array_equal(shadow[0], shadow[2])


def test_shadows_are_forgotten_with_the_way_gone():
    places, shadow = shadowing_db(mobility="random-waypoint", rounds=(1, 2), mobility_seconds=10.0)
    moved = np.hypot(*(places.positions(2) - places.positions(1)).T)
    near, far = moved < np.quantile(moved, 0.3), moved > np.quantile(moved, 0.7)
    for part in (near, far):
        expected = np.exp(-moved[part] / 50.0).mean()
        assert np.corrcoef(shadow[:, part])[0, 1] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("mobility", ["none", "random-waypoint"])
def test_links_with_shadows_and_movement_depend_on_seed_and_round_alone(mobility):
    settings = {"shadowing_db": 6.0, "mobility": mobility}
    forward = edge_of(**settings)
    seen = {round_: forward.observe(round_).snr for round_ in range(1, 10)}
    for round_ in (9, 2, 5):
        assert np.array_equal(forward.observe(round_).snr, seen[round_])
        assert np.array_equal(edge_of(**settings).observe(round_).snr, seen[round_])
    assert not np.array_equal(edge_of(seed=2, **settings).observe(5).snr, seen[5])
    assert np.array_equal(edge_of(7, **settings).observe(5).snr, seen[5][:7])


def test_shadowing_multiplies_the_gain_and_the_mean_rate_knows_it():
    dark, plain = edge_of(shadowing_db=6.0, fading="none").observe(3), edge_of(fading="none").observe(3)
    ratio_db = 10 * np.log10(dark.snr / plain.snr)
    assert 3.0 < ratio_db.std() < 9.0
    assert np.array_equal(dark.mean_rate_bps, dark.rate_bps)


# -------------------------------------------------------------------------------- several base stations


def test_stations_are_one_in_the_middle_and_the_others_on_a_circle():
    assert stations(EdgeConfig()).tolist() == [[0.0, 0.0]]
    four = stations(EdgeConfig(stations=5, station_distance_m=80.0))
    assert four == pytest.approx(np.array([[0, 0], [80, 0], [0, 80], [-80, 0], [0, -80]]), abs=1e-9)


def test_at_first_everybody_has_the_nearest_station_and_its_gain():
    one, three = edge_of(fading="none").observe(1), edge_of(fading="none", stations=3).observe(1)
    assert (three.snr >= one.snr).all()
    assert (three.snr > one.snr).any()
    assert np.array_equal(three.station == 0, three.snr == one.snr)
    assert one.station.tolist() == [0] * 20
    config = EdgeConfig(stations=3)
    places = Places(config, edge_of().devices.distance_m, 1)
    distance = np.array([places.distance_m(1, station) for station in range(3)])
    assert np.array_equal(three.station, distance.argmin(axis=0))


def test_a_device_is_handed_over_where_another_station_is_better_by_more_than_the_margin():
    gains_db = {1: [[0, -5]], 2: [[0, 2.9]], 3: [[0, 3.1]], 4: [[0, -2.9]], 5: [[0, -3.1]]}
    config = EdgeConfig(stations=2, handover_db=3.0, mobility="random-waypoint")
    serving = Serving(config, lambda round_: 10 ** (np.array(gains_db[round_]) / 10))
    assert [serving.station(round_).tolist() for round_ in (1, 2, 3, 4, 5)] == [[0], [0], [1], [1], [0]]
    assert serving.station(3).tolist() == [1]  # asked again, later


@given(st.integers(1, 5), st.floats(0.0, 12.0), st.integers(0, 30))
def test_nobody_keeps_a_station_that_is_worse_by_more_than_the_margin(count, margin, seed):
    settings = {"stations": count, "handover_db": margin, "mobility": "random-waypoint", "shadowing_db": 4.0}
    edge = edge_of(6, seed, fading="none", mobility_seconds=20.0, **settings)
    channel = edge._channel
    for round_ in (1, 2, 7, 5):
        links = edge.observe(round_)
        by_station = channel._by_station(round_)
        mine = by_station[np.arange(6), links.station]
        assert (mine * 10 ** (margin / 10) >= by_station.max(axis=1) * (1 - 1e-9)).all()
        assert links.uplink.gain == pytest.approx(mine)
        if round_ > 1:
            assert np.array_equal(
                links.station_before, edge_of(6, seed, **settings, mobility_seconds=20.0).observe(round_ - 1).station
            )


def test_a_wide_margin_means_fewer_handovers():
    def handovers(margin):
        edge = edge_of(stations=4, mobility="random-waypoint", handover_db=margin)
        rounds = [edge.observe(round_) for round_ in range(1, 40)]
        return sum(int((links.station != links.station_before).sum()) for links in rounds)

    assert handovers(0.0) > handovers(6.0) > handovers(60.0) == 0
