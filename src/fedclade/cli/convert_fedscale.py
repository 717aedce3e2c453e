"""``fedclade convert-fedscale``."""

import csv
from pathlib import Path
from typing import Annotated

import typer

from fedclade.core.errors import UserError


def convert_fedscale(
    capacity: Annotated[Path, typer.Argument(metavar="CAPACITY.json", help="FedScale's client_device_capacity")],
    out: Annotated[Path, typer.Option(help="the trace to be written")],
    availability: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="its client_behave_trace [default: always there]")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="clients that are taken")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="rounds of the trace")] = 60,
    round_seconds: Annotated[float, typer.Option(min=0.001, help="time from one round to the next")] = 60.0,
) -> None:
    """Turn FedScale's device files, as JSON, into a trace for edge.trace and edge.device_trace."""
    from fedclade.edge import fedscale

    if out.exists():
        raise UserError(f"{out}: is there already; take another name")
    rows = list(fedscale.trace_rows(capacity, availability, devices, rounds, round_seconds))
    with out.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([fedscale.COLUMNS, *rows])
    print(f"{out}: {devices} devices, {rounds} rounds")
    print(f"Use it with: --set edge.trace={out} --set edge.device_trace={out}")
