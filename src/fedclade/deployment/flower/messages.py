"""Messages as Flower carries them: three records, "facts" and "arrays" of the message itself, "about" for all kinds.

``fedclade.deployment.transport`` says what each kind of message means. Flower starts a process for every message, which
knows nothing of the run: so ``about`` tells each of them the config, the device's number, the round and the number of
classes. One kind is Flower's alone: ``query.describe``, sent to every node that is new, with the config; the device
replies with its name, its data, its speed, and a probe of the link.

Arrays travel as NumPy without pickle. Whoever speaks another version says so.
"""

import io
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedclade.core.errors import UserError
from fedclade.deployment.transport import Arrays, Facts
from fedclade.fleet.told import Unreadable

VERSION = 3
DESCRIBE = "query.describe"
NUMPY = "numpy.ndarray"  # how Flower calls the way in which arrays are written down
PLAIN = "biufSUVcmM"  # kinds of NumPy's types that hold no objects


@dataclass(frozen=True)
class About:
    """What a device must know to understand any message."""

    config: str  # the server's, as TOML
    device: int = -1  # its number; -1: it has none yet
    round: int = 0
    classes: int = 0  # of all devices' data together; 0: not known yet


def pack(facts: Facts, arrays: Arrays | None = None, about: About | None = None) -> RecordDict:
    """The content of a message: of a request where it says what it is about, else of a reply."""
    records = RecordDict({"facts": ConfigRecord({"version": VERSION, **facts})})
    if about is not None:
        records["about"] = ConfigRecord(asdict(about))
    if arrays:
        records["arrays"] = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return records


def unpack(content: RecordDict) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts and arrays of a message."""
    facts = dict(content.config_records["facts"])
    if facts.pop("version", None) != VERSION:
        raise UserError(f"the other side does not speak version {VERSION} of the messages: install the same fedclade")
    arrays = content.array_records["arrays"] if "arrays" in content.array_records else ArrayRecord()
    return facts, {name: _as_numpy(name, array) for name, array in arrays.items()}


def _as_numpy(name: str, array: Array) -> np.ndarray:
    """An array as it arrived: of the bytes that are here, however large its header says that it is."""
    file = io.BytesIO(array.data)
    try:
        version = np.lib.format.read_magic(file)
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception as error:  # a header is read as Python's own words, and fails in as many ways
        raise Unreadable(f"{name}: must be written in NumPy's format") from error
    if array.stype != NUMPY or version != (1, 0):
        raise Unreadable(f"{name}: must be written in NumPy's format, version 1.0")
    begin, size = file.tell(), math.prod(shape)
    if dtype.kind not in PLAIN or dtype.hasobject or len(array.data) - begin != size * dtype.itemsize:
        raise Unreadable(f"{name}: {len(array.data) - begin} bytes are not {dtype}{list(shape)}"[:200])
    values: np.ndarray = np.frombuffer(array.data, dtype, size, begin) if size else np.zeros(0, dtype)
    return values.reshape(shape, order="F" if in_columns else "C").copy()


def unpack_request(content: RecordDict) -> tuple[About, dict[str, Any], dict[str, np.ndarray]]:
    """What a request is about, its facts and its arrays."""
    facts, arrays = unpack(content)
    told: dict[str, Any] = dict(content.config_records["about"])
    return About(**told), facts, arrays
