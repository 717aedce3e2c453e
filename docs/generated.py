"""The parts of the reference made from the code: Markdown for the marks ``<!-- generated: NAME -->`` of a page.

Each function here is one such part. The pages around them say in words what the tables are about.
"""

import re
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import fields
from importlib import resources
from typing import Annotated, Any, Literal, get_args, get_origin

import click
import typer
from pydantic.fields import FieldInfo

from fedclade import config as configuration
from fedclade.cli import app
from fedclade.config import Config
from fedclade.config.files import to_toml_value
from fedclade.config.section import Section
from fedclade.models._trained import ModelCard
from fedclade.runs import database

BOUNDS = {"gt": "above {}", "ge": "at least {}", "lt": "below {}", "le": "at most {}"}


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A Markdown table, line by line."""
    header = list(header)
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"


# -------------------------------------------------------------------------------- config


def config() -> Iterator[str]:
    """Every field of every section."""
    for name, info in Config.model_fields.items():
        section = info.annotation
        yield f"\n## {name}\n"
        if not (isinstance(section, type) and issubclass(section, Section)):
            yield "Settings of your own, of any name: your policy, method or data reads them as `config.custom`.\n"
            continue
        yield f"{_prose(section.__doc__)}\n"
        rows = (
            (f"`{field}`", _prose(about.description), *_kind(about)) for field, about in section.model_fields.items()
        )
        yield from table(("field", "meaning", "what it may be", "default"), rows)


def _kind(field: FieldInfo) -> tuple[str, str]:
    """What a field may be, with its bounds, and its default."""
    bounds = [
        words.format(getattr(rule, name))
        for rule in field.metadata
        for name, words in BOUNDS.items()
        if hasattr(rule, name)
    ]
    default = "unset" if field.default is None else f"`{to_toml_value(field.default)}`"
    return ", ".join((_type(field.annotation), *bounds)), default


def _type(kind: object) -> str:
    if get_origin(kind) is Annotated:
        return _type(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(kind))
    if get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is tuple:
        return f"list of {_type(get_args(kind)[0])}s"
    return {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}.get(kind, str(kind))  # type: ignore[call-overload]


def _prose(text: str | None) -> str:
    """Text of the code as Markdown: links to pages of this folder, and double backticks as single ones."""
    plain = " ".join((text or "").split()).replace("``", "`")
    return re.sub(r"docs/([\w-]+/[\w-]+)\.md", r"[\1](../\1.md)", plain)


# -------------------------------------------------------------------------------- commands


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        if command.hidden:
            continue
        shown = [each for each in command.params if not getattr(each, "hidden", False)]
        arguments = [each for each in shown if each.param_type_name == "argument"]
        usage = " ".join(
            ["fedclade", name, "[OPTIONS]", *(each.make_metavar(click.Context(command)) for each in arguments)]
        )
        yield f"\n## {name}\n\n{_prose(command.help)}\n\n```text\n{usage}\n```\n"
        if shown:
            yield from table(("argument or option", "meaning", "default"), (_option(each, command) for each in shown))


def _option(each: Any, command: Any) -> tuple[str, str, str]:
    if each.param_type_name == "argument":
        return f"`{each.make_metavar(click.Context(command))}`", _prose(each.help), ""
    metavar = "" if each.is_flag else f" {each.make_metavar(click.Context(command))}"
    empty = each.default in (None, False, [], ()) or callable(each.default)
    return f"`{', '.join(each.opts)}{metavar}`", _prose(each.help), "" if empty else f"`{each.default}`"


# -------------------------------------------------------------------------------- files


def tables() -> Iterator[str]:
    """The tables of run.db with their columns."""
    rows = []
    for name, columns in re.findall(r"TABLE IF NOT EXISTS (\w+) \((.*?)\);", database.SCHEMA, re.DOTALL):
        names = re.findall(
            r"(?:^|,)\s*(\w+)\s+(INTEGER|REAL|TEXT|BLOB)", re.sub(r",\s*PRIMARY KEY \(.*", "", columns, flags=re.DOTALL)
        )
        rows.append((f"`{name}`", ", ".join(f"`{column}`" for column, _ in names)))
    yield from table(("table", "columns"), rows)


def model_card() -> Iterator[str]:
    """What a model's file tells besides its weights."""
    yield from table(("field",), ((f"`{field.name}`",) for field in fields(ModelCard)))


def presets() -> Iterator[str]:
    """Every preset: what it is, and its file."""
    folder = resources.files("fedclade.config") / "presets"
    for name in configuration.presets():
        text = (folder / f"{name}.toml").read_text("utf-8")
        yield f"\n## {name}\n\n```toml\n{text}```\n"


PARTS = {part.__name__.replace("_", "-"): part for part in (config, commands, tables, model_card, presets)}


def filled(page: str) -> str:
    """A page with its marks replaced by what they stand for."""
    return re.sub(r"<!-- generated: ([\w-]+) -->", lambda mark: "\n".join(PARTS[mark[1]]()), page)
