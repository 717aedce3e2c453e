"""``fedclade watch``."""

import contextlib
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedclade.cli.common import console


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a run or a comparison that is going on")],
    terminal: Annotated[bool, typer.Option("--terminal", help="here, until it is over, instead of on a page")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="of the page, on 127.0.0.1; 0: any that is free")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="open the page in your browser")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="between two looks, with --terminal")] = 1.0,
) -> None:
    """Follow a run or a comparison as it goes, on a local page or in the terminal; Ctrl-C ends the watching."""
    from fedclade.report.watch import Watch, follow, serve, wait_for

    screen = console()

    def told(url: str) -> None:
        screen.print(f"Watching    {folder} on {url} (Ctrl-C ends this, not the run)", soft_wrap=True)
        if open_:
            webbrowser.open(url)

    with contextlib.suppress(KeyboardInterrupt):
        if not folder.exists():
            screen.print(f"Waiting     for {folder}, which is not there yet (Ctrl-C ends this)", soft_wrap=True)
            wait_for(folder, every)
        watching = Watch(folder)
        if not terminal:
            serve(watching, port, told)
        else:
            look = follow(watching, screen, every)
            failed = look.count("failed")
            screen.print(
                f"Over        {look.count('finished')} finished{f', {failed} failed' if failed else ''}: {folder}"
            )
