"""The commands. Thin: they parse, call, and print; a user's mistake is one line on stderr and exit code 2.

Each command is a function in a file of its own, which imports torch, pandas and the like when it is called.
"""

import sys
import traceback
import warnings
from functools import cache
from typing import Annotated

import click
import typer

from fedclade import __version__
from fedclade.cli import (
    assign,
    bound,
    check_data,
    compare,
    convert_fedscale,
    deploy_demo,
    export,
    figures,
    plan,
    presets,
    report,
    run,
    show,
    show_run,
    watch,
)
from fedclade.config import Config, section_fields
from fedclade.core.errors import MACHINE_TROUBLE, UserError, in_words

app = typer.Typer(
    help="Fair clustered federated learning at the wireless edge: plan, simulate, compare.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    presets.presets,
    show.show,
    check_data.check_data,
    plan.plan,
    run.run,
    watch.watch,
    show_run.show_run,
    assign.assign,
    export.export,
    compare.compare,
    report.report,
    figures.figures,
    bound.bound,
    deploy_demo.deploy_demo,
    convert_fedscale.convert_fedscale,
):
    app.command()(command)
app.command("place", hidden=True)(assign.assign)  # the former name of assign


@cache
def _commands() -> click.Command:
    """All of them, made once: a process may be asked for several."""
    return typer.main.get_command(app)


def main() -> None:
    """The entry point: user errors become one line and exit code 2."""
    words = sys.argv[1:] or ["--help"]
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            sys.exit(_commands().main(words, "fedclade", standalone_mode=False) or 0)
    except UserError as error:
        if error.__cause__ is not None and "--traceback" in words:
            traceback.print_exception(error.__cause__)
        print(f"fedclade: {error}", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    except MemoryError as error:
        print(f"fedclade: {UserError(f'this machine has too little memory for that: {error}')}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in MACHINE_TROUBLE and error.filename is None:
            raise
        if "--traceback" in words:
            traceback.print_exception(error)
        where = f"{error.filename}: " if error.filename else ""
        print(f"fedclade: {UserError(where + in_words(error))}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what typer says of a word it does not know
            raise
        option = getattr(error, "option_name", None) or ""
        hint = _hint(option, words)  # a field of the config is a better guess than an option that is spelt alike
        told = f"No such option {option}. {hint}" if hint else f"{error.format_message()} (see: fedclade --help)"
        print(f"fedclade: {told}", file=sys.stderr)
        sys.exit(2)


def _hint(option: str, words: list[str]) -> str:
    """How to set the field of the config that somebody took for an option; empty where there is no such field."""
    name = option.lstrip("-").replace("-", "_")
    sections = [section for section in Config.model_fields if section != "custom" and name in section_fields(section)]
    if not sections:
        return ""
    if "run" in sections:  # rather than the setting of some method
        sections = ["run"]
    given = next((word for word in words if word.split("=")[0] == option), option)
    after = words[words.index(given) + 1 :] if given in words else []
    value = given.partition("=")[2] or next((word for word in after[:1] if not word.startswith("-")), "…")
    return f"Did you mean {' or '.join(f'--set {section}.{name}={value}' for section in sections)}?"


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning is one line on stderr, too, without the place in the code that gave it."""
    print(f"fedclade: warning: {message}", file=sys.stderr)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedclade {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
    traceback: Annotated[  # main looks for it itself
        bool, typer.Option("--traceback", help="where an error comes from another one, show that one's traceback")
    ] = False,
) -> None:
    pass
