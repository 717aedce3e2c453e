"""The run directory: write, resume, read.

::

    config.toml    the whole effective config
    machine.json   the processor and the libraries that the run was begun with
    run.db         SQLite, one transaction a round: devices, rounds, clusters, uploads, evaluations, events, splits
                   (the cosines that decided), models
    state/         the last checkpoint: state.json names a safetensors file and its SHA-256
    models/        one safetensors per tree node and the conventional model, tree.json
    summary.json   the headline numbers

Everything is written beside its place and renamed, so a run killed at any moment can be resumed from its last
checkpoint: rows of later rounds are dropped and made again, the same to the byte.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load_file, save, save_file

from fedclade import config as configuration
from fedclade.clustering import Kinship, Outlook, Tree
from fedclade.config import Config
from fedclade.core import machine
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.state import CONVENTIONAL, RoundRecord, ServerState
from fedclade.metrics import fairness
from fedclade.server import Server

FORMAT = 2  # of run.db; another one is not read
SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE IF NOT EXISTS devices (device INTEGER PRIMARY KEY, planted_group INTEGER, train_samples INTEGER,
    test_samples INTEGER, distance_m REAL, power_w REAL, cpu_hz REAL);
CREATE TABLE IF NOT EXISTS rounds (round INTEGER PRIMARY KEY, start_seconds REAL, seconds REAL, makespan_seconds
    REAL, lower_bound_seconds REAL, makespan_ratio REAL, largest_latency_seconds REAL, broadcast_seconds REAL,
    asking_seconds REAL, deadline_seconds REAL, computed INTEGER, uploads INTEGER, missed INTEGER, lost INTEGER,
    clusters INTEGER, energy_joules REAL, accuracy_min REAL, accuracy_mean REAL, accuracy_max REAL,
    conventional_accuracy_min REAL, conventional_accuracy_mean REAL);
CREATE TABLE IF NOT EXISTS clusters (round INTEGER, node TEXT, members INTEGER, heard INTEGER, mean_norm REAL,
    max_norm REAL, verdict TEXT, PRIMARY KEY (round, node));
CREATE TABLE IF NOT EXISTS uploads (round INTEGER, device INTEGER, aggregation_set INTEGER, subchannel INTEGER,
    predecessor INTEGER, ready_seconds REAL, start_seconds REAL, end_seconds REAL, snr REAL, rate_bps REAL,
    energy_joules REAL, missed INTEGER, PRIMARY KEY (round, device));
CREATE TABLE IF NOT EXISTS evaluations (round INTEGER, device INTEGER, node TEXT, accuracy REAL, loss REAL,
    conventional_accuracy REAL, PRIMARY KEY (round, device));
CREATE TABLE IF NOT EXISTS events (round INTEGER, kind TEXT, node TEXT, device INTEGER, detail TEXT);
CREATE TABLE IF NOT EXISTS splits (round INTEGER, node TEXT, devices TEXT, likeness BLOB, PRIMARY KEY (round, node));
CREATE TABLE IF NOT EXISTS models (model TEXT, device INTEGER, accuracy REAL, member INTEGER, PRIMARY KEY (model,
    device));
"""
REAL_DEVICES = "devices.json"  # of a run that was not simulated
MACHINE = "machine.json"
PER_ROUND = ("rounds", "clusters", "uploads", "evaluations", "events", "splits")


# -------------------------------------------------------------------------------- writing


class RunWriter:
    """A run directory being written; only one process at a time may."""

    def __init__(self, folder: Path, lock: TextIO) -> None:
        self.folder, self._lock = folder, lock
        self._db = sqlite3.connect(folder / "run.db")
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.executescript(SCHEMA)
        except sqlite3.DatabaseError as error:
            raise UserError(f"{folder / 'run.db'}: damaged: {error}") from error

    @classmethod
    def create(cls, folder: Path, config: Config, overwrite: bool = False) -> "RunWriter":
        """A new directory; an existing one is kept unless ``overwrite``."""
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file: choose another --out")
        if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            if not (folder / "config.toml").is_file():
                raise UserError(f"{folder} exists and is no run: choose another --out")
            if not overwrite:
                raise UserError(
                    f"{folder} exists: resume it with --resume {folder}, or give --overwrite or another --out"
                )
            with _locked(folder):
                pass  # nobody is writing it
            shutil.rmtree(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be made: {error.strerror}") from error
        lock = _take_lock(folder)
        write_beside(folder / "config.toml", configuration.to_toml(config).encode())
        write_beside(folder / MACHINE, json.dumps(machine.facts(), indent=1).encode())
        return cls(folder, lock)

    @classmethod
    def reopen(
        cls, folder: Path, parameters: int, initial: ServerState
    ) -> tuple["RunWriter", ServerState, dict[str, float]]:
        """An existing run at its checkpoint (see ``read_state``), later rows cut off; a damaged one stays as it is."""
        lock = _take_lock(folder)
        try:
            state, spent = read_state(folder, parameters, initial)
            last = _last_round(folder / "run.db")
            if last < state.round:
                raise UserError(f"{folder / 'run.db'}: ends at round {last}, before the checkpoint's {state.round}")
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
            self._insert("devices", devices.to_dict("records"))

    def record(self, record: RoundRecord) -> None:
        """One round, in one transaction."""
        with self._db:
            for table, rows in _rows(record).items():
                self._insert(table, rows)

    def _insert(self, table: str, rows: Sequence[Mapping[Any, Any]]) -> None:
        if rows:
            names = list(rows[0])
            marks = ", ".join(f":{name}" for name in names)
            self._db.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)

    def checkpoint(self, state: ServerState, spent: Mapping[str, float]) -> None:
        """Write the state beside the last one, then switch to it."""
        folder = self.folder / "state"
        folder.mkdir(exist_ok=True)
        tensors = {f"model/{name}": model for name, model in state.models.items()}
        tensors |= {"updates": state.updates}
        if state.kinship is not None:
            tensors |= {f"kinship/{name}": table for name, table in vars(state.kinship).items()}
        if state.conventional is not None:
            tensors["conventional"] = state.conventional
        blob = save(tensors)
        name = f"round-{state.round:06d}.safetensors"
        write_beside(folder / name, blob)
        facts = {
            "round": state.round,
            "seconds": state.seconds,
            "spent": dict(spent),
            "tensors": name,
            "sha256": hashlib.sha256(blob).hexdigest(),
            "last_heard": state.last_heard.tolist(),
            "participation": state.participation.tolist(),
            "energy_joules": state.energy_joules.tolist(),
            "present_rounds": state.present_rounds.tolist(),
            "retry": state.retry.tolist(),
            "losses": [_finite(loss) for loss in state.losses],
            "outlooks": {name: asdict(outlook) for name, outlook in state.outlooks.items()},
            "tree": state.tree.to_json(),
        }
        write_beside(folder / "state.json", json.dumps(facts, indent=1).encode())
        for old in folder.glob("round-*.safetensors"):
            if old.name != name:
                old.unlink()

    def finish(self, server: Server, state: ServerState, group: Ints, end: str) -> None:
        """Models, tree, models × devices, summary."""
        folder = self.folder / "models"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        flat = dict(state.models)
        flat[CONVENTIONAL] = flat["0"] if state.conventional is None else state.conventional
        for name, model in flat.items():
            save_file(server.trainer.named_tensors(model), folder / f"{name}.safetensors")
        write_beside(folder / "tree.json", json.dumps(state.tree.to_json(), indent=1).encode())

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
            self._insert("models", rows)
        summary = summarise(server, state, group, accuracy[names.index(CONVENTIONAL)], end)
        summary |= server.stopwatch.summary() | machine.facts()
        write_beside(self.folder / "summary.json", json.dumps(summary, indent=1).encode())

    def close(self) -> None:
        """Fold the write-ahead log into run.db, or else readers would make it again, and let go of the directory."""
        with contextlib.suppress(sqlite3.OperationalError):  # someone is reading just now
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        self._lock.close()


def _rows(record: RoundRecord) -> dict[str, list[dict[str, Any]]]:
    """A round as rows of its tables."""
    timeline, evaluation, round_ = record.timeline, record.evaluation, record.round
    accuracy = _known(evaluation.accuracy) if evaluation else None
    conventional = _known(evaluation.conventional_accuracy) if evaluation else None
    return {
        "rounds": [
            {
                "round": round_,
                "start_seconds": record.start_seconds,
                "seconds": record.seconds,
                "makespan_seconds": timeline.makespan,
                "lower_bound_seconds": timeline.lower_bound,
                "makespan_ratio": timeline.ratio,
                "largest_latency_seconds": timeline.largest_latency,
                "broadcast_seconds": record.broadcast_seconds,
                "asking_seconds": record.asking_seconds,
                "deadline_seconds": record.deadline_seconds,
                "computed": len(record.computed),
                "uploads": int((~timeline.missed).sum()),
                "missed": int(timeline.missed.sum()),
                "lost": sum(event.kind == "lost" for event in record.events),
                "clusters": len(record.clusters) + sum(event.kind == "split" for event in record.events),
                "energy_joules": record.energy_joules,
                "accuracy_min": None if accuracy is None else float(accuracy.min()),
                "accuracy_mean": None if accuracy is None else float(accuracy.mean()),
                "accuracy_max": None if accuracy is None else float(accuracy.max()),
                "conventional_accuracy_min": None if conventional is None else float(conventional.min()),
                "conventional_accuracy_mean": None if conventional is None else float(conventional.mean()),
            }
        ],
        "clusters": [{"round": round_, **vars(cluster)} for cluster in record.clusters],
        "uploads": [
            {
                "round": round_,
                "device": int(device),
                "aggregation_set": int(timeline.aggregation_set[i]),
                "subchannel": int(timeline.subchannel[i]),
                "predecessor": int(timeline.predecessor[i]),
                "ready_seconds": float(timeline.ready[i]),
                "start_seconds": _finite(timeline.start[i]),
                "end_seconds": _finite(timeline.end[i]),
                "snr": float(record.links.snr[device]),
                "rate_bps": float(record.links.rate_bps[device]),
                "energy_joules": float(record.device_joules[device]),
                "missed": int(timeline.missed[i]),
            }
            for i, device in enumerate(timeline.device)
        ],
        "evaluations": []
        if evaluation is None
        else [
            {
                "round": round_,
                "device": device,
                "node": node,
                "accuracy": float(evaluation.accuracy[device]),
                "loss": float(evaluation.loss[device]),
                "conventional_accuracy": float(evaluation.conventional_accuracy[device]),
            }
            for device, node in enumerate(evaluation.node)
        ],
        "events": [
            {
                "round": round_,
                "kind": event.kind,
                "node": event.node,
                "device": event.device,
                "detail": json.dumps(dict(event.detail)),
            }
            for event in record.events
        ],
        "splits": [
            {
                "round": round_,
                "node": event.node,
                "devices": json.dumps(event.likeness[0].tolist()),
                "likeness": event.likeness[1].astype("<f2").tobytes(),
            }
            for event in record.events
            if event.likeness is not None
        ],
    }


def _known(accuracy: Floats) -> Floats:
    """Of the devices that told: a real one may be gone; where none told, all of them."""
    known = ~np.isnan(accuracy)
    return accuracy[known] if known.any() else accuracy


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def summarise(server: Server, state: ServerState, group: Ints, conventional: Floats, end: str) -> dict[str, Any]:
    """The headline numbers of a finished run, one flat object."""
    splits = sorted((node.split for node in state.tree.nodes.values() if node.split), key=lambda split: split.round)
    accuracy, conventional = _known(server.evaluate(state).accuracy), _known(conventional)
    uploads = int(state.participation.sum())
    planted = len(np.unique(group)) > 1
    there = state.present_rounds > 0
    shares = state.participation[there] / state.present_rounds[there]  # of the rounds in which it could
    return {
        "policy": server.planner.policy.name,
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


# -------------------------------------------------------------------------------- resuming


def read_config(folder: Path) -> Config:
    """The config a run was started with."""
    if not (folder / "config.toml").is_file():
        raise UserError(f"{folder}: no run here (config.toml is missing)")
    return configuration.load(str(folder / "config.toml"))


def read_state(folder: Path, parameters: int, initial: ServerState) -> tuple[ServerState, dict[str, float]]:
    """The last checkpoint and the stopwatch's counts until then; ``initial`` where none was reached."""
    path = folder / "state" / "state.json"
    if not path.is_file():
        return initial, {}
    try:
        facts = json.loads(path.read_text("utf-8"))
        blob_path = path.parent / facts["tensors"]
        if hashlib.sha256(blob_path.read_bytes()).hexdigest() != facts["sha256"]:
            raise ValueError(f"{facts['tensors']} does not match its SHA-256")
        tensors = load_file(blob_path)
        devices = len(facts["last_heard"])
        state = ServerState(
            round=facts["round"],
            seconds=facts["seconds"],
            tree=Tree.from_json(facts["tree"], devices),
            models={name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")},
            conventional=tensors.get("conventional"),
            updates=tensors["updates"],
            last_heard=np.array(facts["last_heard"], dtype=np.int64),
            participation=np.array(facts["participation"], dtype=np.int64),
            energy_joules=np.array(facts["energy_joules"]),
            present_rounds=np.array(facts["present_rounds"], dtype=np.int64),
            retry=np.array(facts["retry"], dtype=np.int64),
            losses=np.array(facts["losses"], dtype=np.float64),
            kinship=_kinship(tensors),
            outlooks={name: Outlook(**row) for name, row in facts["outlooks"].items()},
        )
        fits = state.updates.shape[1] == initial.updates.shape[1] and devices <= len(
            initial.updates
        )  # more may have come since
        if not fits or any(len(m) != parameters for m in state.models.values()):
            raise ValueError(f"made by another model or population: {state.updates.shape}")
        return state, {name: float(count) for name, count in facts["spent"].items()}
    except (OSError, ValueError, KeyError, TypeError, AssertionError, SafetensorError) as error:
        raise UserError(f"{path.parent}: the checkpoint is damaged: {error}") from error


def _kinship(tensors: Mapping[str, Any]) -> Kinship | None:
    found = {name.removeprefix("kinship/"): t for name, t in tensors.items() if name.startswith("kinship/")}
    return Kinship(**found) if found else None


def _last_round(path: Path) -> int:
    """The last round in run.db, 0 where it was not made yet; refuses a damaged file, and changes nothing."""
    if not path.is_file():
        return 0
    with _reading(path) as db:
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(" ".join(found.split()))
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rounds'").fetchone() is None:
            return 0
        (last,) = db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()
        return int(last)


# -------------------------------------------------------------------------------- reading


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """run.db, to read only."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version != FORMAT and db.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise UserError(
                    f"{path}: is of another version of fedclade (format {version}, not {FORMAT}): run it anew"
                )
            yield db
    except (sqlite3.DatabaseError, pd.errors.DatabaseError) as error:
        raise UserError(f"{path}: damaged: {error}") from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: damaged: {error}") from error


class Run:
    """A run directory, read. Tables come as pandas frames."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = read_config(self.folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.folder / "summary.json").is_file()

    @property
    def machine(self) -> dict[str, str]:
        """The processor and the libraries that the run was begun with; empty for a run that did not record them."""
        path = self.folder / MACHINE
        recorded: dict[str, str] = _read_json(path) if path.is_file() else {}
        return recorded

    @property
    def summary(self) -> dict[str, Any]:
        """The headline numbers of a finished run."""
        if not self.finished:
            raise UserError(f"{self.folder}: not finished; continue it with: fedclade run --resume {self.folder}")
        summary: dict[str, Any] = _read_json(self.folder / "summary.json")
        return summary

    @property
    def tree(self) -> list[dict[str, Any]]:
        """The tree of models, one object per node."""
        for path, key in (
            (self.folder / "models/tree.json", None),
            (self.folder / "state/state.json", "tree"),
        ):
            if path.is_file():
                data = _read_json(path)
                tree: list[dict[str, Any]] = data[key] if key else data
                return tree
        return []

    def model(self, name: str) -> dict[str, Singles]:
        """A node's model, or the "conventional" one, as named arrays."""
        path = self.folder / "models" / f"{name}.safetensors"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in path.parent.glob("*.safetensors")))
            raise UserError(f"{self.folder}: no model {name!r}; there are: {known or 'none yet'}")
        return load_file(path)

    def table(self, name: str) -> pd.DataFrame:
        """One table of run.db."""
        with _reading(self.folder / "run.db") as db:
            return pd.read_sql_query(f"SELECT * FROM {name} ORDER BY rowid", db)

    @property
    def devices(self) -> pd.DataFrame:
        """One row a device: planted group, data, place, power, speed."""
        return self.table("devices")

    @property
    def rounds(self) -> pd.DataFrame:
        """One row a round: times, uploads, energy, accuracy."""
        return self.table("rounds")

    @property
    def clusters(self) -> pd.DataFrame:
        """One row a round and cluster: norms and verdict."""
        return self.table("clusters")

    @property
    def uploads(self) -> pd.DataFrame:
        """One row a round and selected device: when it uploaded on which sub-channel."""
        return self.table("uploads")

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row an evaluated round and device."""
        return self.table("evaluations")

    @property
    def events(self) -> pd.DataFrame:
        """Splits, stops, re-openings, missed rounds, placements; ``detail`` as a dict."""
        frame = self.table("events")
        frame["detail"] = frame["detail"].map(json.loads)
        return frame

    @property
    def splits(self) -> pd.DataFrame:
        """One row a split: the ``devices`` that decided, and their ``likeness`` (a matrix; ``by`` in the event)."""
        frame = self.table("splits")
        frame["devices"] = frame["devices"].map(json.loads)
        matrices = frame["likeness"].map(lambda blob: np.frombuffer(blob, "<f2").astype(np.float32))
        frame["likeness"] = matrices.map(lambda flat: flat.reshape(math.isqrt(len(flat)), -1))
        return frame

    @property
    def models(self) -> pd.DataFrame:
        """Accuracy of every model on every device: models × devices."""
        return self.table("models")


def open_run(folder: str | Path) -> Run:
    """Read a run directory, finished or not."""
    return Run(folder)


# -------------------------------------------------------------------------------- files


def write_beside(path: Path, content: bytes) -> None:
    """Write beside and rename: the file is there whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _take_lock(folder: Path) -> TextIO:
    lock = open(folder / ".lock", "w")  # noqa: SIM115 - held as long as the run is written
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise UserError(f"{folder}: another process is writing this run") from error
    return lock


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = _take_lock(folder)
    try:
        yield
    finally:
        lock.close()


def free_folder(parent: Path, name: str) -> Path:
    """``parent/name``, or with the first number behind it that is free."""
    candidates = (parent / (name if n == 1 else f"{name}-{n}") for n in range(1, 1_000_000))
    return next(folder for folder in candidates if not folder.exists())


def differences(one: Config, other: Config) -> Mapping[str, tuple[object, object]]:
    """The fields in which two configs differ: name -> both values; None for a custom field that one of them lacks."""
    mine, theirs = ({name: value for name, value, _ in configuration.fields_of(each)} for each in (one, other))
    pairs = {name: (mine.get(name), theirs.get(name)) for name in mine | theirs}
    return {name: (a, b) for name, (a, b) in pairs.items() if a != b}
