"""``fedclade deploy-demo``."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedclade.cli.common import console, print_run
from fedclade.core.errors import UserError


def deploy_demo(
    nodes: Annotated[int, typer.Option(help="SuperNodes, each with a device's share of the digits")] = 6,
    rounds: Annotated[int, typer.Option(min=1, help="rounds at most")] = 3,
    host: Annotated[
        str, typer.Option(help="where the SuperLink listens; other machines only with --tls")
    ] = "127.0.0.1",
    tls: Annotated[bool, typer.Option("--tls", help="encrypt, and admit only nodes with a registered key")] = False,
    out: Annotated[Path | None, typer.Option(help="the run's directory [default: runs/demo]")] = None,
) -> None:
    """Try a deployment: start Flower's SuperLink and SuperNodes on this machine, run, show, and clean up."""
    if find_spec("flwr") is None:
        raise UserError("deploy-demo needs Flower: pip install 'fedclade[flower]'")
    from fedclade.deployment.flower.demo import run_demo

    screen = console()
    folder = run_demo(nodes, rounds, host, tls, out, lambda line: screen.print(line, markup=False, soft_wrap=True))
    print_run(screen, folder)
