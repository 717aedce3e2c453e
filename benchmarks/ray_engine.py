"""``python -m benchmarks.ray_engine``: a round of 200 devices with the small CNN on Ray, beside worker processes.

Two actors and two processes take turns; models must be the same to the byte, and the median ratio is shown.
``--address`` joins a cluster that is there, such as one of several nodes made by ``ray start``.
"""

import argparse
import time

import numpy as np

from benchmarks.machine import machine_facts
from benchmarks.work import random_population, work_config
from fedclade.core.arrays import Singles
from fedclade.fleet.simulated.engines import Engine, build_trainer
from fedclade.fleet.simulated.trainer import Trainer


def trained(trainer: Trainer, devices: int, round_: int) -> tuple[float, Singles]:
    """Seconds, and the updates."""
    models, everyone = trainer.initial_model()[None], np.arange(devices)
    begun = time.perf_counter()
    updates = trainer.train(round_, models, everyone, everyone * 0)
    return time.perf_counter() - begun, updates


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_engine", description=__doc__)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--images", type=int, default=240, help="of each device")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--address", default="local")
    parser.add_argument("--chunk", type=int, default=100, help="devices that an actor gets at a time")
    wanted = parser.parse_args()
    plan = work_config("cnn", wanted.devices, epochs=wanted.epochs)
    ray = plan.ray.model_copy(update={"address": wanted.address, "chunk": wanted.chunk})
    training = plan.training.model_copy(update={"workers": 2})
    plan, population = (
        plan.model_copy(update={"ray": ray, "training": training}),
        random_population(wanted.devices, wanted.images),
    )
    engines = Engine("workers", 2), Engine("ray", 2)
    trainers = [build_trainer(engine, plan, population) for engine in engines]
    seconds = np.empty((wanted.turns, 2))
    try:
        for turn in range(-1, wanted.turns):  # start-up and the first turn do not count
            found = [trained(trainer, wanted.devices, turn + 2) for trainer in trainers]
            assert found[0][1].tobytes() == found[1][1].tobytes(), "the updates differ"
            if turn >= 0:
                seconds[turn] = [took for took, _ in found]
            print(
                ", ".join(f"{engine}: {took:.2f} s" for engine, (took, _) in zip(engines, found, strict=True)),
                flush=True,
            )
    finally:
        for trainer in trainers:
            trainer.close()
    print(machine_facts())
    ratio = np.median(seconds[:, 1] / seconds[:, 0])
    print(f"same bytes; Ray takes {ratio:.2f} times as long as worker processes, median of {wanted.turns} turns")


if __name__ == "__main__":
    main()
