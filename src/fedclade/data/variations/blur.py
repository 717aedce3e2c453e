"""Groups whose images are blurred, each by an amount of its own."""

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.data.source import Source
from fedclade.data.variations import Vary, amounts, in_range, need_images


def variation(config: Config, source: Source) -> Vary:
    """``incongruence.amounts`` are the standard deviations of a Gaussian, in pixels; else 0, 1.5, 3, …."""
    need_images(config, source)
    pixels = amounts(config, lambda group: 1.5 * group)
    if min(pixels) < 0:
        raise UserError(f"incongruence.amounts = {pixels}: a blur must be at least 0 pixels")

    def vary(x: np.ndarray, y: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
        if pixels[group] == 0:
            return x, y
        from scipy import ndimage

        return in_range(ndimage.gaussian_filter(x.astype(np.float32), pixels[group], axes=(-2, -1)), x), y

    return vary
