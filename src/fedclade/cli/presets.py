"""``fedclade presets``."""

from rich.table import Table

from fedclade import config as configuration
from fedclade.cli.common import console


def presets() -> None:
    """List the packaged presets."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, about in configuration.presets().items():
        table.add_row(name, about)
    console().print(table)
