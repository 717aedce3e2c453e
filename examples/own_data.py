r"""Data of your own: a function from the config to what each device holds.

From this folder::

    fedclade run quickstart --set population.source=own_data:two_groups --set population.devices=12 \
        --set incongruence.kind=none --set model.name=logistic
"""

import numpy as np

from fedclade.config import Config
from fedclade.data import Source

GROUP = [0] * 8 + [1] * 4  # the planted group of each device; leave it out where you do not know it


def two_groups(config: Config) -> Source:
    """Devices with 120 samples of 16 readings; which of 4 classes they mean follows another rule in each group."""
    rng = np.random.default_rng(config.run.seed)
    rule = rng.normal(size=(2, 16, 4))
    devices = []
    for group in GROUP:
        x = rng.normal(size=(120, 16))  # or uint8 images, N×H×W or N×C×H×W
        devices.append((x, np.argmax(x @ rule[group], axis=1)))
    return Source.of_devices(devices, group=GROUP)
