"""Groups whose cameras have another contrast; a negative one gives the negative of an image."""

import numpy as np

from fedclade.config import Config
from fedclade.data.source import Source
from fedclade.data.variations import Vary, amounts, in_range, need_images


def variation(config: Config, source: Source) -> Vary:
    """``incongruence.amounts`` are factors; else 1, -1, 0.5, -0.5, 0.25, ….

    What lies between dark and bright stays: 127.5 of 8-bit pixels, and of others the mean of all.
    """
    need_images(config, source)
    factors = amounts(config, lambda group: (-1.0) ** group * 0.5 ** (group // 2))
    middle = 127.5 if source.x.dtype == np.uint8 else float(source.x.mean())
    return lambda x, y, group: (in_range(middle + factors[group] * (x - middle), x), y)
