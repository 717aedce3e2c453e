"""Groups whose instruments measure with another offset: each feature is shifted, up or down."""

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.random import generator
from fedclade.data.source import Source, is_features, moments
from fedclade.data.variations import Vary, amounts, in_range


def variation(config: Config, source: Source) -> Vary:
    """``incongruence.amounts`` are standard deviations of each feature; else 0, 3, 6, …. The seed draws signs."""
    shape = source.x.shape[1:]
    if not is_features(shape) or source.x.dtype == np.int32:
        raise UserError(
            'incongruence.kind = "feature-shift": needs plain features of numbers; take contrast for images'
        )
    sizes, deviation = amounts(config, lambda group: 3.0 * group), moments(source.x)[1]

    def vary(x: np.ndarray, y: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
        signs = generator(config.run.seed, "feature-shift", group).choice([-1.0, 1.0], len(deviation))
        return in_range(x + sizes[group] * signs * deviation, x), y

    return vary
