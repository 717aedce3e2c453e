"""FedScale's device files as a trace.

FedScale (https://github.com/SymbioticLab/FedScale) publishes two files. The one says of each client how many
milliseconds it takes to put a sample through a model (``computation``) and how many kbit/s its link carries
(``communication``). The other says in which seconds a client is there: from ``active[i]`` to ``inactive[i]``, from the
start again after ``finish_time``. Both are pickles. A pickle runs code when it is read, so only JSON with the same
content is read here.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedclade.core.errors import UserError

PASSES = 3.0  # training on a sample, against putting it through the model: FedScale counts 2 for the way back
COLUMNS = ("device", "round", "rate_bps", "seconds_per_sample", "available")
Client = Mapping[str, Any]


def read_clients(path: Path) -> list[tuple[str, Client]]:
    """The clients of one of the two files as JSON, in ascending order of their ids: each id and what is said of it."""
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path}: must be a file")  # a device or a pipe may never end
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor JSON
        raise UserError(
            f"{path}: must be JSON; a pickle is not read, because that runs code in it: see docs/how-to/traces.md"
        ) from error
    if not isinstance(found, dict) or not found or not all(isinstance(client, dict) for client in found.values()):
        raise UserError(f'{path}: must be an object of clients: {{"1": {{…}}, "2": {{…}}, …}}')
    return sorted(found.items(), key=lambda item: (len(item[0]), item[0]))  # so that 2 comes before 10


def trace_rows(
    capacity: Path, availability: Path | None, devices: int, rounds: int, round_seconds: float
) -> Iterator[tuple[int, int, float, float, int]]:
    """The rows of a trace with ``COLUMNS``: a device's first, its last, and those in which it comes or goes.

    Device k is the k-th client of each file, which begins again where there are fewer. Without an availability file
    everybody is always there. Round r takes place at second (r − 1) · ``round_seconds``.
    """
    capacities = read_clients(capacity)
    presences = read_clients(availability) if availability else []
    for device in range(devices):
        client, speed = capacities[device % len(capacities)]
        rate = 1e3 * _positive(capacity, client, speed, "communication")
        seconds = PASSES * 1e-3 * _positive(capacity, client, speed, "computation")
        stays, period = [(0.0, math.inf)], math.inf
        if availability is not None:
            client, stay = presences[device % len(presences)]
            period = _positive(availability, client, stay, "finish_time")
            stays = _stays(availability, client, stay)
        before = None
        for round_ in range(1, rounds + 1):
            second = (round_ - 1) * round_seconds % period
            there = int(any(begin <= second <= end for begin, end in stays))
            if there != before or round_ == rounds:
                yield device, round_, rate, seconds, there
            before = there


def _positive(path: Path, client: str, said: Client, field: str) -> float:
    value = said.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UserError(f"{path}: client {client}: {field} = {value!r}: must be a number above 0")
    return float(value)


def _stays(path: Path, client: str, said: Client) -> list[tuple[float, float]]:
    """From when to when a client is there, several times."""
    times: list[list[float]] = []
    for field in ("active", "inactive"):
        values = said.get(field)
        if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
            raise UserError(f"{path}: client {client}: {field}: must be a list of seconds")
        times.append(values)
    begins, ends = times
    if len(begins) != len(ends):
        raise UserError(
            f"{path}: client {client}: has {len(begins)} times in active and {len(ends)} in inactive; must be as many"
        )
    return list(zip(begins, ends, strict=True))
