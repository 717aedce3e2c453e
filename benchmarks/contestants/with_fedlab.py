"""fedlab: its standalone pipeline's three steps, with its serial trainer and synchronous server.

fedlab imports torchvision, pandas and others for data sets that are not used here; empty stand-ins take their places.
Batches are drawn by index, which is faster than its DataLoader.
"""

import logging
import sys
from unittest.mock import MagicMock

UNUSED = (
    "torchvision",
    "torchvision.transforms",
    "pynvml",
    "munch",
    "tqdm",
    "pandas",
    "sklearn",
    "sklearn.datasets",
    "PIL",
)
sys.modules |= {name: MagicMock() for name in UNUSED}

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402

for name in UNUSED:  # torch looks some of them up
    del sys.modules[name]

from protocol import Turns, batches, flat, tested, work_from_command_line  # noqa: E402

logging.disable()
work = work_from_command_line()
devices = len(work.train)


class Batches:
    """What fedlab iterates over once an epoch; counts what it gives out."""

    samples = 0

    def __init__(self, device: int, size: int) -> None:
        (self.images, self.labels), self.size = work.train[device], size

    def __iter__(self):
        for batch in batches(len(self.images), self.size):
            Batches.samples += len(batch)
            yield self.images[batch], self.labels[batch]


class Data:
    """What fedlab asks for a device's data."""

    get_dataloader = staticmethod(Batches)


trainer = SGDSerialClientTrainer(work.model(), devices)
trainer.setup_dataset(Data())
trainer.setup_optim(work.epochs, work.batch_size, work.learning_rate)
server = SyncServerHandler(work.model(), work.rounds, 1.0)
server.num_clients = devices
turns = Turns(flat(server.model))
while turns.wait():
    Batches.samples = 0
    trainer.local_process(server.downlink_package, server.sample_clients())
    for package in trainer.uplink_package:
        server.load(package)
    if work.evaluate:
        scores = [tested(server.model, *device) for device in work.test]
    turns.done(Batches.samples, flat(server.model))
