"""``fedclade check-data``."""

import json
import shlex
from typing import Annotated

import typer

from fedclade import config as configuration
from fedclade.cli.common import AsJson, Overrides, console

PRESET = "own-data"


def check_data(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="a file, a folder, or what else population.source may be")
    ],
    overrides: Overrides = [],  # noqa: B006
    as_json: AsJson = False,
) -> None:
    """Print what is in data of your own, before anybody trains on them."""
    given = configuration.load(PRESET, overrides)
    config = configuration.load(given.model_dump(), {"population.source": path})

    from dataclasses import asdict

    from fedclade.data import read_source
    from fedclade.data.description import describe
    from fedclade.report.data import show_description
    from fedclade.report.terminal.layout import Labelled

    found = describe(read_source(config))
    changes = [*overrides, f"population.source={path}"]
    if found.devices is not None:
        changes.append(f"population.devices={found.devices.count}")
    command = f"fedclade run {PRESET} " + " ".join(f"--set {shlex.quote(change)}" for change in changes)
    if as_json:
        print(json.dumps({"source": path, **asdict(found), "command": command}, indent=1))
        return
    screen = console()
    for part in show_description(found):
        if isinstance(part, str) and screen.is_terminal:
            screen.print(Labelled(part[:12], part[12:]))
        else:
            screen.print(part, soft_wrap=True, markup=False)
    screen.print(f"Run it      {command}", soft_wrap=True, markup=False)
