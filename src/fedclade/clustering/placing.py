"""Whose model fits whom: where a device belongs, and which clusters were one group.

A device is asked about the models of all clusters, one question for everybody. Panels of all clusters are asked the
same on held-out images: a cluster whose devices another one's model fits no worse than their own was torn from it.
"""

from collections.abc import Mapping

import numpy as np

from fedclade.clustering.method import Conversation, Merge
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.state import stack
from fedclade.core.tree import Tree
from fedclade.fleet.questions import Compare, SurveyModels
from fedclade.fleet.told import Share


def best_fitting(models: Singles, sizes: Ints, devices: Ints, talk: Conversation) -> Ints:
    """For each device the model that fits its images best; where that is in doubt, the one of the larger cluster.

    A device is as likely of a cluster beforehand as that one is large. If the best model is a smaller cluster's than
    the second best, it is taken only where the images speak for it by more than that: the likelihood ratio of a t-value
    is e^(t²/2).
    """
    if len(devices) == 0:
        return devices
    found = misfits(models, devices, talk)
    order = np.argsort(found, axis=1, kind="stable")
    first, second = order[:, 0], order[:, 1]
    doubtful = np.flatnonzero(sizes[second] > sizes[first])
    if len(doubtful):
        pairs = devices[doubtful], first[doubtful], second[doubtful]
        told = talk.ask(Compare(models, *pairs, "train", sent=0))
        counts, sums, squares = (each.sum(axis=1) for each in told.sums())
        mean = sums / np.maximum(counts, 1)
        spread = np.maximum(squares / np.maximum(counts, 1) - mean**2, 1e-12)
        likely = np.where(mean > 0, counts * mean**2 / spread / 2, 0.0) > np.log(sizes[pairs[2]] / sizes[pairs[1]])
        first[doubtful] = np.where(likely, pairs[1], pairs[2])
    return np.asarray(first)


def misfits(models: Singles, devices: Ints, talk: Conversation, share: Share = "train") -> Floats:
    """Mean misfit of each model (column) on a share of each device's images (row); infinite where nobody answered."""
    if len(devices) == 0:
        return np.zeros((0, len(models)))
    survey = talk.ask(SurveyModels(models, devices, share=share))
    images = survey.samples.sum(axis=1)
    sums = (survey.misfit * survey.samples[:, None, :]).sum(axis=2)
    return np.asarray(np.where(images[:, None] > 0, sums / np.maximum(images, 1)[:, None], np.inf))


def torn(tree: Tree, models: Mapping[str, Singles], asked: Mapping[str, Ints], talk: Conversation) -> Merge | None:
    """The cluster that has most to gain by joining a larger one, if it does not lose; ``asked``: some of each cluster.

    What the own model has learnt of the images it was trained on does not count: the devices look at held-out ones.
    """
    names = [name for name, devices in asked.items() if len(devices)]
    if len(names) < 2:
        return None
    found = misfits(stack(models, names), np.concatenate([asked[name] for name in names]), talk, "validation")
    own = np.repeat(np.arange(len(names)), [len(asked[name]) for name in names])
    told, sizes = np.isfinite(found).all(axis=1), np.array([len(tree.nodes[name].devices) for name in names])
    best: tuple[float, Merge] | None = None
    for row, name in enumerate(names):
        mine = found[told & (own == row)]
        larger = (sizes > sizes[row]) | ((sizes == sizes[row]) & (np.arange(len(names)) < row))
        if len(mine) == 0 or not larger.any():
            continue
        gains = np.where(larger, mine[:, row].mean() - mine.mean(axis=0), -np.inf)
        gain, into = float(gains.max()), names[int(gains.argmax())]
        if gain >= 0 and (best is None or gain > best[0]):
            best = gain, Merge(name, into, {"gain": gain, "asked": len(mine)})
    return None if best is None else best[1]
