"""Devices that come and go: who is there in which round."""

from fedclade.config import EdgeConfig
from fedclade.core.arrays import Bools
from fedclade.core.random import generator


class Presence:
    """A function of seed and round; the last answer is kept, because a Markov chain is worked out from its past."""

    def __init__(self, config: EdgeConfig, devices: int, seed: int) -> None:
        self._config, self._devices, self._seed = config, devices, seed
        self._round, self._away = 0, self._drawn(0, 1.0 - config.availability_share)
        self._late = generator(seed, "late").permutation(devices) < round(config.late_share * devices)

    def away(self, round_: int) -> Bools:
        """Who is not there in a round (from 1): not yet, or not just now."""
        late = self._config.late_share > 0 and round_ < self._config.late_round
        return self._absent(round_) | self._late if late else self._absent(round_)

    def _absent(self, round_: int) -> Bools:
        config = self._config
        if config.availability == "always":
            return self._drawn(0, 0.0)
        absence = 1.0 - config.availability_share
        if config.availability == "bernoulli":
            return self._drawn(round_, absence)
        if round_ < self._round:
            self._round, self._away = 0, self._drawn(0, absence)
        leaves = 1.0 / config.availability_rounds
        stays_away = 1.0 - leaves * config.availability_share / absence if absence > 0 else 0.0
        while self._round < round_:
            self._round += 1
            here, gone = self._drawn(self._round, leaves if absence > 0 else 0.0), self._drawn(self._round, stays_away)
            self._away = (~self._away & here) | (self._away & gone)
        return self._away

    def _drawn(self, round_: int, chance: float) -> Bools:
        return generator(self._seed, "availability", round_).random(self._devices) < chance
