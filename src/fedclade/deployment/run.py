"""One run on real devices: the simulator's loop and server, with a fleet that a transport reaches.

Beside what every run directory has, there are three files: ``devices.json`` says who device 0, 1, … is, which a resumed
run must know; ``messages.jsonl`` has every message; ``latencies.csv`` has what each round was planned with, so that a
simulation can repeat the decisions (see ``RecordedEdge``).
"""

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedclade.clustering import find_method
from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.records import RoundRecord
from fedclade.core.state import State
from fedclade.core.stopwatch import Stopwatch
from fedclade.deployment.fleet import DeployedFleet
from fedclade.deployment.measured_edge import MeasuredEdge
from fedclade.deployment.transport import Transport
from fedclade.fleet.simulated.personal import local_positions
from fedclade.fleet.simulated.sgd import Local
from fedclade.metrics import Metric
from fedclade.metrics.registry import find_metrics
from fedclade.models._trained import ModelCard
from fedclade.report.listener import Listener, Progress
from fedclade.runs import REAL_DEVICES, Run, RunWriter, write_beside
from fedclade.runs.directory import MACHINE, append, cut_unfinished_line, json_bytes, opened_json, sealed_json
from fedclade.server import Server
from fedclade.simulation import card_of, checked_for_resume, record_run, with_page

MESSAGES, LATENCIES = "messages.jsonl", "latencies.csv"


class Deployment:
    """A config with the devices of a transport; each part is built when first asked for.

    A round may take ``grace_seconds`` on top of three times what was measured before it is given up. Where nobody is
    there at the beginning of a round, somebody is waited for ``wait_seconds``.
    """

    def __init__(self, config: Config, transport: Transport, grace_seconds: float, wait_seconds: float) -> None:
        self.config, self._transport = config, transport
        self._grace_seconds, self._wait_seconds = grace_seconds, wait_seconds
        self._stopwatch = Stopwatch()

    @cached_property
    def fleet(self) -> DeployedFleet:
        """The devices."""
        return DeployedFleet(self.config, self._transport, self._edge, self._local, self._wait_seconds, self._stopwatch)

    @cached_property
    def _edge(self) -> MeasuredEdge:
        bits = float(self.config.edge.bits_per_parameter * len(self._local.initial))
        cap, slowest = self.config.deployment.deadline_cap_seconds, self.config.deployment.slowest_over_median
        return MeasuredEdge(self.config.edge.subchannels, bits, self._grace_seconds, cap, slowest)

    @cached_property
    def _local(self) -> Local:
        """It knows the model; there is no data here."""
        return Local(self.config, self._transport.register.population(), "autograd")

    @cached_property
    def server(self) -> Server:
        """Algorithm 1. The method is told of no planted groups: more devices may come, and theirs are not known."""
        training = self.config.training
        if training.scaffold or training.ditto:
            own = "scaffold" if training.scaffold else "ditto"
            raise UserError(f"training.{own}: is for simulated devices only; real ones keep no vectors for it")
        if (
            self.config.model.local
        ):  # devices choose the tensors; a pattern that chooses none is told before anybody trains
            local_positions(self._local.named_tensors(self._local.initial), self.config.model.local)
        return Server(self.config, self.fleet, self._edge, find_method(self.config), self._stopwatch)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The config's own metrics."""
        return find_metrics(self.config.run.metrics)

    def groups(self, round_: int) -> Ints:
        """The planted group of each device, as it told; one group of all where somebody does not know."""
        return self._transport.register.groups

    def model_card(self) -> ModelCard:
        """What one must know to use a model."""
        return card_of(self.config, self._transport.register.population())

    def devices(self) -> pd.DataFrame:
        """Who the devices are: one row each; where they stand and how loud they are nobody knows."""
        register = self._transport.register
        return pd.DataFrame(
            {
                "device": np.arange(len(register.devices)),
                "planted_group": register.groups,
                "train_samples": register.samples,
                "test_samples": [device.test_samples for device in register.devices],
            }
        )

    def run(self, folder: Path, listeners: Sequence[Listener] = ()) -> Run:
        """Run to the end in a new directory."""
        server, _ = self.server, self.metrics  # whatever is wrong with the config shows before a directory is made
        engine = "sequential" if self.config.training.engine == "sequential" else "workers"
        training = self.config.training.model_copy(update={"engine": engine, "workers": 1})  # as every device trains
        config = self.config.model_copy(update={"training": training})
        writer = RunWriter.create(folder, config, more={REAL_DEVICES: devices_json(self._transport)})
        return self._recorded(writer, server.initial_state(), listeners)

    def resume(self, folder: Path, listeners: Sequence[Listener] = ()) -> Run:
        """Go on from the last checkpoint of a directory; a finished run is left as it is."""
        run = checked_for_resume(self.config, folder)
        if run.finished:
            return with_page(run)
        server, _ = self.server, self.metrics
        writer, state, spent = RunWriter.reopen(run.folder, server.initial_state(), server.method.load)
        self._stopwatch.add(spent)
        return self._recorded(writer, state, listeners)

    def _recorded(self, writer: RunWriter, state: State, listeners: Sequence[Listener]) -> Run:
        files = DeploymentFiles(writer.folder, self._transport)
        return record_run(self, writer, state, listeners, lambda: False, before=[files])

    def deliver(self, run: Run) -> int:
        """Send the devices that are there their models of a finished run; gives how many took theirs."""
        leaves = run.leaves()
        tensors = {leaf.name: run.model(leaf.name) for leaf in leaves}
        return self.fleet.deliver(
            {device: (leaf.name, tensors[leaf.name]) for leaf in leaves for device in leaf.devices}
        )


class DeploymentFiles(Listener):
    """Writes what only a run of real devices has: before a checkpoint is written, so that it knows all its devices."""

    def __init__(self, folder: Path, transport: Transport) -> None:
        self._folder, self._transport = folder, transport

    def began(self, state: State) -> None:
        """From now on messages are written to the directory."""
        for name in (MESSAGES, LATENCIES):
            cut_unfinished_line(self._folder / name)
        self._transport.log.open(partial(append, self._folder / MESSAGES))
        self._write_devices()

    def round_ended(self, progress: Progress) -> None:
        """Who the devices are, for more may have come, and what the round was planned with."""
        self._write_devices()
        write_latencies(self._folder / LATENCIES, progress.record)

    def _write_devices(self) -> None:
        write_beside(self._folder / REAL_DEVICES, devices_json(self._transport))


def devices_json(transport: Transport) -> bytes:
    """Who the devices are, with a checksum."""
    return json_bytes(sealed_json(transport.register.to_json()))


def known_devices(folder: Path) -> dict[str, Any]:
    """Who the devices of a run are: what ``devices_json`` wrote, or nothing where a run died before it had begun."""
    path = folder / REAL_DEVICES
    if path.is_file():
        return opened_json(path)
    if (folder / MACHINE).is_file():
        raise UserError(f"{folder}: not a run of real devices: it has no {REAL_DEVICES}")
    return {}


def write_latencies(path: Path, record: RoundRecord) -> None:
    """Append what the round was planned with: one line a device."""
    links = record.links
    frame = pd.DataFrame(
        {
            "round": record.round,
            "device": np.arange(len(links.compute_seconds)),
            "compute_seconds": links.compute_seconds,
            "upload_seconds": links.upload_seconds,
        }
    )
    empty = not path.is_file() or path.stat().st_size == 0
    append(path, frame.to_csv(header=empty, index=False))


def read_latencies(path: Path) -> dict[int, tuple[Floats, Floats]]:
    """By round: computing and upload seconds of every device. A round written twice counts as it was written last."""
    try:
        table = pd.read_csv(path).drop_duplicates(["round", "device"], keep="last").sort_values(["round", "device"])
        columns = table[["compute_seconds", "upload_seconds"]].to_numpy(np.float64)
        rounds = table["round"].to_numpy(np.int64)
        return {int(n): (columns[rounds == n, 0], columns[rounds == n, 1]) for n in np.unique(rounds)}
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path}: no latencies (round, device, compute_seconds, upload_seconds): {error}") from error
