"""Texts as token ids, made here: 6,000 of 8 topics, for trying out models of text without any download.

There are 999 words, 1 to 999; 0 fills up what is missing to 40 words. How often a word is used in general follows
Zipf's law: the r-th most frequent one with a probability proportional to 1/r. Each topic has 30 words of its own,
drawn from all. A text has 10 to 40 words. Each of them is, with probability 0.3, one of its topic's words, all
equally likely; else it is any word, as often as in general. The class of a text is its topic.
"""

import numpy as np

from fedclade.config import Config
from fedclade.core.random import generator
from fedclade.data.source import Source

TEXTS, TOPICS, VOCABULARY = 6000, 8, 1000
SHORTEST, LONGEST = 10, 40
OWN_WORDS, OWN_SHARE = 30, 0.3


def read(config: Config) -> Source:
    """All texts, a pool of 40 token ids each, with the topics in turn."""
    rng = generator(config.run.seed, "topics")
    words = np.arange(1, VOCABULARY)
    own = np.stack([rng.choice(words, OWN_WORDS, replace=False) for _ in range(TOPICS)])
    topic = np.arange(TEXTS) % TOPICS
    frequency = 1.0 / words
    general = rng.choice(words, (TEXTS, LONGEST), p=frequency / frequency.sum())
    of_topic = own[topic[:, None], rng.integers(0, OWN_WORDS, general.shape)]
    tokens = np.where(rng.random(general.shape) < OWN_SHARE, of_topic, general)
    length = rng.integers(SHORTEST, LONGEST + 1, (TEXTS, 1))
    return Source(np.where(np.arange(LONGEST) < length, tokens, 0), topic, classes=TOPICS)
