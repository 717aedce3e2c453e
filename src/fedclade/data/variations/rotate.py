"""Groups whose images are turned, each by an angle of its own."""

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.data.source import Source
from fedclade.data.variations import Vary


def variation(config: Config, source: Source) -> Vary:
    """By ``incongruence.angles``, or evenly over the circle."""
    height, width = source.x.shape[-2:]
    groups = len(config.incongruence.groups)
    angles = config.incongruence.angles or tuple(360.0 * group / groups for group in range(groups))
    if height != width and any(angle % 180.0 for angle in angles):
        raise UserError(f'incongruence.kind = "rotate": needs square images, not {height}×{width}')
    return lambda x, y, group: (rotate(x, angles[group]), y)


def rotate(images: np.ndarray, degrees: float) -> np.ndarray:
    """Counter-clockwise; quarter turns are exact, other angles are interpolated."""
    quarters, rest = divmod(degrees, 90.0)
    if rest == 0:
        return np.ascontiguousarray(np.rot90(images, int(quarters), axes=(-2, -1)))
    from scipy import ndimage

    turned: np.ndarray = ndimage.rotate(images, degrees, axes=(-2, -1), reshape=False, order=1)
    return turned
