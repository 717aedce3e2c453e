"""Cuts of devices that differ one by one: those in which every device is helped more by its own side than by the other.

Be help[k, m] how much device m's training helps device k, a gain in misfit over all images of k. A device's preference
for its side of a cut is the help of the others on its side, less the help of those on the other side. Groups show in it
even where each device has a hand of its own: then *all* prefer their side, by about as much. In a crowd some do, and
those in the middle do not, however it is cut. So a cut is judged by how consistent its devices' preferences are: their
mean over their standard deviation.
"""

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Bools, Floats, Ints

NOTHING = 1e-9


def consistent_cuts(
    gains: Floats, asked: Floats, images: Ints, min_size: int, settings: CrossEvaluationConfig
) -> list[Bools]:
    """The cuts that devices prefer most consistently, best first; each is membership in the second child.

    ``gains``: row's gain by column's training, added up over surveys; ``asked``: in how many surveys, 0 on the
    diagonal; ``images``: of each device, by which its training counts in a common model and its opinion beside others.
    The search begins with the branches of average linkage; the best are climbed, one device at a time. Of many devices
    those are cut whose training is known best; the others then join the side that helps them more.
    """
    core = np.sort(np.argsort(-asked.sum(axis=0), kind="stable")[: settings.survey_columns])
    help_, weight = gains / np.maximum(asked, NOTHING), np.where(asked > 0, images.astype(np.float64), 0.0)
    sure = images / (images + settings.sure_images)
    tables = help_[np.ix_(core, core)], weight[np.ix_(core, core)], sure[core]
    starts = _branches(tables[0], tables[1] > 0)
    starts = starts[_large_enough(starts, min_size)]
    if len(starts) == 0 or not weight.any():
        return []
    best = np.argsort(-consistency(starts, *tables), kind="stable")[: settings.cuts_tried]
    climbed = {side.tobytes(): side for side in (_climbed(starts[row], min_size, *tables) for row in best)}
    sides = np.stack(list(climbed.values()))
    sides = sides[np.argsort(-consistency(sides, *tables), kind="stable")]
    joined = preferences(sides, help_[:, core], weight[:, core]) > 0
    joined[:, core] = sides
    return [*joined[_large_enough(joined, min_size)]]


def preferences(sides: Bools, help_: Floats, weight: Floats) -> Floats:
    """For each cut (row) and device, how much more it is helped by the second side than by the first."""
    second = sides.T.astype(np.float64)
    pull, mass = (help_ * weight) @ second, weight @ second
    everything, total = (help_ * weight).sum(axis=1)[:, None], weight.sum(axis=1)[:, None]
    by_first = (everything - pull) / np.maximum(total - mass, NOTHING)
    known = (mass > NOTHING) & (total - mass > NOTHING)
    return np.asarray(np.where(known, pull / np.maximum(mass, NOTHING) - by_first, 0.0).T)


def consistency(sides: Bools, help_: Floats, weight: Floats, sure: Floats) -> Floats:
    """How consistently the devices prefer their side of each cut (row): mean over deviation, by how sure each is."""
    prefer = np.where(sides, 1.0, -1.0) * preferences(sides, help_, weight)
    share = sure / sure.sum()
    mean = prefer @ share
    return np.asarray(mean / np.sqrt(np.maximum((prefer - mean[:, None]) ** 2 @ share, NOTHING**2)))


def kinship(gains: Floats, asked: Floats, closest: float) -> float:
    """How many times as much devices are helped by those who help them most, a share of all, as by all on average.

    So much more would training with one's own kind do than training with everybody: at most as if others did nothing.
    """
    rows = [row[told > 0] / told[told > 0] for row, told in zip(gains, asked, strict=True) if told.any()]
    by_all = float(np.mean([row.mean() for row in rows])) if rows else 0.0
    if by_all <= 0:
        return 1.0
    by_closest = np.mean([np.sort(row)[-max(1, round(closest * len(row))) :].mean() for row in rows])
    return min(float(by_closest) / by_all, 1 / closest)


def _branches(help_: Floats, known: Bools) -> Bools:
    """Every branch of the tree that average linkage makes of mutual help, as a cut; device 0 is in the first child."""
    count = len(help_)
    if count < 2:
        return np.zeros((0, count), dtype=bool)
    times = known.astype(np.float64) + known.T
    mutual = (help_ * known + (help_ * known).T) / np.maximum(times, 1)
    mutual = np.where(times > 0, mutual, np.median(mutual[times > 0]) if times.any() else 0.0)
    apart = mutual.max() - mutual
    np.fill_diagonal(apart, 0.0)
    branches = [*np.eye(count, dtype=bool)]
    for first, second, *_ in linkage(squareform(apart, checks=False), "average"):
        branches.append(branches[int(first)] | branches[int(second)])
    sides = np.stack(branches)
    return np.asarray(np.where(sides[:, :1], ~sides, sides))


def _climbed(side: Bools, min_size: int, help_: Floats, weight: Floats, sure: Floats) -> Bools:
    """The cut after moving one device after another, as long as that makes it more consistent."""
    now = consistency(side[None], help_, weight, sure)[0]
    while True:
        others = side ^ np.eye(len(side), dtype=bool)
        after = np.where(_large_enough(others, min_size), consistency(others, help_, weight, sure), -np.inf)
        best = int(after.argmax())
        if not after[best] > now + NOTHING:
            return np.asarray(~side if side[0] else side)
        side, now = others[best], after[best]


def _large_enough(sides: Bools, min_size: int) -> Bools:
    """Whether both children of each cut (row) are."""
    second = sides.sum(axis=1)
    return np.asarray(np.minimum(second, sides.shape[1] - second) >= min_size)
