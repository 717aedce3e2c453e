"""A run directory, read."""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load

from fedclade import config as configuration
from fedclade.config import Config
from fedclade.core.arrays import Singles
from fedclade.core.errors import UserError
from fedclade.core.task import ACCURACY, SCORES, Score
from fedclade.core.tree import Node, Tree
from fedclade.metrics import Metric
from fedclade.runs.database import TABLES, open_to_read, read_table
from fedclade.runs.directory import (
    CONFIG,
    DATABASE,
    MACHINE,
    MARK,
    MODELS,
    REAL_DEVICES,
    SUMMARY,
    TREE,
    check_seal,
    opened_json,
    read_checked,
    read_json,
)

if TYPE_CHECKING:
    import pandas as pd


def read_config(folder: Path) -> Config:
    """The config a run was started with."""
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: no run here ({CONFIG} is missing)")
    check_seal(folder / CONFIG)
    return configuration.load(str(folder / CONFIG))


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
        return (self.folder / SUMMARY).is_file()

    @property
    def real(self) -> bool:
        """Whether it was run on real devices: its seconds are measured then, and nobody knows its joules."""
        return (self.folder / REAL_DEVICES).is_file()

    @property
    def planted(self) -> bool:
        """Whether groups were planted among the devices: whether there is a truth to hold the clusters against."""
        return len({row["planted_group"] for row in self.rows("devices")} - {None}) > 1

    @property
    def machine(self) -> dict[str, str]:
        """The processor and the libraries that the run was begun with; empty for one that has no record yet."""
        path, marked = self.folder / MACHINE, (self.folder / MARK).is_file()
        if not path.is_file() and not (marked and (self.folder / DATABASE).is_file()):
            return {}
        recorded: dict[str, str] = read_json(path)
        earlier = not marked and isinstance(recorded, dict) and "seal" not in recorded
        return recorded if earlier else opened_json(path)

    @property
    def summary(self) -> dict[str, Any]:
        """The headline numbers of a finished run."""
        if not self.finished:
            raise UserError(f"{self.folder}: not finished; continue it with: fedclade run --resume {self.folder}")
        summary: dict[str, Any] = read_json(self.folder / SUMMARY, read_checked(self.folder, SUMMARY))
        return summary

    @property
    def tree(self) -> list[dict[str, Any]]:
        """The tree of models as plain objects, one per node; none before the first checkpoint."""
        if (self.folder / TREE).is_file():
            tree: list[dict[str, Any]] = read_json(self.folder / TREE, read_checked(self.folder, TREE))
            return tree
        checkpoint = self.folder / "state/state.json"
        return list(opened_json(checkpoint)["tree"]) if checkpoint.is_file() else []

    def read_tree(self) -> Tree:
        """The same tree as a value that knows its leaves; before the first checkpoint, one cluster of everybody."""
        rows = self.tree
        return Tree.from_json(rows, len(rows[0]["members"])) if rows else Tree.planted(len(self.rows("devices")))

    def leaves(self) -> list[Node]:
        """The clusters in use, in order of their names: neither split nor merged into another."""
        return self.read_tree().leaves()

    def model(self, name: str) -> dict[str, Singles]:
        """A node's model, the "conventional" one, or a cluster's of its best round ("best/0.1"), as named arrays."""
        with self._checked(name) as path:
            return load(path.read_bytes())

    def model_file(self, name: str) -> Path:
        """Where a model is; UserError where there is none of that name."""
        models = self.folder / MODELS
        path = models / f"{name}.safetensors"
        if not path.is_file():
            found = (p.relative_to(models).with_suffix("") for p in models.rglob("*.safetensors"))
            known = ", ".join(sorted(each.as_posix() for each in found))
            raise UserError(f"{self.folder}: no model {name!r}; there are: {known or 'none yet'}")
        return path

    def model_metadata(self, name: str) -> dict[str, str]:
        """What a model's file tells of it besides its arrays."""
        with self._checked(name) as path, safe_open(path, "numpy") as file:
            return dict(file.metadata() or {})

    @contextlib.contextmanager
    def _checked(self, name: str) -> Iterator[Path]:
        """A model's file, as it was written."""
        path = self.model_file(name)
        read_checked(self.folder, path.relative_to(self.folder).as_posix())
        try:
            yield path
        except SafetensorError as error:
            raise UserError(f"{path}: damaged: {error}") from error

    def table(self, name: str) -> "pd.DataFrame":
        """One table of run.db."""
        import pandas as pd  # takes a while: whoever wants ``rows`` need not wait for it

        names, rows = self._read(name)
        return pd.DataFrame.from_records(rows, columns=names, coerce_float=True)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The same table as plain rows; None where a value does not exist."""
        names, rows = self._read(name)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _read(self, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns of a table, and its rows."""
        if name not in TABLES:
            raise UserError(f"{self.folder}: no table {name!r}; there are: {', '.join(TABLES)}")
        with open_to_read(self.folder / DATABASE) as db:
            return read_table(db, name)

    @property
    def devices(self) -> "pd.DataFrame":
        """One row a device: planted group, data, place, power, speed."""
        return self.table("devices")

    @property
    def score(self) -> Score:
        """What says how well devices are served, in columns of its name: accuracy, or R² (``r2``) of numbers."""
        rows = self.rows("scores")
        return SCORES[rows[0]["name"]] if rows else ACCURACY

    @property
    def rounds(self) -> "pd.DataFrame":
        """One row a round: times, uploads, energy, accuracy."""
        return self.table("rounds")

    @property
    def clusters(self) -> "pd.DataFrame":
        """One row a round and cluster: norms and verdict."""
        return self.table("clusters")

    @property
    def uploads(self) -> "pd.DataFrame":
        """One row a round and selected device: when it uploaded on which sub-channel."""
        return self.table("uploads")

    @property
    def evaluations(self) -> "pd.DataFrame":
        """One row an evaluated round and device."""
        return self.table("evaluations")

    @property
    def objectives(self) -> "pd.DataFrame":
        """One row an evaluated round and cluster: its loss F, and the round in which that was least (eq. 16)."""
        return self.table("objectives")

    @property
    def events(self) -> "pd.DataFrame":
        """Splits, stops, re-openings, missed rounds, placements; ``detail`` as a dict."""
        frame = self.table("events")
        frame["detail"] = frame["detail"].map(json.loads)
        return frame

    @property
    def splits(self) -> "pd.DataFrame":
        """One row a split: the ``devices`` that decided, and their ``likeness`` (a matrix; ``by`` in the event)."""
        frame = self.table("splits")
        frame["devices"] = frame["devices"].map(json.loads)
        matrices = frame["likeness"].map(lambda blob: np.frombuffer(blob, "<f2").astype(np.float32))
        frame["likeness"] = matrices.map(lambda flat: flat.reshape(math.isqrt(len(flat)), -1))
        return frame

    @property
    def metrics(self) -> "pd.DataFrame":
        """One row a round and metric of the config's own that is told every round."""
        return self.table("metrics")

    @property
    def own_metrics(self) -> list[Metric]:
        """The metrics that the config names, as the run knew them: their code need not be here."""
        if not self.config.run.metrics:
            return []
        return [Metric.from_json(json.loads(row["facts"])) for row in self.rows("own_metrics")]

    @property
    def models(self) -> "pd.DataFrame":
        """Accuracy, or R², of every model on every device: models × devices."""
        return self.table("models")


def open_run(folder: str | Path) -> Run:
    """Read a run directory, finished or not."""
    return Run(folder)


def differences(one: Config, other: Config) -> Mapping[str, tuple[object, object]]:
    """The fields in which two configs differ: name -> both values; None for a custom field that one of them lacks."""
    mine, theirs = ({name: value for name, value, _ in configuration.fields_of(each)} for each in (one, other))
    pairs = {name: (mine.get(name), theirs.get(name)) for name in mine | theirs}
    return {name: (a, b) for name, (a, b) in pairs.items() if a != b}
