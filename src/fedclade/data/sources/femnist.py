"""FEMNIST, letters and digits by many writers: one .npz (x, y, writer), or LEAF's train/*.json and test/*.json."""

import json
from pathlib import Path

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Bytes
from fedclade.core.errors import UserError
from fedclade.data.archives import read_npz
from fedclade.data.source import Source
from fedclade.data.sources._folders import folders, missing


def read(config: Config) -> Source:
    """All that is in the first folder that has any, 1×28×28, ink bright on dark."""
    candidates = folders(config, "femnist")
    for folder in candidates:
        if archives := sorted(folder.glob("femnist*.npz")):
            return _archive(archives[0])
        for leaf in (folder / "leaf", folder):
            if shards := sorted(leaf.glob("train/*.json")) + sorted(leaf.glob("test/*.json")):
                return _leaf(shards)
    how = "make it with LEAF's data/femnist/preprocess.sh"
    raise missing("femnist", "femnist*.npz nor train/*.json", candidates, how)


def _archive(path: Path) -> Source:
    x, y, writer = read_npz(path, ("x", "y", "writer"), f"{path}: not a FEMNIST archive with x, y and writer")
    return _ink_bright(path, x, y, writer)


def _leaf(shards: list[Path]) -> Source:
    images, labels, writers = [np.empty((0, 28, 28), np.uint8)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    number: dict[str, int] = {}
    for path in shards:
        try:
            shard = json.loads(path.read_text("utf-8"))
            for user in shard["users"]:
                data = shard["user_data"][user]
                writer = number.setdefault(user, len(number))
                pixels = np.asarray(data["x"], dtype=np.float32).reshape(-1, 28, 28)
                images.append(np.round(pixels * 255).astype(np.uint8))
                labels.append(np.asarray(data["y"], dtype=np.int64))
                writers.append(np.full(len(labels[-1]), writer))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a LEAF shard (users, user_data with x and y): {error}") from error
    folder = shards[0].parent.parent
    return _ink_bright(folder, np.concatenate(images), np.concatenate(labels), np.concatenate(writers))


def _ink_bright(path: Path, x: Bytes, y: np.ndarray, writer: np.ndarray) -> Source:
    """LEAF draws dark ink on white; nets train better on bright ink on black."""
    count = len(y)
    if count == 0 or x.shape != (count, 28, 28) or x.dtype != np.uint8 or len(writer) != count or {*y} - {*range(62)}:
        raise UserError(f"{path}: not FEMNIST: needs 8-bit images of 28×28, each with a label of 0 to 61 and a writer")
    labels, writers = y.astype(np.int64), writer.astype(np.int64)
    return Source((255 - x)[:, None], labels, classes=62, writer=writers, mean=(0.0385,), std=(0.1642,))
