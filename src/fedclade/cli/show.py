"""``fedclade show``."""

import shutil
import sys

from fedclade import config as configuration
from fedclade.cli.common import Overrides, Source


def show(source: Source = "quickstart", overrides: Overrides = []) -> None:  # noqa: B006 - typer's way
    """Print a preset or file whole, every field with its meaning."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(configuration.to_toml(configuration.load(source, overrides), width), end="")
