"""Flower: a ServerApp with FedAvg and a ClientApp, simulated by Ray with one core for each client at work."""

import sys

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from protocol import Turns, flat, process_module, tested, train_as_usual, work

FOLDER, SETTING = sys.argv[1:3]
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message, context):
    task, module = work(FOLDER, SETTING), process_module(FOLDER, SETTING)
    device = int(context.node_config["partition-id"])
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    samples = train_as_usual(module, *task.train[device], task)
    metrics = MetricRecord({"num-examples": len(task.train[device][1]), "samples": samples})
    return Message(RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics}), reply_to=message)


@client_app.evaluate()
def evaluate(message, context):
    task, module = work(FOLDER, SETTING), process_module(FOLDER, SETTING)
    images, labels = task.test[int(context.node_config["partition-id"])]
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    accuracy, loss = tested(module, images, labels)
    metrics = MetricRecord({"num-examples": len(labels), "accuracy": accuracy, "loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


class TakeTurns(FedAvg):
    """Holds Flower between its rounds."""

    samples = 0

    def configure_train(self, *arguments):
        if not turns.wait():
            raise RuntimeError("no more rounds are asked for")
        return super().configure_train(*arguments)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.samples = sum(reply.content["metrics"]["samples"] for reply in replies)
        module.load_state_dict(arrays.to_torch_state_dict())
        if not task.evaluate:
            turns.done(self.samples, flat(module))
        return arrays, metrics

    def aggregate_evaluate(self, *arguments):
        metrics = super().aggregate_evaluate(*arguments)
        if task.evaluate:
            turns.done(self.samples, flat(module))
        return metrics


@server_app.main()
def main(grid, context):
    everybody = {"min_available_nodes": devices, "min_train_nodes": devices, "min_evaluate_nodes": devices}
    strategy = TakeTurns(fraction_evaluate=float(task.evaluate), **everybody)
    strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=task.rounds)


if __name__ == "__main__":
    task = work(FOLDER, SETTING)
    module, devices = task.model(), len(task.train)
    turns = Turns(flat(module))
    run_simulation(
        server_app,
        client_app,
        num_supernodes=devices,
        backend_config={
            "init_args": {"num_cpus": task.processes, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
