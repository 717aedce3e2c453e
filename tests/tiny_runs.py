"""A run small enough to repeat dozens of times, and what several tests ask about one."""

import contextlib
import io
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pytest

from fedclade import Experiment, Run
from fedclade import config as configuration
from fedclade.cli import main

# Two groups of three devices that label the digits differently: they split in round 2, and would stop later.
TINY = {
    "run": {"rounds": 3, "checkpoint_every": 2, "conventional": "continued", "report": False},
    "population": {"source": "digits", "devices": 6, "samples": 300, "partition": "iid"},
    "incongruence": {"kind": "permute-labels", "groups": [3, 3]},
    "model": {"name": "logistic"},
    "edge": {"cpu_min_hz": 1e8, "cpu_max_hz": 2e8},
    "training": {"epochs": 2, "learning_rate": 0.1},
    "clustering": {"method": "norm-thresholds", "min_cluster_size": 3},
    "norm_thresholds": {"epsilon1": 0.4, "epsilon2": 0.3, "warmup_rounds": 1, "bipartition": "average"},
}


# Two groups that hold the digits the other way up, and nothing said of clustering: they split by themselves in round 1.
DIGITS = {
    "run": {"rounds": 8, "evaluate_every": 8, "report": False},
    "population": {"source": "digits", "devices": 12, "partition": "iid"},
    "incongruence": {"kind": "rotate", "groups": [8, 4]},
    "model": {"name": "mlp", "hidden": 32},
    "training": {"epochs": 3, "batch_size": 10, "learning_rate": 0.1},
}


def tiny(*overrides: str, **parts: object) -> Experiment:
    return Experiment(TINY, overrides, **parts)


def digits(*overrides: str, **parts: object) -> Experiment:
    return Experiment(DIGITS, overrides, **parts)


def merged_run(folder: Path) -> Run:
    """A tiny run whose second cluster is merged into the first in its last round."""
    experiment = tiny()
    step = experiment.server.step

    def merging(state):
        after, record = step(state)
        return (replace(after, tree=after.tree.merge("0.1", "0.0")) if after.round == 3 else after), record

    with patch.object(experiment.server, "step", merging):
        return experiment.run(folder)


def tiny_file(folder: Path, *overrides: str) -> str:
    """The tiny config as a file, for the command line."""
    path = folder / "tiny.toml"
    path.write_text(configuration.to_toml(tiny(*overrides).config), "utf-8")
    return str(path)


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder and their bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def outcome(folder: Path) -> dict[str, object]:
    """What a run must reproduce to the byte: models, tree, and the summary but for the wall clock."""
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    timeless = {name: value for name, value in summary.items() if not name.startswith("wall_")}
    return {"summary": timeless, **files(folder / "models")}


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


def fedclade(*words: object) -> Answer:
    """The command line through its entry point, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["fedclade", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Answer(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def refusal(*words: object) -> str:
    """The one line on stderr with which a wrong command ends, after exit code 2 and nothing on stdout."""
    answer = fedclade(*words)
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    return line


def executable() -> str:
    """The installed command."""
    return str(Path(sys.executable).with_name("fedclade"))
