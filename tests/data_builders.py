"""Small builders that several test files share."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedclade import UserError
from fedclade.config import Config, load
from fedclade.data import Source


def error_line(function: Callable[..., object], *arguments: object) -> str:
    """The one line that a user's mistake gives."""
    with pytest.raises(UserError) as caught:
        function(*arguments)
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    return line


def config(**sections: dict[str, object]) -> Config:
    """A config from its sections: ``config(run={"seed": 3})``."""
    return load(sections)


def image_set(count: int, classes: int, shape: tuple[int, int, int] = (1, 8, 8), **facts: object) -> Source:
    """Random images, all different, with the classes in turn."""
    images = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    return Source(images, np.arange(count) % classes, classes, **facts)


def stand_in_folder_with(monkeypatch: pytest.MonkeyPatch, folder: Path, module: str, text: str) -> None:
    """Make the folder, which holds a user's module, the working directory; undo the imports' traces afterwards."""
    (folder / f"{module}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, module, raising=False)
