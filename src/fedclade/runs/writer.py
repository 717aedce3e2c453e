"""A run directory being written: rounds, checkpoints, and what came out in the end."""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from safetensors.numpy import save_file

from fedclade.config import Config
from fedclade.core.arrays import Singles
from fedclade.core.errors import UserError
from fedclade.core.records import RoundRecord
from fedclade.core.state import State
from fedclade.metrics import Metric, Outcome
from fedclade.metrics.registry import summarise
from fedclade.runs.checkpoint import LoadMethod, Saved, read_state, write_state
from fedclade.runs.database import PER_ROUND, insert, last_round, open_to_write, rows_of_models, rows_of_round
from fedclade.runs.directory import DATABASE, MODELS, SUMMARY, TREE, make_directory, take_lock, write_json

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """What a run leaves behind when it ends."""

    outcome: Outcome
    ended_by: str  # why there was no further round
    tensors: Mapping[str, Mapping[str, Singles]]  # every model as named arrays
    card: Mapping[str, str] = field(default_factory=dict)  # metadata of every model's file: how it is to be used
    own: Sequence[Metric] = ()  # metrics that the config names
    machine: Mapping[str, str] = field(default_factory=dict)  # on which it was computed
    wall: Mapping[str, float] = field(default_factory=dict)  # how long that took, and with what

    def summary(self) -> dict[str, Any]:
        """The headline numbers, one flat object; a value that does not exist is None."""
        outcome = self.outcome
        return {
            "policy": outcome.policy,
            "method": outcome.method,
            "seed": outcome.seed,
            "devices": outcome.tree.device_count,
            "rounds": outcome.round,
            "ended_by": self.ended_by,
            **summarise(outcome, self.own),
            **self.machine,
            **self.wall,
        }


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
        cls, folder: Path, initial: State, load_method: LoadMethod
    ) -> tuple["RunWriter", State, dict[str, float]]:
        """An existing run at its checkpoint (see ``read_state``), later rows cut off; a damaged one stays as it is."""
        lock = take_lock(folder)
        try:
            state, spent = read_state(folder, initial, load_method)
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

    def describe(self, devices: "pd.DataFrame", own: Sequence[Metric] = ()) -> None:
        """Who the devices are, and which metrics the config names: one row each."""
        with self._db:
            for table in ("devices", "own_metrics"):
                self._db.execute(f"DELETE FROM {table}")
            insert(self._db, "devices", devices.to_dict("records"))
            insert(self._db, "own_metrics", [{"name": m.name, "facts": json.dumps(m.to_json())} for m in own])

    def record(self, record: RoundRecord, clusters: int, metrics: Mapping[str, float] | None = None) -> None:
        """One round, after which there are so many clusters, in one transaction.

        ``metrics`` are the values of the config's own metrics, where the round has any.
        """
        values = [{"round": record.round, "name": name, "value": value} for name, value in (metrics or {}).items()]
        with self._db:
            for table, rows in rows_of_round(record, clusters).items():
                insert(self._db, table, rows)
            insert(self._db, "metrics", values)

    def table(self, name: str) -> "pd.DataFrame":
        """One table of run.db, as it is so far."""
        import pandas as pd

        return pd.read_sql_query(f"SELECT * FROM {name} ORDER BY rowid", self._db)

    def checkpoint(self, state: State, saved: Saved, spent: Mapping[str, float]) -> None:
        """Write the state beside the last one, then switch to it; ``saved`` is the method's part of it."""
        write_state(self.folder, state, saved, spent)

    def finish(self, result: Result) -> None:
        """Models, tree, models × devices, summary."""
        folder, outcome = self.folder / MODELS, result.outcome
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, tensors in result.tensors.items():
            path = folder / f"{name}.safetensors"
            path.parent.mkdir(exist_ok=True)
            save_file(dict(tensors), path, dict(result.card) or None)
        write_json(self.folder / TREE, outcome.tree.to_json())
        with self._db:
            self._db.execute("DELETE FROM models")
            insert(self._db, "models", rows_of_models(outcome))
        write_json(self.folder / SUMMARY, result.summary())

    def close(self) -> None:
        """Fold the write-ahead log into run.db, or else readers would make it again, and let go of the directory."""
        with contextlib.suppress(sqlite3.OperationalError):  # someone is reading just now
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        self._lock.close()
