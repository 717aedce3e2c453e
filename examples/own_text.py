r"""Texts of your own: words become token ids, which a model with embeddings is fed with.

From this folder::

    fedclade run own-data --set population.source=own_text:reports --set population.devices=10 \
        --set model.name=embedding-bag --set training.learning_rate=2.0
"""

import zlib

import numpy as np

from fedclade.config import Config
from fedclade.data import Source

WORDS = {0: "leak drip wet pipe seal", 1: "noise hum rattle loud grind", 2: "heat hot smoke burn fan"}
COMMON = "the unit has a since yesterday please check it again"
GROUP = [0] * 6 + [1] * 4  # the second group sorts the same reports into the drawers in another order
LENGTH = 12


def tokens(text: str, vocabulary: int) -> list[int]:
    """A number from 1 for each word, the same for the same word; 0 fills up short texts."""
    found = [1 + zlib.crc32(word.encode()) % (vocabulary - 1) for word in text.split()]
    return (found + [0] * LENGTH)[:LENGTH]


def reports(config: Config) -> Source:
    """Devices with 150 fault reports each; y is the drawer that a report belongs into."""
    rng = np.random.default_rng(config.run.seed)
    devices = []
    for group in GROUP:
        kind = rng.integers(0, len(WORDS), 150)
        texts = [" ".join([*rng.choice(COMMON.split(), 6), *rng.choice(WORDS[int(k)].split(), 2)]) for k in kind]
        x = np.array([tokens(text, config.model.vocabulary) for text in texts])
        devices.append((x, (kind + group) % len(WORDS)))
    return Source.of_devices(devices, group=GROUP)
