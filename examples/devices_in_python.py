"""Devices of your own in Python: a list of (x, y) arrays, tensors or torch data sets.

From this folder::

    python devices_in_python.py
"""

import numpy as np

from fedclade import Experiment

rng = np.random.default_rng(0)
rules = rng.normal(size=(2, 8, 3))  # the first six devices follow one rule, the others another; nobody is told
x = rng.normal(size=(10, 150, 8)).astype(np.float32)
devices = [(x[k], np.argmax(x[k] @ rules[int(k >= 6)], axis=1)) for k in range(10)]

if __name__ == "__main__":
    run = Experiment("own-data", {"run.rounds": 10}, devices=devices).run()
    print([leaf.devices for leaf in run.leaves()])
