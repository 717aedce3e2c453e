"""``fedclade plan``."""

import json
from typing import Annotated

import typer

from fedclade.cli.common import AsJson, Overrides, Source, console


def plan(
    source: Source = "quickstart",
    overrides: Overrides = [],  # noqa: B006
    round_: Annotated[int, typer.Option("--round", min=1, help="whose channel draws to use")] = 1,
    devices: Annotated[
        int | None, typer.Option(min=1, help="plan for so many, each with as much data as one of the preset's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan one round without training anything: who uploads when, under every order and allocation."""
    from fedclade.report import terminal
    from fedclade.simulation import Experiment

    experiment = Experiment(source, overrides)
    planned = experiment.plan(round_, devices=devices, compare=True)
    if as_json:
        print(json.dumps(terminal.plan_as_json(planned), indent=1))
        return
    screen = console()
    for part in terminal.show_plan(planned, round_, experiment.config.scheduling.policy):
        screen.print(part)
