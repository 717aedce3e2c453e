"""A run directory being written: rounds, checkpoints, and what came out in the end."""

import contextlib
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from safetensors.numpy import save_file

from fedclade.config import Config
from fedclade.core import machine
from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.state import CONVENTIONAL, RoundRecord, ServerState
from fedclade.metrics import fairness
from fedclade.runs.checkpoint import read_state, write_state
from fedclade.runs.database import PER_ROUND, insert, known, last_round, open_to_write, rows_of_round
from fedclade.runs.directory import DATABASE, MODELS, SUMMARY, TREE, make_directory, take_lock, write_json
from fedclade.server import Server


class RunWriter:
    """A run directory being written; only one process at a time may."""

    def __init__(self, folder: Path, lock: TextIO) -> None:
        self.folder, self._lock = folder, lock
        self._db = open_to_write(folder / DATABASE)

    @classmethod
    def create(cls, folder: Path, config: Config, overwrite: bool = False) -> "RunWriter":
        """A new directory; an existing one is kept unless ``overwrite``."""
        return cls(folder, make_directory(folder, config, overwrite))

    @classmethod
    def reopen(
        cls, folder: Path, parameters: int, initial: ServerState
    ) -> tuple["RunWriter", ServerState, dict[str, float]]:
        """An existing run at its checkpoint (see ``read_state``), later rows cut off; a damaged one stays as it is."""
        lock = take_lock(folder)
        try:
            state, spent = read_state(folder, parameters, initial)
            last = last_round(folder / DATABASE)
            if last < state.round:
                raise UserError(f"{folder / DATABASE}: ends at round {last}, before the checkpoint's {state.round}")
            writer = cls(folder, lock)
        except UserError:
            lock.close()
            raise
        with writer._db:
            for table in PER_ROUND:
                writer._db.execute(f"DELETE FROM {table} WHERE round > ?", (state.round,))
            writer._db.execute("DELETE FROM models")
        return writer, state, spent

    def describe(self, devices: pd.DataFrame) -> None:
        """Who the devices are: one row each."""
        with self._db:
            self._db.execute("DELETE FROM devices")
            insert(self._db, "devices", devices.to_dict("records"))

    def record(self, record: RoundRecord, clusters: int) -> None:
        """One round, after which there are so many clusters, in one transaction."""
        with self._db:
            for table, rows in rows_of_round(record, clusters).items():
                insert(self._db, table, rows)

    def checkpoint(self, state: ServerState, spent: Mapping[str, float]) -> None:
        """Write the state beside the last one, then switch to it."""
        write_state(self.folder, state, spent)

    def finish(self, server: Server, state: ServerState, group: Ints, end: str) -> None:
        """Models, tree, models × devices, summary."""
        folder = self.folder / MODELS
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        flat = dict(state.models)
        flat[CONVENTIONAL] = flat["0"] if state.conventional is None else state.conventional
        for name, model in flat.items():
            save_file(server.trainer.named_tensors(model), folder / f"{name}.safetensors")
        write_json(self.folder / TREE, state.tree.to_json())

        names, accuracy = server.models_by_devices(state)
        everyone = range(len(group))
        members = {name: set(state.tree.members(name).tolist()) for name in names if name != CONVENTIONAL}
        rows = [
            {
                "model": name,
                "device": device,
                "accuracy": float(accuracy[i, device]),
                "member": int(device in members.get(name, everyone)),
            }
            for i, name in enumerate(names)
            for device in everyone
        ]
        with self._db:
            self._db.execute("DELETE FROM models")
            insert(self._db, "models", rows)
        summary = summarise(server, state, group, accuracy[names.index(CONVENTIONAL)], end)
        summary |= server.stopwatch.summary() | machine.facts()
        write_json(self.folder / SUMMARY, summary)

    def close(self) -> None:
        """Fold the write-ahead log into run.db, or else readers would make it again, and let go of the directory."""
        with contextlib.suppress(sqlite3.OperationalError):  # someone is reading just now
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        self._lock.close()


def summarise(server: Server, state: ServerState, group: Ints, conventional: Floats, end: str) -> dict[str, Any]:
    """The headline numbers of a finished run, one flat object."""
    splits = sorted((node.split for node in state.tree.nodes.values() if node.split), key=lambda split: split.round)
    accuracy, conventional = known(server.evaluate(state).accuracy), known(conventional)
    uploads = int(state.participation.sum())
    planted = len(np.unique(group)) > 1
    there = state.present_rounds > 0
    shares = state.participation[there] / state.present_rounds[there]  # of the rounds in which it could
    return {
        "policy": server.policy.name,
        "seed": server.config.run.seed,
        "devices": len(group),
        "rounds": state.round,
        "ended_by": end,
        "simulated_seconds": state.seconds,
        "clusters": len(state.tree.leaves()),
        "first_split_round": splits[0].round if splits else None,
        "last_split_round": splits[-1].round if splits else None,
        "first_split_seconds": splits[0].seconds if splits else None,
        "last_split_seconds": splits[-1].seconds if splits else None,
        "adjusted_rand_index": fairness.adjusted_rand_index(group, state.tree.leaf_of()) if planted else None,
        "accuracy_min": float(accuracy.min()),
        "accuracy_mean": float(accuracy.mean()),
        "accuracy_max": float(accuracy.max()),
        "accuracy_gap": fairness.gap(accuracy),
        "accuracy_std": float(accuracy.std()),
        "accuracy_worst_tenth": fairness.worst_tenth(accuracy),
        "conventional_accuracy_min": float(conventional.min()),
        "conventional_accuracy_mean": float(conventional.mean()),
        "jain_accuracy": fairness.jain(accuracy),
        "jain_participation": fairness.jain(shares),
        "uploads": uploads,
        "upload_bits": uploads * server.edge.model_bits,
        "energy_joules": float(state.energy_joules.sum()),
    }
