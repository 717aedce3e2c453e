"""A Hugging Face data set of your own: one column says whose each row is.

From this folder::

    python hugging_face_in_python.py
"""

import numpy as np
from datasets import Dataset

from fedclade import Experiment

rng = np.random.default_rng(1)
who = np.repeat([f"sensor-{number}" for number in range(8)], 100)
readings = rng.normal(size=(800, 6))
alarm = (readings[:, 0] > 0) ^ (np.arange(800) >= 400)  # the second half is wired the other way round
rows = Dataset.from_dict({"x": readings.tolist(), "alarm": alarm.astype(int).tolist(), "sensor": who.tolist()})

columns = {"population.label_column": "alarm", "population.device_column": "sensor", "run.rounds": 6}
run = Experiment("own-data", columns, devices=rows).run()
for leaf in run.leaves():
    print(leaf.name, *leaf.devices)
