"""Two groups, or one crowd cut in two? What the devices' pairwise answers say of a cut.

Devices that differ one by one, as writers do, can always be cut so that those who are alike come together; with enough
of them that is as certain as can be, and yet there are no groups. Between groups there is a *gap*. So a cut is judged
by its *separation*: how far apart its two sides are in whom their devices lean to, in standard deviations of the
devices of one side. It has no unit and does not grow with the number of devices or rounds, and nobody judges a model
with a part of its own in it. ``crowd`` says how separate the two halves of one crowd look, cut where it is thinnest.

All functions take the mutual signal and weight of pairs (``affinity.mutual``).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from scipy.special import ndtr

from fedclade.core.arrays import Bools, Floats, Singles
from fedclade.core.random import generator

NOTHING = 1e-9
LEAST_SHARED = 0.25  # of what devices of one side differ by, at least so much is taken to be real
CROWDS = 4000


def separations(sides: Bools, signal: Floats, weight: Floats) -> Floats:
    """The separation of each cut (row of ``sides``: membership in the second side), as it looks by these answers."""
    known, leaning = _leanings(sides, signal, weight)
    return _apart(leaning, sides.T, known)


def true_separation(side: Bools, seen: tuple[Floats, Floats], held_out: tuple[Floats, Floats]) -> float:
    """The separation of a cut as it would be without the noise of the images on which devices judge models.

    By two sets of images, those trained on and the held-out ones: their noise has nothing to do with each other, so
    what the devices of one side differ by in both is real. (This is the correction for attenuation.)
    """
    (known, one), (also, other) = (_leanings(side[None], *tables) for tables in (seen, held_out))
    known, column = known & also, side[:, None]
    apart = [max(0.0, float(_apart(each, column, known)[0])) for each in (one, other)]
    within = [(each - np.where(column, *_means(each, column, known))) * known for each in (one, other)]
    shared = (within[0] * within[1]).sum() / max(np.sqrt(np.prod([(each**2).sum() for each in within])), NOTHING)
    return float(np.sqrt(apart[0] * apart[1] / max(shared, LEAST_SHARED)))


def _leanings(sides: Bools, signal: Floats, weight: Floats) -> tuple[Bools, Floats]:
    """How far each device (row) leans to the second side of each cut (column), after where that is known.

    By its mean signal with that side's devices, less that with the first side's.
    """
    to_second, mass = signal @ sides.T, weight @ sides.T
    everything, total = signal.sum(axis=1)[:, None], weight.sum(axis=1)[:, None]
    known = (mass > NOTHING) & (total - mass > NOTHING)
    leaning = to_second / np.maximum(mass, NOTHING) - (everything - to_second) / np.maximum(total - mass, NOTHING)
    return known, leaning


def _means(values: Floats, second: Bools, known: Bools) -> tuple[Floats, Floats]:
    """Of the second side and of the first, for each column."""
    of_second, of_first = (
        (values * side).sum(axis=0) / np.maximum(side.sum(axis=0), 1) for side in (second & known, ~second & known)
    )
    return of_second, of_first


def _apart(values: Floats, second: Bools, known: Bools) -> Floats:
    """Difference of the means of both sides over the standard deviation within them, for each column."""
    of_second, of_first = _means(values, second, known)
    squares = ((values - np.where(second, of_second, of_first)) ** 2 * known).sum(axis=0)
    within = np.sqrt(squares / np.maximum(known.sum(axis=0) - 2, 1))
    some = (second & known).any(axis=0) & (~second & known).any(axis=0)
    return np.asarray(np.where(some, (of_second - of_first) / np.maximum(within, NOTHING), -np.inf))


@lru_cache(maxsize=256)
def crowd(devices: int, min_size: int, level: float) -> float:
    """The separation that one crowd, spread evenly and cut where it is thinnest, exceeds with probability ``level``.

    Few devices have wide gaps between them by chance; many have none. Worked out by drawing crowds.
    """
    if devices < 2 * min_size:
        return np.inf
    points = np.sort(generator(0, "crowd", devices).random((CROWDS, devices)), axis=1)
    sums, squares = np.cumsum(points, axis=1), np.cumsum(points**2, axis=1)
    first = np.arange(min_size, devices - min_size + 1)
    second = devices - first
    low, high = sums[:, first - 1] / first, (sums[:, -1:] - sums[:, first - 1]) / second
    within = squares[:, -1:] - first * low**2 - second * high**2
    best = ((high - low) / np.sqrt(np.maximum(within, NOTHING**2) / max(1, devices - 2))).max(axis=1)
    return float(np.quantile(best, 1.0 - level))


def improved(side: Bools, signal: Floats, weight: Floats, min_size: int) -> Bools:
    """A cut after moving one device at a time as long as the separation grows."""
    best, flips = float(separations(side[None], signal, weight)[0]), np.eye(len(side), dtype=bool)
    while True:
        moved = side ^ flips
        large = np.minimum(moved.sum(axis=1), (~moved).sum(axis=1)) >= min_size
        found = np.where(large, separations(moved, signal, weight), -np.inf)
        device = int(found.argmax())
        if not found[device] > best + NOTHING:
            return side
        side, best = moved[device], float(found[device])


def chance(side: Bools, signal: Floats, weight: Floats, deals: int, random: np.random.Generator) -> float:
    """How likely a cut agrees so well with the signal if devices are dealt to sides of these sizes at random.

    The agreement (t-value of being on one side, but for a factor) is compared with that of random deals, by their mean
    and standard deviation, but is not thought to be rarer than one in the number of ways to deal devices so.
    """
    drawn = np.stack([side, *(random.permutation(side) for _ in range(deals))])
    agreement = _agreements(np.where(drawn, 1.0, -1.0), signal, weight)
    mean, spread = agreement[1:].mean(), agreement[1:].std()
    if spread <= NOTHING:
        return 1.0
    return max(float(ndtr(-(agreement[0] - mean) / spread)), 1 / comb(len(side), int(side.sum())))


def _agreements(signs: Floats, signal: Floats, weight: Floats) -> Floats:
    """x'Sx for each row x of ±1, over the root of what the weights let it vary."""
    total, pulls = np.maximum(weight.sum(axis=1), NOTHING), signs @ weight
    agreed = ((signs @ signal) * signs).sum(axis=1)
    together = (pulls * signs).sum(axis=1)
    spread = total.sum() - 2 * (pulls**2 / total).sum(axis=1) + together**2 / total.sum()
    return np.asarray(agreed / np.sqrt(np.maximum(spread, NOTHING)))


def matched_halves(likeness: Singles, random: np.random.Generator) -> Bools:
    """A random cut in halves that no groups show in: of two devices that are most alike, one comes to either half."""
    waiting, second = random.permutation(len(likeness)).tolist(), np.zeros(len(likeness), dtype=bool)
    while len(waiting) > 1:
        device = waiting.pop()
        partner = max(waiting, key=lambda other: likeness[device, other])
        waiting.remove(partner)
        second[random.choice([device, partner])] = True
    return second


@dataclass(frozen=True)
class Help:
    """How much good the training of some devices does to others of them, in misfit; both tables are times weight."""

    effect: Floats  # of a column's model on a row's device, beyond what the classes and either of them explain
    gain: Floats  # by a column's model over the one all started from
    weight: Floats
    usual: float = 0.0  # what devices have done for each other at other times

    def within(self, side: Bools) -> float:
        """The good that devices of one side do each other, mean over the sides."""
        return self._mean(self.gain, side, same=True)

    def lost(self, side: Bools) -> float:
        """Of the good that devices of one side do each other, the share that does not reach those of the other side.

        Measured by the most they ever did (``usual``): late in a training nobody helps anybody much, and any
        difference would look large beside that.
        """
        difference = self._mean(self.effect, side, same=True) - self._mean(self.effect, side, same=False)
        return float(np.clip(difference / max(self.within(side), self.usual, NOTHING), 0.0, 1.0))

    def _mean(self, table: Floats, side: Bools, *, same: bool) -> float:
        pairs = (side[:, None] == side) == same
        means = [(table * pairs)[of].sum() / max((self.weight * pairs)[of].sum(), NOTHING) for of in (side, ~side)]
        return float(sum(means)) / 2
