"""A run directory being written: rounds, checkpoints, and what came out in the end."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from safetensors.numpy import save

from fedclade.config import Config
from fedclade.core.arrays import Singles
from fedclade.core.errors import UserError, cannot
from fedclade.core.records import RoundRecord
from fedclade.core.state import BEST, State
from fedclade.core.task import ACCURACY, Score
from fedclade.metrics import Metric, Outcome
from fedclade.metrics.registry import summarise
from fedclade.runs.checkpoint import LoadMethod, Saved, read_state, remove_old_states, write_state
from fedclade.runs.database import (
    cut_off,
    empty,
    insert,
    last_round,
    open_to_write,
    read_table,
    rows_of_models,
    rows_of_round,
    told,
)
from fedclade.runs.directory import (
    DATABASE,
    MACHINE,
    MANIFEST,
    MARK,
    MODELS,
    SUMMARY,
    TREE,
    Manifest,
    is_marked,
    make_directory,
    remove_leftovers,
    take_lock,
    write_beside,
    write_machine,
)

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
            "reveals": outcome.reveals,
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
        self._score = ACCURACY
        try:
            self._db = open_to_write(folder / DATABASE)
        except UserError:
            lock.close()
            raise

    @classmethod
    def create(
        cls, folder: Path, config: Config, overwrite: bool = False, more: Mapping[str, bytes] | None = None
    ) -> "RunWriter":
        """A new directory, with ``more`` files in it; an existing one is kept unless ``overwrite``."""
        return cls(folder, make_directory(folder, config, overwrite, more))

    @classmethod
    def reopen(
        cls, folder: Path, initial: State, load_method: LoadMethod
    ) -> tuple["RunWriter", State, dict[str, float]]:
        """An existing run at its checkpoint (see ``read_state``), later rows cut off; a damaged one stays as it is."""
        if not is_marked(folder, "run"):
            raise UserError(f"{folder}: its mark {MARK} is missing or damaged, or of an earlier version: run it anew")
        lock = take_lock(folder)
        try:
            state, spent = read_state(folder, initial, load_method)
            last = last_round(folder / DATABASE)
            if last < state.round:
                raise UserError(f"{folder / DATABASE}: ends at round {last}, before the checkpoint's {state.round}")
        except UserError:
            lock.close()
            raise
        remove_leftovers(folder)
        remove_old_states(folder)
        if not (folder / MACHINE).is_file():  # it died before it had begun
            write_machine(folder)
        writer = cls(folder, lock)
        with writer._transaction() as db:
            cut_off(db, state.round)
            empty(db, "models")
        return writer, state, spent

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done within is done, or nothing of it."""
        with told(self.folder / DATABASE), self._db:
            yield self._db

    def describe(self, devices: "pd.DataFrame", own: Sequence[Metric] = (), score: Score = ACCURACY) -> None:
        """Who the devices are, and which metrics the config names, one row each; and what devices are scored by."""
        self._score = score
        with self._transaction() as db:
            for table in ("devices", "own_metrics", "scores"):
                empty(db, table)
            insert(db, "devices", devices.to_dict("records"))
            insert(db, "scores", [{"name": score.name}])
            insert(db, "own_metrics", [{"name": m.name, "facts": json.dumps(m.to_json())} for m in own])

    def record(
        self,
        record: RoundRecord,
        clusters: int,
        metrics: Mapping[str, float] | None = None,
        by_device: bool = True,
    ) -> None:
        """One round, after which there are so many clusters, in one transaction; with every device's, or sums.

        ``metrics`` are the values of the config's own metrics, where the round has any.
        """
        values = [{"round": record.round, "name": name, "value": value} for name, value in (metrics or {}).items()]
        with self._transaction() as db:
            for table, rows in rows_of_round(record, clusters, self._score, by_device).items():
                insert(db, table, rows, record.round)
            insert(db, "metrics", values, record.round)

    def table(self, name: str) -> "pd.DataFrame":
        """One table of run.db, as it is so far."""
        import pandas as pd

        with told(self.folder / DATABASE):
            columns, rows = read_table(self._db, name)
        return pd.DataFrame.from_records(rows, columns=columns, coerce_float=True)

    def checkpoint(self, state: State, saved: Saved, spent: Mapping[str, float]) -> None:
        """Write the state beside the last one, then switch to it; ``saved`` is the method's part of it."""
        write_state(self.folder, state, saved, spent)

    def finish(self, result: Result) -> None:
        """Models, tree, models × devices, then the manifest with their checksums; the summary is the last."""
        outcome, manifest = result.outcome, Manifest(self.folder)
        with cannot("be written", self.folder / MODELS):
            (self.folder / MANIFEST).unlink(missing_ok=True)
            for pattern in ("*.safetensors", f"{BEST}/*.safetensors"):
                for old in (self.folder / MODELS).glob(pattern):
                    old.unlink()
            for name, tensors in result.tensors.items():
                manifest.write(f"{MODELS}/{name}.safetensors", save(dict(tensors), dict(result.card) or None))
            manifest.write(TREE, json.dumps(outcome.tree.to_json(), indent=1).encode())
        with self._transaction() as db:
            empty(db, "models")
            insert(db, "models", rows_of_models(outcome))
        summary = json.dumps(result.summary(), indent=1).encode()
        manifest.note(SUMMARY, summary)
        manifest.save()
        write_beside(self.folder / SUMMARY, summary)

    def close(self) -> None:
        """Fold the write-ahead log into run.db, or else readers would make it again, and let go of the directory."""
        with contextlib.suppress(sqlite3.OperationalError):  # someone is reading just now, or the disk is full
            self._db.execute("PRAGMA journal_mode = DELETE")
        with contextlib.suppress(sqlite3.OperationalError):
            self._db.close()
        self._lock.close()
