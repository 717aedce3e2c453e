"""A worker process: ``python -m fedclade.fleet.simulated.worker``, started by the pool, never by hand.

It reads one JSON line with its set-up, then one line for each task, and answers each with the task's number. Data,
models and updates lie in memory shared with the server's process, so nothing large goes through a pipe. It ends when
its standard input does: with the run, or with the server's death.
"""

import json
import os
import signal
import sys
from typing import Any

import numpy as np

from fedclade.config import Config
from fedclade.core.lists import Lists
from fedclade.core.task import Task
from fedclade.data import Population
from fedclade.fleet.simulated.sgd import Local
from fedclade.fleet.simulated.streamed import digested
from fedclade.fleet.simulated.trainer import Steering
from fedclade.fleet.updates import attach


def main() -> None:
    """Serve tasks until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the server decides what it means
    first = sys.stdin.readline()
    if not first:
        return  # the server is gone
    setup = json.loads(first)
    try:
        arrays = {name: attach(shared) for name, shared in setup["arrays"].items()}
    except FileNotFoundError:
        return  # the server is gone, and its memory with it
    train, validation, test = Lists(arrays["order"], arrays["ends"]).in_parts(3)
    population = Population(
        images=arrays["images"],
        labels=arrays["labels"],
        train=train,
        validation=validation,
        test=test,
        group=np.zeros(len(train), dtype=np.int64),
        task=Task.of(setup["task"]),
        mean=tuple(setup["mean"]),
        std=tuple(setup["std"]),
    )
    local = Local(Config.model_validate(json.loads(setup["config"])), population, setup["step"])
    training = 0
    with os.fdopen(setup["reply"], "w", buffering=1) as reply:
        for line in sys.stdin:
            task = json.loads(line)
            if "look" in task:
                look(local, task)
                print(task["number"], file=reply)
                continue
            if "digest" in task:
                digest(local, task)
                print(task["number"], file=reply)
                continue
            rows = task["rows"]
            if task["training"] != training:
                training, models, updates = task["training"], attach(task["models"]), attach(task["updates"])
                steering = Steering(attach(task["vectors"]), task["proximal"]) if "vectors" in task else None
            steered = None if steering is None else steering.only(np.array(rows))
            devices, model_of = np.array(task["devices"]), np.array(task["model_of"])
            updates[rows] = local.train_many(task["round"], models, devices, model_of, steered)
            print(task["number"], file=reply)


def look(local: Local, task: dict[str, Any]) -> None:
    """Some of the models at some of the images."""
    (first, last), (start, end) = task["look"]
    models, positions, found = (attach(task[name]) for name in ("models", "positions", "found"))
    found[:, first:last, start:end] = local.looks(models[first:last], positions[start:end])


def digest(local: Local, task: dict[str, Any]) -> None:
    """What is kept of the updates of a chunk, which stay in this process."""
    start, end = task["digest"]
    names = "models", "weights", "signs", "norms", "sketches", "sums"
    models, weights, signs, norms, sketches, sums = (attach(task[name]) for name in names)
    updates = local.train_chunk(task["round"], models, np.array(task["devices"]), np.array(task["model_of"]))
    found = digested(updates, weights[:, start:end], signs, sketches.shape[1])
    norms[start:end], sketches[start:end], sums[task["number"]] = found.norms, found.sketches, found.sums


if __name__ == "__main__":
    main()
