from pathlib import Path

import pytest

from tiny_runs import tiny_file


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty folder to stand in, with the tiny config as tiny.toml."""
    monkeypatch.chdir(tmp_path)
    tiny_file(tmp_path)
    return tmp_path
