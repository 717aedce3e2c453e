"""Configs as text: presets and TOML files, ``--set`` overrides, what is said of a mistake, and writing it all back."""

import json
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedclade.config.moved import MOVED
from fedclade.config.section import Complaint, Section
from fedclade.config.sections import Config
from fedclade.core.errors import UserError
from fedclade.core.plugins import near_miss

MEANING = 38  # the column of a config file in which the meaning of a field begins


def presets() -> dict[str, str]:
    """Packaged presets: name -> its first comment line."""
    folder = resources.files("fedclade.config") / "presets"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {
        name.removesuffix(".toml"): (folder / name).read_text("utf-8").splitlines()[0].lstrip("# ") for name in files
    }


def load(
    source: str | Path | Mapping[str, Any] | None = None, overrides: Iterable[str] | Mapping[str, Any] = ()
) -> Config:
    """A config from a source, with single fields changed.

    ``source`` is a preset's name, a TOML file or a nested mapping; None means the defaults. ``overrides`` is a list of
    texts such as ``"run.seed=7"``, whose last part is read as TOML, or a mapping such as ``{"run.seed": 7}`` or
    ``{"run": {"seed": 7}}``.
    """
    data, origin = _data(source)
    by_name = isinstance(overrides, Mapping)
    told = _dotted(overrides) if isinstance(overrides, Mapping) else map(_parse_override, overrides)
    changed = set()
    for path, value in told:
        section, _, field = path.partition(".")
        if not section or not field or "." in field:
            raise UserError(f"overrides: {path!r}: must be 'section.field', e.g. 'run.seed'")
        if not isinstance(data.setdefault(section, {}), dict):
            raise UserError(f"{origin}: {section} = {data[section]!r}: must be a section")
        data[section][field] = value
        changed.add(path)
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise UserError(_one_line(error, origin, "overrides:" if by_name else "--set", changed)) from None


def _dotted(overrides: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Fields by their dotted names; a section may be given as a mapping of its own."""
    for name, value in overrides.items():
        if "." not in name and isinstance(value, Mapping):
            yield from ((f"{name}.{field}", inner) for field, inner in value.items())
        else:
            yield name, value


def _data(source: str | Path | Mapping[str, Any] | None) -> tuple[dict[str, Any], str]:
    """What the source holds, in dictionaries of its own, and what to call the source in a message."""
    if source is None or isinstance(source, Mapping):
        data, origin = dict(source or {}), "config"
    else:
        text, origin = _read(str(source))
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # a number of too many digits, too; brackets in brackets
            raise UserError(f"{origin}: not valid TOML: {error}") from error
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}, origin


def _read(name: str) -> tuple[str, str]:
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        try:
            return path.read_text("utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise UserError(f"{path}: cannot be read: {reason}") from error
    known = presets()
    if name not in known:
        raise UserError(f"{name!r} is neither a preset nor a .toml file; {near_miss(name, known)}")
    return (resources.files("fedclade.config") / "presets" / f"{name}.toml").read_text("utf-8"), f"preset {name}"


def _parse_override(override: str) -> tuple[str, object]:
    path, equals, text = override.partition("=")
    path = path.strip()
    if not equals or len(parts := path.split(".")) != 2 or not all(parts):
        raise UserError(f"--set {override!r}: must be section.field=value, e.g. run.seed=7")
    try:
        return path, tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return path, text.strip()  # a bare word is a string
    except RecursionError:
        raise UserError(f"--set {path}: nested too deeply") from None


def _one_line(error: ValidationError, origin: str, changer: str, changed: set[str]) -> str:
    """The first finding as one line; it is blamed on the ``changer`` of single fields if that field was ``changed``."""
    first = error.errors()[0]
    context = first.get("ctx", {})
    complaint = context.get("error")
    location = [str(part) for part in first["loc"]]
    value, right = first["input"], first["msg"]
    if isinstance(complaint, Complaint):
        location, value, right = [*location, *complaint.field.split(".")], complaint.value, complaint.right
    elif first["type"] == "extra_forbidden":
        right = _unknown(location)
    else:  # a union of types gives one finding for each of them
        same = [e for e in error.errors() if e["loc"][:2] == first["loc"][:2] and len(e["loc"]) == len(first["loc"])]
        right = " or ".join(dict.fromkeys(_plain(e["type"], e.get("ctx", {}), e["msg"]) for e in same))
    field = ".".join(location[:2])
    by_override = any(f"{path}.".startswith(f"{field}.") for path in changed)
    where = f"{changer} {field}" if by_override else f"{origin}: {field}"
    shown = "" if isinstance(value, Mapping) else f" = {_shown(value)}"
    others = len({entry["loc"][:2] for entry in error.errors()}) - 1
    more = f" (and {others} more)" if others else ""
    return f"{where}{shown}: {right}{more}"


def _shown(value: object) -> str:
    """A value as it may be shown; not of one that is endless in itself, or a number of thousands of digits."""
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "…"


def _unknown(location: list[str]) -> str:
    """What is right where there is no such section or field: what it is called now, or what is close to it."""
    kind, known = ("section", Config.model_fields) if len(location) == 1 else ("field", section_fields(location[0]))
    if instead := MOVED.get(".".join(location)):
        return f"no such {kind} any more; write {instead}"
    return f"no such {kind}; {near_miss(location[-1], known)}"


def _plain(kind: str, context: Mapping[str, Any], message: str) -> str:
    words = {
        "greater_than": "must be greater than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "literal_error": "must be one of {expected}",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "finite_number": "must be a finite number",
        "string_type": "must be a text in quotes",
        "bool_type": "must be true or false",
        "tuple_type": "must be a list",
        "too_short": "needs at least {min_length} entry",
        "model_type": "must be a section",
        "mapping_type": "must be a section",
        "dict_type": "must be a section",
    }
    return words[kind].format(**context) if kind in words else message[0].lower() + message[1:]


def section_fields(section: str) -> Iterable[str]:
    """The names of a section's fields."""
    model = Config.model_fields[section].annotation
    assert isinstance(model, type)
    assert issubclass(model, Section)
    return model.model_fields


# -------------------------------------------------------------------------------- writing


def to_toml(config: Config, width: int | None = None) -> str:
    """The whole config as TOML, each field with its meaning; loads back to an equal config.

    With a ``width`` in columns, a meaning that is too long for its line goes on below itself.
    """
    lines: list[str] = []
    for name, section in config:
        lines += [f"# {' '.join((type(section).__doc__ or '').split())}", f"[{name}]"]
        for field, value, meaning in _fields(section):
            assignment = f"# {field} is unset" if value is None else f"{field} = {to_toml_value(value)}"
            first, *more = textwrap.wrap(meaning, max(30, width - MEANING - 2)) if width else [meaning]
            if width and len(assignment) > MEANING:
                lines.append(assignment)
                assignment = ""
            lines += [f"{assignment:<{MEANING - 2}}  # {first}", *(f"{'':<{MEANING}}# {part}" for part in more)]
        lines.append("")
    return "\n".join(lines)


def fields_of(config: Config) -> list[tuple[str, object, str]]:
    """Every field: ``section.field``, its value, its meaning."""
    return [
        (f"{name}.{field}", value, meaning) for name, section in config for field, value, meaning in _fields(section)
    ]


def _fields(section: Section | Mapping[str, object]) -> list[tuple[str, object, str]]:
    if isinstance(section, Section):
        known = type(section).model_fields
        return [(field, value, known[field].description or "") for field, value in section]
    return [(field, value, "a setting of your own") for field, value in section.items()]


def to_toml_value(value: object) -> str:
    """A field's value as TOML."""
    if isinstance(value, tuple):
        return "[" + ", ".join(to_toml_value(item) for item in value) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON allows a bare DEL, TOML does not
