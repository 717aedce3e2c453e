"""Traces: what links or devices were like in each round, read from a CSV or Parquet file.

A row holds from its round on, until the next row of the same device. So a file may have a row for every device and
round, or only those rows in which something changes. The trace is as long as the last round that it names.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fedclade.config.sections import TraceEnd
from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.parquet import GIGABYTE, read_parquet

MOST_ROUNDS = 1_000_000_000
MOST_BYTES = 2 * GIGABYTE  # of a Parquet file in memory
Fits: TypeAlias = Callable[[float], bool]

# What a column may hold: its check, and what is right in words.
COLUMNS: Mapping[str, tuple[Fits, str]] = {
    "device": (lambda number: number >= 0, "must be a whole number from 0"),
    "round": (lambda number: 1 <= number <= MOST_ROUNDS, "must be a whole number from 1"),
    "gain": (lambda gain: 0 <= gain < np.inf, "must be a power gain of at least 0"),
    "gain_db": (lambda gain: -3000 <= gain <= 300, "must be a power gain in dB, from -3000 to 300"),
    "rate_bps": (lambda rate: 0 <= rate < np.inf, "must be a rate of at least 0 bit/s"),
    "cpu_hz": (lambda speed: 0 < speed < np.inf, "must be a clock above 0 Hz"),
    "seconds_per_sample": (lambda seconds: 0 < seconds < np.inf, "must be a time above 0 s"),
    "available": (lambda there: there in (0, 1), "must be 1 where the device is there, else 0"),
}
WHOLE = ("device", "round")
CHANNEL = ("gain", "gain_db", "rate_bps")  # of a channel trace the first of these counts
SPEED = ("cpu_hz", "seconds_per_sample")  # of a device trace likewise, if it has one of them
DEVICE = (*SPEED, "available")


@dataclass(frozen=True)
class Trace:
    """The rows of a trace, in order of device and round; every device has a row for round 1."""

    path: str
    device: Ints
    round: Ints  # from which on a row holds
    columns: Mapping[str, Floats]
    rounds: int  # how many the trace has
    end: TraceEnd = "repeat"  # what comes after the last of them

    def played(self, round_: int) -> int:
        """The round of the trace (from 1) that is played in a round of the run."""
        if round_ <= self.rounds:
            return round_
        return (round_ - 1) % self.rounds + 1 if self.end == "repeat" else self.rounds

    def rows(self, round_: int) -> Ints:
        """For each device the row that holds in a round of the run."""
        key = self.device * (self.rounds + 1) + self.round
        wanted = np.arange(self.device[-1] + 1) * (self.rounds + 1) + self.played(round_)
        return np.asarray(np.searchsorted(key, wanted, side="right") - 1, dtype=np.int64)

    def mean(self, values: Floats) -> Floats:
        """For each device the mean over the trace's rounds of a value that every row has."""
        last_of_device = np.append(self.device[1:] != self.device[:-1], True)
        until = np.where(last_of_device, self.rounds + 1, np.roll(self.round, -1))
        return np.bincount(self.device, values * (until - self.round)) / self.rounds


def read_trace(field: str, path: str, wanted: Sequence[str], devices: int, end: TraceEnd, rounds: int) -> Trace:
    """The trace that a field of the config names, for the first so many devices.

    Parameters
    ----------
    field : str
        The field that names the file, for messages.
    path : str
        The CSV file, whose first line names the columns, or Parquet file: ``device`` (from 0), ``round`` (from 1; left
        out: 1 in every row) and at least one of ``wanted``. Other columns are not looked at.
    wanted : names of COLUMNS
        What may be there.
    devices : int
        How many devices the run has. Rows of further devices are not looked at.
    end : "repeat", "hold" or "refuse"
        What comes after the last round of the trace; the last refuses a run that is longer.
    rounds : int
        How many rounds the run has.
    """
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise UserError(f'{field} = "{path}": must be a file')  # a device or a pipe may never end
        if path.endswith(".parquet"):
            trace = _read(path, _parquet_rows(path), wanted, devices, end)
        else:
            with Path(path).open(encoding="utf-8-sig", newline="") as file:
                trace = _read(path, csv.reader(file, strict=True), wanted, devices, end)
    except OSError as error:
        raise UserError(f'{field} = "{path}": cannot be read: {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise UserError(f'{field} = "{path}": must be a CSV or .parquet file, and is not UTF-8 text') from error
    except csv.Error as error:
        raise UserError(f"{path}: not a CSV file: {error}") from error
    missing = np.setdiff1d(np.arange(devices), trace.device[trace.round == 1])
    if len(missing):
        raise UserError(
            f"{path}: device {missing[0]} has no row for round 1; each of the {devices} devices, 0 to {devices - 1}, "
            "needs one"
        )
    if end == "refuse" and trace.rounds < rounds:
        raise UserError(f'edge.trace_end = "refuse": {path} has {trace.rounds} rounds, run.rounds is {rounds}')
    return trace


def _read(path: str, rows: Iterator[list[str]], wanted: Sequence[str], devices: int, end: TraceEnd) -> Trace:
    """The columns that are wanted, of the rows of the first so many devices."""
    header = [name.strip() for name in next(rows, [])]
    names = _names(path, header, wanted)
    places = [header.index(name) for name in names]
    found: dict[str, list[float]] = {name: [] for name in ("line", "round", *names)}
    rounds = 1
    for line, cells in enumerate(rows, start=2):
        if not cells:  # an empty line
            continue
        if len(cells) != len(header):
            raise UserError(f"{path}: line {line}: has {len(cells)} cells, must have {len(header)} as line 1 has")
        values: dict[str, float] = {"line": line, "round": 1}
        for name, place in zip(names, places, strict=True):
            values[name] = _value(path, line, name, cells[place])
        rounds = max(rounds, int(values["round"]))
        if values["device"] < devices:
            for name, value in values.items():
                found[name].append(value)
    return _in_order(path, {name: np.array(values, dtype=np.float64) for name, values in found.items()}, rounds, end)


def _parquet_rows(path: str) -> Iterator[list[str]]:
    """The same rows as a CSV file would have, the names of the columns first."""
    columns = read_parquet(Path(path), path, MOST_BYTES)
    yield list(columns)
    numbers = [array.astype(np.int64) if array.dtype == bool else array for array in columns.values()]
    for row in zip(*(array.tolist() for array in numbers), strict=True):
        yield [str(cell) for cell in row]


def _in_order(path: str, found: Mapping[str, Floats], rounds: int, end: TraceEnd) -> Trace:
    """The rows by device and round, each pair once."""
    order = np.lexsort((found["line"], found["round"], found["device"]))
    columns = {name: values[order] for name, values in found.items()}
    line, device, round_ = (columns.pop(name).astype(np.int64) for name in ("line", "device", "round"))
    for row in np.flatnonzero((device[1:] == device[:-1]) & (round_[1:] == round_[:-1]))[:1]:
        raise UserError(
            f"{path}: line {line[row + 1]}: device {device[row]} has a row for round {round_[row]} already, "
            f"in line {line[row]}"
        )
    return Trace(path, device, round_, columns, rounds, end)


def _names(path: str, header: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The columns to be read, ``device`` first."""
    there = [name for name in wanted if name in header]
    if "device" not in header or not there:
        raise UserError(
            f"{path}: line 1: must name the columns device, round and {' or '.join(wanted)}; it names: "
            f"{', '.join(header) or 'none'}"
        )
    for rivals in (CHANNEL, SPEED):  # several say the same: the first counts
        there = [name for name in there if name not in [rival for rival in rivals if rival in there][1:]]
    for name in ("device", "round", *there):
        if header.count(name) > 1:
            raise UserError(f"{path}: line 1: names column {name} twice")
    return ["device", *(["round"] if "round" in header else []), *there]


def _value(path: str, line: int, column: str, text: str) -> float:
    fits, right = COLUMNS[column]
    try:
        value = int(text) if column in WHOLE else float(text)
    except ValueError:
        value = np.nan
    if not fits(value):
        raise UserError(f"{path}: line {line}, column {column}: {text.strip()[:40]!r} {right}")
    return value
