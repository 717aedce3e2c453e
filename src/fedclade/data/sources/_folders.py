"""Where data sets lie that the user has downloaded."""

import os
from pathlib import Path

from fedclade.config import Config
from fedclade.core.errors import UserError


def folders(config: Config, name: str) -> list[Path]:
    """Where a data set may lie: under the root by its name, or the root itself."""
    root = Path(config.population.root or os.environ.get("FEDCLADE_DATA") or "data")
    return [root / name, root]


def missing(source: str, wanted: str, looked_in: list[Path], how: str) -> UserError:
    """The line that says what was not found, where, and how to get it."""
    places = " or ".join(str(folder) for folder in looked_in)
    return UserError(
        f'population.source = "{source}": found no {wanted} in {places}; {how}, then set population.root to its folder'
    )
