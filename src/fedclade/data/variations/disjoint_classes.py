"""Groups that hold different classes; what a sample looks like is the same for all."""

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.random import generator
from fedclade.data.source import Source
from fedclade.data.variations import Vary


def variation(config: Config, source: Source) -> Vary:
    """Samples are as they are: see ``allowed_classes``."""
    return lambda x, y, group: (x, y)


def allowed_classes(config: Config, classes: Ints, group: Ints) -> list[Ints]:
    """The classes that each device may hold: its group's own share of all that occur."""
    groups = len(config.incongruence.groups)
    if groups > len(classes):
        raise UserError(f"incongruence.groups: {groups} groups cannot share {len(classes)} classes without overlap")
    shares = np.array_split(generator(config.run.seed, "disjoint").permutation(classes), groups)
    return [np.sort(shares[g]) for g in group]
