"""Cuts by average or complete linkage of clusters so large that not all pairs of devices can be held.

Linkage of so many would take hours, however it is done. It is made of some devices, spread evenly from those most like
all others to those least like them; the others join the side of most of their nearest neighbours among these.
"""

import numpy as np

from fedclade.clustering.bipartition import bipartition
from fedclade.config.methods import Linkage
from fedclade.core.arrays import Bools, Singles
from fedclade.core.threads import blas_threads, cores
from fedclade.core.updates import cosine_similarity, update_norms

WORKING_MEGABYTES = 256  # of similarities at once
LINKED = 2_000  # devices of which linkage is made


def directions(updates: Singles) -> Singles:
    """Each update at length 1; a zero update stays zero."""
    norms = update_norms(updates).astype(np.float32)
    norms[norms == 0] = 1
    return np.asarray(updates / norms[:, None])


def bipartition_by_some(unit: Singles, method: Linkage, min_size: int, neighbours: int) -> Bools | None:
    """Membership in the second child, or None if no cut leaves both children ``min_size`` members.

    ``unit``: the direction of each device's update, or of a sketch of it.
    """
    from sklearn import config_context  # takes longer to import than a plan needs
    from sklearn.neighbors import KNeighborsClassifier

    count = len(unit)
    order = np.argsort(unit @ unit.sum(axis=0), kind="stable")  # a cut must not depend on how devices are numbered
    some = order[np.unique(np.linspace(0, count - 1, min(LINKED, count)).astype(np.int64))]
    cut = bipartition(cosine_similarity(unit[some]), method, min_size)
    if cut is None:
        return None
    with config_context(working_memory=WORKING_MEGABYTES), blas_threads(cores()):
        side: Bools = (
            KNeighborsClassifier(min(neighbours, len(some)), metric="cosine").fit(unit[some], cut).predict(unit)
        )
    side[some] = cut
    return ~side if side[0] else side
