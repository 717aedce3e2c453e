"""Where devices are, what stands in the way, and which base station serves them.

Movement (random waypoint), shadowing (log-normal) and hand-over are functions of seed and round. The last answer is
kept, because each is worked out from its past; whoever asks for an earlier round, or goes on with an interrupted run,
gets the same numbers.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedclade.config import EdgeConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.random import generator


class Places:
    """Positions in metres, K×2, with the first base station in the middle; devices stand still, or walk.

    ``distance_m`` is where each device is at first; in which direction is drawn.
    """

    def __init__(self, config: EdgeConfig, distance_m: Floats, seed: int) -> None:
        self._config = config
        angle = generator(seed, "angle").uniform(0.0, 2 * np.pi, len(distance_m))
        self._first, self._distance_m = _at(distance_m, angle), distance_m
        self._walk = RandomWaypoint(config, self._first, seed) if config.mobility == "random-waypoint" else None

    def positions(self, round_: int) -> Floats:
        """In a round (from 1)."""
        if self._walk is None:
            return self._first
        return self._walk.positions((round_ - 1) * self._config.mobility_seconds)

    def distance_m(self, round_: int, station: int = 0) -> Floats:
        """To a base station, which nobody comes nearer to than the nearest device may stand."""
        if self._walk is None and station == 0:
            return self._distance_m
        away = self.positions(round_) - stations(self._config)[station]
        return np.asarray(np.maximum(np.hypot(*away.T), self._config.distance_min_m))


class RandomWaypoint:
    """Everybody walks straight to a place drawn at random, at a speed drawn for the way, rests, and walks on."""

    def __init__(self, config: EdgeConfig, start: Floats, seed: int) -> None:
        self._config, self._start, self._seed = config, start, seed
        self._restart()

    def _restart(self) -> None:
        """Begin again at time 0."""
        none = np.zeros(len(self._start))
        self._drawn, self._passed = 0, 0.0
        self._legs = deque([_Leg(self._start, self._start, none, none, none)])

    def positions(self, seconds: float) -> Floats:
        """At a time from 0."""
        if seconds < self._passed:
            self._restart()
        while (self._legs[-1].until <= seconds).any():
            self._legs.append(self._next())
        while (self._legs[0].until <= seconds).all():
            self._legs.popleft()
        self._passed = seconds
        place = self._legs[-1].at(seconds)
        for leg in reversed(self._legs):  # everybody is on its first leg that is not over yet
            place = np.where((leg.until > seconds)[:, None], leg.at(seconds), place)
        return place

    def _next(self) -> "_Leg":
        """The way from where the last leg ends; draws are keyed by the leg, one kind of draw a generator."""
        config, last, count = self._config, self._legs[-1], len(self._start)
        self._drawn += 1
        ranges = {
            "waypoint-distance": (config.distance_min_m, config.distance_max_m),
            "waypoint-angle": (0.0, 2 * np.pi),
            "waypoint-speed": (config.speed_min_mps, config.speed_max_mps),
        }
        distance, angle, speed = (
            generator(self._seed, purpose, self._drawn).uniform(*between, count) for purpose, between in ranges.items()
        )
        target = _at(distance, angle)
        arrives = last.until + np.hypot(*(target - last.target).T) / speed
        return _Leg(last.target, target, last.until, arrives, arrives + config.pause_seconds)


@dataclass(frozen=True)
class _Leg:
    """One way of every device: from where to where, and when it departs, arrives and has rested."""

    origin: Floats
    target: Floats
    departs: Floats
    arrives: Floats
    until: Floats

    def at(self, seconds: float) -> Floats:
        lasts = self.arrives - self.departs
        share = np.divide(seconds - self.departs, lasts, out=np.ones_like(lasts), where=lasts > 0)
        return self.origin + np.clip(share, 0.0, 1.0)[:, None] * (self.target - self.origin)


class Shadowing:
    """What obstacles add to or take from each link, in dB: normal with mean 0, new where a device has moved.

    After ``shadowing_distance_m`` metres the correlation with what it was before has fallen to 1/e (Gudmundson 1991).
    Shadows towards different base stations have nothing to do with each other.
    """

    def __init__(self, config: EdgeConfig, places: Places, count: int, seed: int, station: int = 0) -> None:
        self._config, self._places, self._count, self._seed = config, places, count, seed
        self._purpose = "shadowing" if station == 0 else f"shadowing-{station}"
        self._restart()

    def _restart(self) -> None:
        self._round, self._shadow, self._here = 1, self._drawn(1), self._places.positions(1)

    def gain(self, round_: int) -> Floats:
        """As a factor of the link's power gain, in a round (from 1)."""
        if round_ < self._round:
            self._restart()
        while self._round < round_ and self._config.mobility != "none":
            self._round += 1
            there = self._places.positions(self._round)
            kept = np.exp(-np.hypot(*(there - self._here).T) / self._config.shadowing_distance_m)
            self._shadow = kept * self._shadow + np.sqrt(1.0 - kept**2) * self._drawn(self._round)
            self._here = there
        return np.asarray(10.0 ** (self._shadow / 10.0))

    def _drawn(self, round_: int) -> Floats:
        return generator(self._seed, self._purpose, round_).normal(0.0, self._config.shadowing_db, self._count)


class Serving:
    """Which base station serves each device: at first the one it reaches best.

    A device is handed over to the best one of a round where that is better by more than ``handover_db``; so a device
    between two stations does not go to and fro. ``gains`` gives the gains of a round, K×S, without fading.
    """

    def __init__(self, config: EdgeConfig, gains: Callable[[int], Floats]) -> None:
        self._gains, self._margin = gains, 10.0 ** (config.handover_db / 10.0)
        self._moves = config.mobility != "none"
        self._restart()

    def _restart(self) -> None:
        self._round, self._station = 1, self._gains(1).argmax(axis=1)

    def station(self, round_: int) -> Ints:
        """In a round (from 1)."""
        if round_ < self._round:
            self._restart()
        while self._round < round_ and self._moves:
            self._round += 1
            gains, everyone = self._gains(self._round), np.arange(len(self._station))
            best = gains.argmax(axis=1)
            better = gains[everyone, best] > self._margin * gains[everyone, self._station]
            self._station = np.where(better, best, self._station)
        return np.asarray(self._station)


def stations(config: EdgeConfig) -> Floats:
    """Where the base stations are, S×2 in metres: one in the middle, the others evenly on a circle."""
    around = config.stations - 1
    angle = 2 * np.pi * np.arange(around) / max(around, 1)
    return np.concatenate([np.zeros((1, 2)), _at(np.full(around, config.station_distance_m), angle)])


def _at(distance_m: Floats, angle: Floats) -> Floats:
    return np.stack([distance_m * np.cos(angle), distance_m * np.sin(angle)], axis=1)
