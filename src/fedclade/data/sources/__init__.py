"""Where data come from: one module for each source that has a name, a file or a folder, or the user's own function.

A module of this package is found by its name and has one function, ``read(config) -> Source``. A user's function is
named as ``population.source = "package.module:function"``; it is called with the whole config and gives any of what
``fedclade.data.given`` takes for a source.
"""

from importlib import import_module
from pathlib import Path

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, members, near_miss, takes, users_code
from fedclade.data.files import SUFFIXES, read_path
from fedclade.data.given import GIVEN, source_of
from fedclade.data.hugging_face import PREFIX, read_named_set
from fedclade.data.source import Source


def read_source(config: Config) -> Source:
    """The whole source that the config names, checked."""
    name = config.population.source
    where = f'population.source = "{name}"'
    known = members(__name__)
    if (kept := _kept.get(_key(config))) is not None:
        return kept
    if name in known:
        source: Source = import_module(known[name]).read(config)
    elif name.startswith(GIVEN):
        raise UserError(f"{where}: these data were given in Python; give them again: Experiment(…, devices=…)")
    elif name.startswith(PREFIX):
        source = read_named_set(name.removeprefix(PREFIX), config.population, where)
    elif _exists(name):
        source = read_path(Path(name), config.population, where)
    elif ":" in name:
        source = _read_own(config, where)
    elif "/" in name or name.endswith(SUFFIXES):
        raise UserError(f"{where}: there is no such file or folder")
    else:
        raise UserError(
            f"{where}: no such source; {near_miss(name, known)}, or a file, a folder, or 'package.module:function'"
        )
    return source.checked(where, config.population.targets)


UNCHANGING = ("cifar10", "digits", "femnist", "mnist5k")  # sources that no other setting than their folder changes
_kept: dict[tuple[str, str | None], Source] = {}


def keep(config: Config) -> None:
    """Read a source that does not change, and keep it for this process and its forks; one kept before is let go."""
    if config.population.source in UNCHANGING and _key(config) not in _kept:
        _kept.clear()
        _kept[_key(config)] = read_source(config)


def _key(config: Config) -> tuple[str, str | None]:
    root = config.population.root
    return config.population.source, None if root is None else str(root)


def _exists(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):  # too long, or with a zero byte: not the name of a file
        return False


def _read_own(config: Config, where: str) -> Source:
    function = load("population.source", config.population.source)
    if not takes(function, 1):
        raise UserError(f"{where}: must be a function of the config")
    with users_code(where):
        try:
            given = function(config)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
    return source_of(given, config.population, where)
