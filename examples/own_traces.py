"""Traces of your own: what each link carries, how fast each device is and when it is there, round by round.

From this folder::

    python own_traces.py own_trace.csv
    fedclade run quickstart --set edge.trace=own_trace.csv --set edge.device_trace=own_trace.csv
"""

import csv
import sys
from collections.abc import Iterator

import numpy as np

DEVICES, ROUNDS = 20, 24


def rows(seed: int = 1) -> Iterator[tuple[float, ...]]:
    """A day in 24 rounds: phones are on the charger at night, and carry less when everybody is awake."""
    rng = np.random.default_rng(seed)
    bedtime, speed = rng.normal(22, 1, DEVICES), rng.uniform(1e9, 4e9, DEVICES)
    for hour in range(ROUNDS):
        for device in range(DEVICES):
            asleep = (hour - bedtime[device]) % 24 < 9
            gain_db = rng.normal(-85 if asleep else -95, 6)
            yield device, hour + 1, round(gain_db, 2), round(speed[device]), int(asleep or rng.random() < 0.3)


if __name__ == "__main__":
    with open(sys.argv[1], "w", newline="") as file:
        csv.writer(file).writerows([("device", "round", "gain_db", "cpu_hz", "available"), *rows()])
