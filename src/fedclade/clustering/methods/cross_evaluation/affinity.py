"""Affinity: whose training helps whom.

Updates tell a device's labels before anything else, so their similarity mostly groups devices by labels. The devices
themselves can tell better: each looks at every other one's model, a part of the way from the common one
(``survey_step``), and answers with its misfit class by class. A model may be good or bad at a class, and a device's
images of a class may be easy or hard; what is left beyond both says whether the two are of one kind. As a rule it
does so from round 1 on.

With misfit[k, m, c] of device k's images of class c under device m's model, weighted by √(images of c in k · in m):

    -misfit[k, m, c] = a[k, c] + b[m, c] + δ · (k and m are of one kind) + noise

``strength`` is the t-value of δ, but for a factor, if groups are right; ``affinity_cut`` looks for groups that are
likely. Where devices differ one by one, cuts come from their plain gains, see ``preference``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from scipy.special import gammaln

from fedclade.clustering.trust import contradicted
from fedclade.config import CrossEvaluationConfig
from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.fleet.answers import Survey

DEFAULTS = CrossEvaluationConfig()
TABLES = ("signal", "weight", "gains", "asked")  # what is kept of every pair of devices


@dataclass(frozen=True)
class Affinity:
    """What all devices said so far of one another's models."""

    signal: Singles  # K × K: row's gain by column's model beyond what classes explain, times weight
    weight: Singles
    gains: Singles  # K × K: row's gain by column's training over all its images, added up over surveys
    asked: Singles  # K × K: surveys in which the row told that, the last ones counting most
    samples: Ints  # K × classes, as the devices told; 0: not known yet
    harm: Ints  # K: surveys in which a device's training harmed all who were asked, since it last helped half of them
    doubted: Bools  # K: whose word is the reverse of the others': it does not count

    @classmethod
    def unknown(cls, devices: int, classes: int) -> "Affinity":
        """Before anybody was asked."""
        nothing = np.zeros((devices, devices), dtype=np.float32)
        counts = np.zeros((devices, classes), dtype=np.int64)
        nobody = np.zeros(devices, dtype=bool)
        return cls(nothing, nothing, nothing, nothing, counts, np.zeros(devices, dtype=np.int64), nobody)

    def grown(self, more: int) -> "Affinity":
        """With room for devices that came since."""
        samples, harm = np.pad(self.samples, ((0, more), (0, 0))), np.pad(self.harm, (0, more))
        tables = {name: np.pad(getattr(self, name), (0, more)) for name in TABLES}
        return Affinity(**tables, samples=samples, harm=harm, doubted=np.pad(self.doubted, (0, more)))

    def told(self, devices: Ints, samples: Ints) -> "Affinity":
        """With the label counts of devices that answered."""
        counts = self.samples.copy()
        counts[devices] = np.where(samples.any(axis=1, keepdims=True), samples, counts[devices])
        return replace(self, samples=counts)

    def heard(
        self,
        devices: Ints,
        columns: Ints,
        survey: Survey,
        theirs: Ints | None = None,
        settings: CrossEvaluationConfig = DEFAULTS,
        fresh: Bools | None = None,
    ) -> "Affinity":
        """With what the devices said of the columns' models; the last model is the one that all started from.

        ``theirs``: images by class that each model was trained on, if those are not what the devices told here;
        ``fresh``: which of them were trained in this round, if not all: plain gains by others are not kept.
        """
        known, others = self.told(devices, survey.samples), devices[:, None] != columns
        theirs = known.samples[columns] if theirs is None else theirs
        harm, worse = known.harm.copy(), harmful(survey, theirs, others, settings)
        helps, lying = helpful(survey, theirs, others), self.doubted[columns]  # less harm once clears nobody
        if worse is not None:
            harm[columns] = np.where(helps & ~worse & ~lying, 0, harm[columns])  # nor is a liar cleared by chance
        harm[columns] += (lying & ~helps) if worse is None else worse | (lying & ~helps)
        plain = _plain_gains(survey, others if fresh is None else others & fresh)
        said = (*beyond_classes(survey, theirs, others, settings.affinity_fits), *plain)
        here, tables = np.ix_(devices, columns), dict[str, Singles]()
        for name, new in zip(TABLES, said, strict=True):
            table = getattr(self, name).copy()
            table[here] = settings.affinity_kept * table[here] + new
            tables[name] = table
        doubted = contradicted(tables["signal"], tables["weight"], settings.contradiction, self.doubted)
        return Affinity(**tables, samples=known.samples, harm=harm, doubted=doubted)

    def doubting(self, devices: Sequence[int]) -> "Affinity":
        """With devices whose word does not count any more."""
        return replace(self, doubted=self.doubted | np.isin(np.arange(len(self.doubted)), devices))

    def harmful(self, settings: CrossEvaluationConfig = DEFAULTS) -> Bools:
        """Whose training makes things worse, again and again; of those who are not believed, who once helped few."""
        return self.harm >= np.where(self.doubted, 1, settings.harm_surveys)

    def likeness(self, devices: Ints, settings: CrossEvaluationConfig = DEFAULTS) -> Singles:
        """How much more the training of two devices helps each other than it helps all; 1 is the most there is."""
        close = _closeness(*self.pairs(devices, settings))
        np.fill_diagonal(close, 0.0)
        close /= max(np.abs(close).max(), 1e-12)
        np.fill_diagonal(close, 1.0)
        return np.asarray(close, dtype=np.float32)

    def most_alike(self, devices: Ints, least: int, settings: CrossEvaluationConfig = DEFAULTS) -> Ints:
        """The largest of some devices' likely groups, and of this one's, and so on, while there may be two in it."""
        while len(devices) >= 2 * least:
            labels = likely_groups(*self.pairs(devices, settings), 1, settings)
            largest = devices if labels is None else devices[labels == np.bincount(labels).argmax()]
            if not least <= len(largest) < len(devices):
                break
            devices = largest
        return devices

    def plain(self, devices: Ints) -> tuple[Floats, Floats]:
        """Gains by one another's training, added up over surveys, and in how many; of some devices."""
        pair, believed = np.ix_(devices, devices), ~self.doubted[devices][:, None]
        return self.gains[pair].astype(np.float64) * believed, self.asked[pair].astype(np.float64) * believed

    def pairs(self, devices: Ints, settings: CrossEvaluationConfig = DEFAULTS) -> tuple[Floats, Floats]:
        """Mutual signal and weight between some devices."""
        pair = np.ix_(devices, devices)
        believed = ~self.doubted[devices][:, None]
        signal, weight = (np.where(believed, table[pair], 0.0) for table in (self.signal, self.weight))
        return mutual(signal, weight, settings.affinity_fits)


def beyond_classes(
    survey: Survey, theirs: Ints, others: Bools, fits: int = DEFAULTS.affinity_fits
) -> tuple[Floats, Floats]:
    """Gain of each device by each model beyond the effects of device and class, and of model and class; weight.

    The survey's last model is the one that all others were made from. ``theirs``: images by class that each model was
    trained on; ``others``: where the model is not the device's own.
    """
    gains, weights = survey.misfit[:, -1:] - survey.misfit[:, :-1], _in_common(survey, theirs, others)
    of_rows, of_columns = (np.maximum(weights.sum(axis=axis), 1e-9) for axis in (1, 0))
    columns = np.zeros_like(of_columns)
    for _ in range(fits):
        rows = (weights * (gains - columns)).sum(axis=1) / of_rows
        columns = (weights * (gains - rows[:, None])).sum(axis=0) / of_columns
    left = gains - rows[:, None] - columns
    spread = np.sqrt((weights * left**2).sum(axis=(0, 2)) / np.maximum(weights.sum(axis=(0, 2)), 1e-9))
    nothing = 1e-9 * np.abs(gains).max(initial=1e-200)  # but rounding
    scale = np.where(spread > nothing, 1 / np.maximum(spread, nothing), 0.0)
    return (weights * left).sum(axis=2) * scale, weights.sum(axis=2)


def _plain_gains(survey: Survey, others: Bools) -> tuple[Floats, Floats]:
    """Gain of each device by each model over all its images, and whether it was asked: not of its own model."""
    images = survey.samples.sum(axis=1)
    gains = (survey.samples[:, None] * (survey.misfit[:, -1:] - survey.misfit[:, :-1])).sum(axis=2)
    asked = others & (images > 0)[:, None]
    return gains / np.maximum(images, 1)[:, None] * asked, asked.astype(np.float64)


def harmful(survey: Survey, theirs: Ints, others: Bools, settings: CrossEvaluationConfig = DEFAULTS) -> Bools | None:
    """Whose training makes things worse, compared with the model all started from (the survey's last one).

    For next to everyone asked, in the classes both hold, and half as much as others make them better (the device with
    two fifths of all above it: half of them may be hostile). What a device's training does is what the median device
    says of it: one whom all others harm, as it is of another kind, cannot make all of them look harmful. A device of
    its own kind does so too, until it is in a cluster of its kind. None: training does not help others any more, so
    there is nothing to compare with.
    """
    weights = _in_common(survey, theirs, others)
    mass = weights.sum(axis=2)
    gains = (weights * (survey.misfit[:, -1:] - survey.misfit[:, :-1])).sum(axis=2)
    asked = (mass > 0).sum(axis=0)
    gaining = (gains > 0).sum(axis=0) / np.maximum(asked, 1)
    said = np.where((mass > 0) | (asked == 0), gains / np.where(mass > 0, mass, 1.0), np.nan)
    middle = np.nanmedian(said, axis=0)
    usual = float(np.quantile(middle, settings.harm_quantile))
    if usual <= 0:
        return None
    few, enough = gaining <= settings.harm_gainers, asked >= settings.harm_asked
    return np.asarray(few & (middle < -usual / 2) & enough)


def helpful(survey: Survey, theirs: Ints, others: Bools) -> Bools:
    """Whose training helps half of those asked, or more, in the classes both hold."""
    weights = _in_common(survey, theirs, others)
    gains = (weights * (survey.misfit[:, -1:] - survey.misfit[:, :-1])).sum(axis=2)
    return np.asarray(2 * (gains > 0).sum(axis=0) >= (weights.sum(axis=2) > 0).sum(axis=0))


def _in_common(survey: Survey, theirs: Ints, others: Bools) -> Floats:
    """Images that a device and a model's device have of a class, their geometric mean: device × model × class."""
    return np.asarray(np.sqrt(survey.samples[:, None, :] * theirs.astype(np.float64)) * others[:, :, None])


def strength(labels: Ints, signal: Floats, weight: Floats, fits: int = DEFAULTS.affinity_fits) -> float:
    """How strongly the signal speaks for groups of devices: the t-value of δ, but for a factor."""
    signal, weight = signal + signal.T, weight + weight.T
    same = (labels[:, None] == labels).astype(np.float64)
    of_rows, of_columns = (np.maximum(weight.sum(axis=axis, keepdims=True), 1e-9) for axis in (1, 0))
    for _ in range(fits):
        same = same - (weight * same).sum(axis=1, keepdims=True) / of_rows
        same = same - (weight * same).sum(axis=0, keepdims=True) / of_columns
    spread = float((weight * same**2).sum())
    return float((signal * same).sum()) / np.sqrt(spread) if spread > 1e-9 * weight.sum() else -np.inf


def affinity_cut(
    signal: Floats, weight: Floats, min_size: int, settings: CrossEvaluationConfig = DEFAULTS
) -> Bools | None:
    """Membership in the second child of the best cut of the likeliest groups; None if there is none.

    The groups that are likeliest by the signal are looked for first, two or more of them, and then dealt into two
    children: cutting in two at once would tear groups that are as far from the one child as from the other. Of many
    devices those are cut about whom most is known; the others join the child that suits them better.
    """
    everyone = likely_groups(signal, weight, min_size, settings)
    if everyone is None:
        return None
    groups = int(everyone.max()) + 1
    deals = [np.asarray(deal)[everyone] for deal in product((False, True), repeat=groups) if not deal[0]]
    deals = [side for side in deals if large_enough(side, min_size)]
    if not deals:
        return None
    side = max(deals, key=lambda side: strength(side, signal, weight, settings.affinity_fits))
    return np.asarray(~side if side[0] else side)


def likely_groups(
    signal: Floats, weight: Floats, min_size: int, settings: CrossEvaluationConfig = DEFAULTS
) -> Ints | None:
    """The likeliest groups of all devices, by those about whom most is known; None if there are none."""
    core = best_known(weight, settings)
    labels = _likeliest(signal[np.ix_(core, core)], weight[np.ix_(core, core)], min_size, settings)
    return None if labels is None else completed_by_affinity(core, labels, signal, weight)


def best_known(weight: Floats, settings: CrossEvaluationConfig = DEFAULTS) -> Ints:
    """Of many devices those about whom most is known: these are cut first."""
    return np.sort(np.argsort(-weight.sum(axis=1), kind="stable")[: settings.survey_columns])


def completed_by_affinity(core: Ints, labels: Ints, signal: Floats, weight: Floats) -> Ints:
    """The groups of all devices, given those of the ``core``: the others join the group that suits them best."""
    groups = range(int(labels.max()) + 1)
    pull, mass = (
        np.stack([table[:, core[labels == group]].sum(axis=1) for group in groups]) for table in (signal, weight)
    )
    everyone = (pull / np.maximum(mass, 1e-9)).argmax(axis=0)
    everyone[core] = labels
    return np.asarray(everyone)


def large_enough(side: Bools, min_size: int) -> bool:
    """Whether both children of a cut are."""
    return bool(min(side.sum(), (~side).sum()) >= min_size)


def mutual(signal: Floats, weight: Floats, fits: int) -> tuple[Floats, Floats]:
    """Signal and weight of pairs, whoever was asked about whom; the signal less each device's mean."""
    signal, weight = signal + signal.T, weight + weight.T
    total = np.maximum(weight.sum(axis=1), 1e-9)
    for _ in range(fits):
        mean = signal.sum(axis=1) / total / 2
        signal = signal - weight * (mean[:, None] + mean)
    return signal, weight


def _closeness(signal: Floats, weight: Floats) -> Floats:
    """The mean signal of each pair; 0 where nothing is known of it."""
    return np.asarray(signal / np.where(weight > 0, weight, np.inf))


def _likeliest(signal: Floats, weight: Floats, min_size: int, settings: CrossEvaluationConfig) -> Ints | None:
    """The likeliest groups found: what speaks for them, less the logarithm of the number of ways to deal devices so."""
    best, likeliest, noise = None, -np.inf, _noise(signal, weight)
    for labels in climbed_groups(signal, weight, settings)[1]:
        groups = int(labels.max()) + 1
        if groups == 1 or (groups == 2 and not large_enough(labels == 1, min_size)):
            continue
        likelihood = _likelihood(labels, strength(labels, signal, weight, settings.affinity_fits), noise)
        if likelihood > likeliest:
            best, likeliest = labels, likelihood
    return best


def _noise(signal: Floats, weight: Floats) -> float:
    """Variance of a strength by chance; 0 where nothing was said, or too little to square."""
    known = weight > 0  # every pair counts twice in a strength
    return 2 * float((signal[known] ** 2 / weight[known]).mean()) if known.any() else 0.0


def climbed_groups(
    signal: Floats, weight: Floats, settings: CrossEvaluationConfig = DEFAULTS
) -> tuple[list[Ints], list[Ints]]:
    """Ways to put devices into groups, to start from; and what becomes of each by climbing one device at a time.

    Starts are: average linkage, cut into two groups and more; every device with the one closest to it against the
    rest; the leading eigenvector's signs.
    """
    count, noise = len(signal), _noise(signal, weight)
    if noise == 0:
        return [], []
    close = _closeness(signal, weight) - np.diag(np.full(count, np.inf))
    merges = linkage(
        squareform(close.max() - np.where(np.isfinite(close), close, close.max()), checks=False), "average"
    )
    most = min(settings.affinity_groups, count)
    starts = [fcluster(merges, groups, "maxclust").astype(np.int64) - 1 for groups in range(2, most + 1)]
    pull = np.abs(signal).sum(axis=1)
    vectors = np.linalg.eigh(signal / np.sqrt(np.outer(pull, pull) + 1e-12))[1]
    pairs = np.eye(count, dtype=bool) | (np.arange(count) == close.argmax(axis=1)[:, None])
    starts += [*pairs.astype(np.int64), (vectors[:, -1] > 0).astype(np.int64)]
    return starts, [np.unique(_climbed(start, signal, weight, noise), return_inverse=True)[1] for start in starts]


def _likelihood(labels: Ints, strength: float, noise: float) -> float:
    """Logarithm of how likely groups of some strength are, but for a constant."""
    return float(_evidence(strength, noise)) - log_ways(labels)


def _evidence(strength: Floats | float, noise: float) -> Floats:
    """What the signal says of groups, as a logarithm; below 0 if it speaks against them."""
    return np.asarray(strength * np.abs(strength) / (2 * noise))


def log_ways(labels: Ints) -> float:
    """Logarithm of the number of ways to choose the sizes of so many groups, and to deal devices into groups so large.

    Among more ways some look better by chance: there are 190 to single out two of twenty, and 184,756 to halve them.
    """
    sizes = np.bincount(labels)
    sizes = sizes[sizes > 0]
    count, groups = len(labels), len(sizes)
    deals = gammaln(count + 1) - gammaln(sizes + 1).sum()
    return float(deals + gammaln(count) - gammaln(groups) - gammaln(count - groups + 1))


def _climbed(labels: Ints, signal: Floats, weight: Floats, noise: float) -> Ints:
    groups, everyone = int(labels.max()) + 1, np.arange(len(labels))
    now, after = _after_moves(labels, groups, signal, weight)
    likelihood = _likelihood(labels, now, noise)
    while True:
        sizes = np.bincount(labels, minlength=groups)
        more_ways = np.log(sizes[labels])[:, None] - np.log1p(sizes)
        more_ways[everyone, labels] = 0.0
        device, group = np.unravel_index((_evidence(after, noise) - more_ways).argmax(), after.shape)
        moved = labels.copy()
        moved[device] = group
        now, after = _after_moves(moved, groups, signal, weight)
        higher = _likelihood(moved, now, noise)
        if not higher > likelihood + 1e-9:  # asked of the groups as they are, for a promise may be off by rounding
            return labels
        labels, likelihood = moved, higher


def _after_moves(labels: Ints, groups: int, signal: Floats, weight: Floats) -> tuple[float, Floats]:
    """Strength of some groups; and after moving each device (row) to each group (column). Of mutual signals, nearly.

    With X = 1 for pairs of one group, else 0: Σ signal·X over the root of Σ weight·X², X less its row and column means.
    These are taken out once, as if weights were products of two devices'; ``strength`` does so until they are 0.
    """
    member = (labels[:, None] == np.arange(groups)).astype(np.float64)
    total = np.maximum(weight.sum(axis=1), 1e-9)
    everything = total.sum()

    def own(table: Floats) -> Floats:
        return np.asarray(table[np.arange(len(labels)), labels][:, None])

    def strengths(agreed: Floats, within: Floats, squares: Floats) -> Floats:
        spread = within - 2 * squares + within**2 / everything
        return np.asarray(np.where(spread > 1e-9 * everything, agreed / np.sqrt(np.maximum(spread, 1e-12)), -np.inf))

    pull, mass = signal @ member, weight @ member
    mine = own(mass)[:, 0]
    agreed, within, squares = own(pull).sum(), mine.sum(), (mine**2 / total).sum()
    linear, quadratic = (weight * (mine / total)) @ member, (weight**2 / total) @ member
    change = (mass**2 - own(mass) ** 2) / total[:, None] + 2 * linear + quadratic + own(quadratic - 2 * linear)
    change[np.arange(len(labels)), labels] = 0.0
    after = strengths(agreed + 2 * (pull - own(pull)), within + 2 * (mass - own(mass)), squares + change)
    return float(strengths(agreed, within, squares)), after
