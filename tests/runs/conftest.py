"""What the tests of run directories share."""

import shutil
from pathlib import Path

import pytest

from fedclade import Interrupted
from tiny_runs import tiny


@pytest.fixture(scope="module")
def interrupted_once(tmp_path_factory) -> Path:
    folder, done = tmp_path_factory.mktemp("interrupted") / "run", []
    with pytest.raises(Interrupted):
        tiny(stop_requested=lambda: len(done) == 2).run(folder, on_round=done.append)
    return folder


@pytest.fixture
def interrupted(interrupted_once, tmp_path) -> Path:
    """A run interrupted after the split in round 2, to spoil at will."""
    return shutil.copytree(interrupted_once, tmp_path / "run")
