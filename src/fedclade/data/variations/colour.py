"""Groups whose cameras see colours differently: the hue of every pixel is turned."""

import math

import numpy as np

from fedclade.config import Config
from fedclade.data.source import Source
from fedclade.data.variations import Vary, amounts, in_range, need_images


def variation(config: Config, source: Source) -> Vary:
    """``incongruence.amounts`` are degrees; else evenly over the circle. By 120 red becomes green, green blue."""
    need_images(config, source, channels=3)
    groups = len(config.incongruence.groups)
    turns = [hue_turn(degrees) for degrees in amounts(config, lambda group: 360.0 * group / groups)]
    return lambda x, y, group: (in_range(np.einsum("ij,njhw->nihw", turns[group], x), x), y)


def hue_turn(degrees: float) -> np.ndarray:
    """The rotation of red, green and blue about the axis of greys."""
    angle = math.radians(degrees)
    aside = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]) / math.sqrt(3.0)
    grey = np.full((3, 3), 1.0 / 3.0)
    return np.asarray(math.cos(angle) * (np.eye(3) - grey) + grey + math.sin(angle) * aside)
