"""run.db: the tables of a run, and a round as rows of them."""

import contextlib
import errno
import itertools
import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedclade.core.errors import UserError, cannot
from fedclade.core.objective import Objective
from fedclade.core.records import EvaluationRecord, Event, RoundRecord
from fedclade.core.task import Score
from fedclade.metrics.outcome import Outcome, known
from fedclade.runs.directory import checksum, write_beside

FORMAT = 5  # of run.db; another one is not read
WITHOUT_CHECKSUMS = 4  # is read, too
SCHEMA = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE IF NOT EXISTS devices (device INTEGER PRIMARY KEY, planted_group INTEGER, train_samples INTEGER,
    test_samples INTEGER, distance_m REAL, power_w REAL, cpu_hz REAL);
CREATE TABLE IF NOT EXISTS rounds (round INTEGER PRIMARY KEY, start_seconds REAL, seconds REAL, makespan_seconds
    REAL, lower_bound_seconds REAL, makespan_ratio REAL, largest_latency_seconds REAL, broadcast_seconds REAL,
    asking_seconds REAL, deadline_seconds REAL, computed INTEGER, uploads INTEGER, missed INTEGER, lost INTEGER,
    clusters INTEGER, energy_joules REAL, accuracy_min REAL, accuracy_mean REAL, accuracy_max REAL,
    conventional_accuracy_min REAL, conventional_accuracy_mean REAL, r2_min REAL, r2_mean REAL, r2_max REAL,
    conventional_r2_min REAL, conventional_r2_mean REAL, loss REAL, objective REAL, objective_best REAL);
CREATE TABLE IF NOT EXISTS clusters (round INTEGER, node TEXT, members INTEGER, heard INTEGER, mean_norm REAL,
    max_norm REAL, verdict TEXT, PRIMARY KEY (round, node));
CREATE TABLE IF NOT EXISTS uploads (round INTEGER, device INTEGER, aggregation_set INTEGER, subchannel INTEGER,
    predecessor INTEGER, ready_seconds REAL, start_seconds REAL, end_seconds REAL, snr REAL, rate_bps REAL,
    energy_joules REAL, missed INTEGER, PRIMARY KEY (round, device));
CREATE TABLE IF NOT EXISTS evaluations (round INTEGER, device INTEGER, node TEXT, accuracy REAL, loss REAL,
    conventional_accuracy REAL, r2 REAL, conventional_r2 REAL, PRIMARY KEY (round, device));
CREATE TABLE IF NOT EXISTS objectives (round INTEGER, node TEXT, loss REAL, best_round INTEGER, best_loss REAL,
    PRIMARY KEY (round, node));
CREATE TABLE IF NOT EXISTS events (round INTEGER, kind TEXT, node TEXT, device INTEGER, detail TEXT);
CREATE TABLE IF NOT EXISTS splits (round INTEGER, node TEXT, devices TEXT, likeness BLOB, PRIMARY KEY (round, node));
CREATE TABLE IF NOT EXISTS scores (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS own_metrics (name TEXT PRIMARY KEY, facts TEXT);
CREATE TABLE IF NOT EXISTS metrics (round INTEGER, name TEXT, value REAL, PRIMARY KEY (round, name));
CREATE TABLE IF NOT EXISTS models (model TEXT, device INTEGER, accuracy REAL, r2 REAL, member INTEGER,
    PRIMARY KEY (model, device));
CREATE TABLE IF NOT EXISTS checksums (name TEXT, round INTEGER, sha256 TEXT, PRIMARY KEY (name, round));
"""
CHECKSUMS = "checksums"  # of the rows of each table and round; of the other tables as a whole, as round 0
TABLES = tuple(name for name in re.findall(r"TABLE IF NOT EXISTS (\w+)", SCHEMA) if name != CHECKSUMS)
PER_ROUND = ("rounds", "clusters", "uploads", "evaluations", "objectives", "events", "splits", "metrics")
Row = dict[str, Any]


# -------------------------------------------------------------------------------- opening


def open_to_write(path: Path) -> sqlite3.Connection:
    """run.db with all its tables, made where it is missing or empty."""
    with cannot("be read", path):
        made = path.is_file() and path.stat().st_size > 0
    if not made:
        write_beside(path, _without_rows())
    with told(path):
        db = sqlite3.connect(path)
        try:
            db.execute("PRAGMA journal_mode = WAL")  # opens it now, and recovers what a killed process left
        except sqlite3.Error:
            db.close()
            raise
        return db


def _without_rows() -> bytes:
    """A database in which nothing is recorded yet: written at once, as a half-made one could not be opened to read."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        content = bytearray(db.serialize())
    content[18:20] = b"\x02\x02"  # SQLite's file format: read and written with a write-ahead log
    return bytes(content)


@contextlib.contextmanager
def open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """run.db, to read only, as it is at this moment."""
    with cannot("be read", path):
        path.stat()  # SQLite would say no more than that it cannot open it
    with told(path), contextlib.closing(_to_read(path)) as db:
        db.execute("BEGIN")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        made = _made(db)
        if version not in (FORMAT, WITHOUT_CHECKSUMS) and made:
            raise UserError(f"{path}: is of another version of fedclade (format {version}, not {FORMAT}): run it anew")
        if made and version == FORMAT and made != _expected():
            raise sqlite3.DatabaseError("its tables are not those that fedclade makes")
        yield db


def _to_read(path: Path) -> sqlite3.Connection:
    """A connection that only reads; it may not undo what a killed process left half-done, so another one does."""
    name = path.resolve().as_uri()
    if path.with_name(f"{path.name}-journal").is_file():
        with contextlib.closing(sqlite3.connect(f"{name}?mode=rw", uri=True)) as db:
            db.execute("PRAGMA schema_version")
    return sqlite3.connect(f"{name}?mode=ro", uri=True)


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """What SQLite says against run.db is one line: whether it is damaged, in use, or whether the disk is at fault."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        trouble = _TROUBLE.get(code) or _TROUBLE.get(code & 0xFF)
        if trouble is not None:
            with cannot("be written" if trouble != errno.EIO else "be read or written", path):
                raise OSError(trouble, os.strerror(trouble)) from error
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise UserError(f"{path}: in use by another process: {error}") from error
        raise UserError(f"{path}: damaged: {error}") from error
    except UnicodeDecodeError as error:  # where SQLite finds bytes that are no text
        raise UserError(f"{path}: damaged: {error}") from error


_TROUBLE = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR_SHMSIZE: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
}


def _made(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


@cache
def _expected() -> list[tuple[Any, ...]]:
    """The tables as SQLite itself writes them down."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return _made(db)


def last_round(path: Path) -> int:
    """The last round in run.db, 0 where it was not made yet; refuses a damaged file, and changes nothing."""
    if not path.is_file():
        return 0
    with open_to_read(path) as db:
        (found,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(" ".join(found.split()))
        if not _made(db):
            return 0
        for table in PER_ROUND:
            read_table(db, table)
        (last,) = db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()
        return int(last)


def has_tables(path: Path) -> bool:
    """Whether run.db is there and its tables were made: not so in the first moments of a run."""
    if not path.is_file():
        return False
    with open_to_read(path) as db:
        return bool(_made(db))


# -------------------------------------------------------------------------------- rows, with their checksums


def read_table(db: sqlite3.Connection, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns and rows of a table; rows that do not match their checksums are damaged."""
    found = db.execute(f"SELECT * FROM {table} ORDER BY rowid")
    columns, rows = [column[0] for column in found.description], found.fetchall()
    if db.execute("PRAGMA user_version").fetchone() == (WITHOUT_CHECKSUMS,):
        return columns, rows
    parts = itertools.groupby(rows, key=lambda row: row[0] if table in PER_ROUND else 0)
    sums = {number: _sum(list(part)) for number, part in parts}
    known = dict(db.execute(f"SELECT round, sha256 FROM {CHECKSUMS} WHERE name = ?", (table,)).fetchall())
    if sums != known:
        differing = (number for number in sums.keys() | known.keys() if sums.get(number) != known.get(number))
        odd = min(differing, key=lambda number: number if isinstance(number, int) else 0)  # a damaged one is no number
        where = f" in round {odd}" if table in PER_ROUND else ""
        raise sqlite3.DatabaseError(f"table {table} does not match its checksum{where}")
    return columns, rows


def _sum(rows: list[tuple[Any, ...]]) -> str:
    return checksum(repr(rows).encode())


def insert(db: sqlite3.Connection, table: str, rows: Sequence[Mapping[Any, Any]], round_: int = 0) -> None:
    """Add rows, each a mapping of the same columns, to a table, and their checksum; all that a round has, at once."""
    if rows:
        (before,) = db.execute(f"SELECT coalesce(max(rowid), -1) FROM {table}").fetchone()
        names = list(rows[0])
        marks = ", ".join(f":{name}" for name in names)
        db.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", rows)
        stored = db.execute(f"SELECT * FROM {table} WHERE rowid > ? ORDER BY rowid", (before,)).fetchall()
        db.execute(f"INSERT INTO {CHECKSUMS} VALUES (?, ?, ?)", (table, round_, _sum(stored)))


def empty(db: sqlite3.Connection, table: str) -> None:
    """Delete all rows of a table that has no rounds."""
    db.execute(f"DELETE FROM {table}")
    db.execute(f"DELETE FROM {CHECKSUMS} WHERE name = ?", (table,))


def cut_off(db: sqlite3.Connection, round_: int) -> None:
    """Delete all that was recorded of rounds after this one."""
    for table in (*PER_ROUND, CHECKSUMS):
        db.execute(f"DELETE FROM {table} WHERE round > ?", (round_,))


def finite(value: float) -> float | None:
    """The number, or None where it is infinite or not a number."""
    return float(value) if np.isfinite(value) else None


# -------------------------------------------------------------------------------- a round as rows


def rows_of_round(record: RoundRecord, clusters: int, score: Score, by_device: bool = True) -> dict[str, list[Row]]:
    """A round, after which there are so many clusters, as rows of its tables: table -> rows.

    Without ``by_device`` there are no uploads, and of the events that devices have only how many of each kind.
    """
    events = record.events if by_device else counted(record.events)
    return {
        "rounds": [_round(record, clusters, score)],
        "clusters": [{"round": record.round, **vars(cluster)} for cluster in record.clusters],
        "uploads": _uploads(record) if by_device else [],
        "evaluations": [] if record.evaluation is None else _evaluations(record.round, record.evaluation, score),
        "objectives": [] if record.evaluation is None else _objectives(record.round, record.evaluation.objective),
        "events": [
            {
                "round": record.round,
                "kind": event.kind,
                "node": event.node,
                "device": event.device,
                "detail": json.dumps(dict(event.detail)),
            }
            for event in events
        ],
        "splits": [
            {
                "round": record.round,
                "node": event.node,
                "devices": json.dumps(event.likeness[0].tolist()),
                "likeness": event.likeness[1].astype("<f2").tobytes(),
            }
            for event in record.events
            if event.likeness is not None
        ],
    }


def counted(events: Sequence[Event]) -> list[Event]:
    """The events, with those of single devices replaced by their number in each cluster."""
    of_devices = Counter((event.kind, event.node) for event in events if event.device is not None)
    plain = [event for event in events if event.device is None]
    return plain + [Event(kind, node, detail={"devices": count}) for (kind, node), count in of_devices.items()]


def _round(record: RoundRecord, clusters: int, score: Score) -> Row:
    timeline, evaluation = record.timeline, record.evaluation
    objective = evaluation.objective if evaluation else None
    own = known(evaluation.score) if evaluation else None
    one = known(evaluation.conventional_score) if evaluation else None
    return {
        "round": record.round,
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
        "clusters": clusters,
        "energy_joules": record.energy_joules,
        f"{score.name}_min": None if own is None else float(own.min()),
        f"{score.name}_mean": None if own is None else float(own.mean()),
        f"{score.name}_max": None if own is None else float(own.max()),
        f"conventional_{score.name}_min": None if one is None else float(one.min()),
        f"conventional_{score.name}_mean": None if one is None else float(one.mean()),
        "loss": None if objective is None else finite(objective.loss),
        "objective": None if objective is None else finite(objective.now),
        "objective_best": None if objective is None else finite(objective.least),
    }


def _uploads(record: RoundRecord) -> list[Row]:
    timeline = record.timeline
    return [
        {
            "round": record.round,
            "device": int(device),
            "aggregation_set": int(timeline.aggregation_set[i]),
            "subchannel": int(timeline.subchannel[i]),
            "predecessor": int(timeline.predecessor[i]),
            "ready_seconds": float(timeline.ready[i]),
            "start_seconds": finite(timeline.start[i]),
            "end_seconds": finite(timeline.end[i]),
            "snr": float(record.links.snr[device]),
            "rate_bps": float(record.links.rate_bps[device]),
            "energy_joules": float(record.device_joules[device]),
            "missed": int(timeline.missed[i]),
        }
        for i, device in enumerate(timeline.device)
    ]


def _evaluations(round_: int, evaluation: EvaluationRecord, score: Score) -> list[Row]:
    everyone = range(len(evaluation.node))
    asked = everyone if evaluation.asked is None else set(evaluation.asked.tolist())
    return [
        {
            "round": round_,
            "device": device,
            "node": node,
            score.name: float(evaluation.score[device]),
            "loss": float(evaluation.loss[device]),
            f"conventional_{score.name}": float(evaluation.conventional_score[device]),
        }
        for device, node in enumerate(evaluation.node)
        if device in asked
    ]


def _objectives(round_: int, objective: Objective | None) -> list[Row]:
    if objective is None:
        return []
    return [
        {
            "round": round_,
            "node": name,
            "loss": finite(loss),
            "best_round": objective.best[name].round,
            "best_loss": finite(objective.best[name].loss),
        }
        for name, loss in objective.losses.items()
    ]


def rows_of_models(outcome: Outcome) -> list[Row]:
    """Score of every model on every device, and whether the device is one of those it was made for."""
    everyone = range(outcome.tree.device_count)
    made_for = {name: set(outcome.tree.members(name).tolist()) for name in outcome.tree.nodes}
    return [
        {
            "model": name,
            "device": device,
            outcome.scored.name: float(score[device]),
            "member": int(device in made_for.get(name, everyone)),  # the conventional model is for all
        }
        for name, score in outcome.score_of.items()
        for device in (everyone if outcome.asked is None else outcome.asked.tolist())
    ]
