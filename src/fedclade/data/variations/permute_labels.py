"""Groups that call the same classes by other names. Group 0 calls them as the source does."""

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.random import generator
from fedclade.data.source import Source
from fedclade.data.variations import Vary


def variation(config: Config, source: Source) -> Vary:
    """One permutation of all classes for each further group."""
    if source.numbers:
        raise UserError('incongruence.kind = "permute-labels": is for classes, and y are numbers; take feature-shift')
    classes, seed = source.classes, config.run.seed

    def vary(x: np.ndarray, y: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
        return x, generator(seed, "permutation", group).permutation(classes)[y] if group > 0 else y

    return vary
