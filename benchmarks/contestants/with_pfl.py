"""pfl: FederatedAveraging on its SimulatedBackend, in one process or, with its torch.distributed support, in two.

Its data sets keep their batches from epoch to epoch: no shuffling, which is the fastest it offers.
"""

import json
import os
import socket
import subprocess
import sys

import torch
from protocol import Turns, flat, work_from_command_line

work = work_from_command_line()
helpers = []
if work.processes > 1 and "PFL_WORKER_RANK" not in os.environ:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        os.environ["PFL_WORKER_ADDRESSES"] = ",".join([f"localhost:{free.getsockname()[1]}"] * work.processes)
    for rank in range(1, work.processes):
        environment = {**os.environ, "PFL_WORKER_RANK": str(rank)}
        pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        helpers.append(subprocess.Popen([sys.executable, *sys.argv], **pipe))
    os.environ["PFL_WORKER_RANK"] = "0"

import numpy as np  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.pytorch import PyTorchTensorDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402


class Net(torch.nn.Sequential):
    """The module with the two methods that pfl asks for; counts the samples it trains on."""

    samples = 0

    def loss(self, images, labels):
        Net.samples += len(images)
        return torch.nn.functional.cross_entropy(self(images), labels)

    @torch.no_grad()
    def metrics(self, images, labels):
        scores = self(images)
        right = float((scores.argmax(1) == labels).float().sum())
        loss = float(torch.nn.functional.cross_entropy(scores, labels))
        return {"loss": Weighted(loss, 1), "accuracy": Weighted(right, len(labels))}


class TakeTurns(TrainingProcessCallback):
    """Holds pfl between its rounds; the other processes are held by the first."""

    def on_train_begin(self, *, model):
        self.turns = Turns(flat(model.pytorch_model))
        if not self.wait():
            sys.exit()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        samples = Net.samples + sum(json.loads(helper.stdout.readline())["samples"] for helper in helpers)
        Net.samples = 0
        self.turns.done(samples, flat(model.pytorch_model))
        return not self.wait(), Metrics()

    def wait(self):
        word = self.turns.wait()
        for helper in helpers:
            if word:
                helper.stdin.write(word)
                helper.stdin.flush()
            else:
                helper.stdin.close()
        return word


np.random.seed(0)  # noqa: NPY002  pfl's processes agree on the cohort by it
devices = len(work.train)


def federated(share):
    """Each device's data; every round takes all of them."""
    data = [PyTorchTensorDataset(pair, user_id=k) for k, pair in enumerate(share)]
    return FederatedDataset(data.__getitem__, get_user_sampler("minimize_reuse", list(range(devices))))


net = Net(*work.model())
FederatedAveraging().run(
    NNAlgorithmParams(
        work.rounds,
        evaluation_frequency=1 if work.evaluate else 10**9,
        train_cohort_size=devices,
        val_cohort_size=devices if work.evaluate else 0,
    ),
    SimulatedBackend(training_data=federated(work.train), val_data=federated(work.test)),
    PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0)),
    NNTrainHyperParams(
        local_batch_size=work.batch_size,
        local_num_epochs=work.epochs,
        local_learning_rate=work.learning_rate,
    ),
    NNEvalHyperParams(local_batch_size=None),
    [TakeTurns()],
    send_metrics_to_platform=False,
)
for helper in helpers:
    helper.wait()
