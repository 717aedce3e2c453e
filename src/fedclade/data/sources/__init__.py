"""Where data come from: one module for each source that has a name, or a function of the user's own.

A module of this package is found by its name and has one function, ``read(config) -> Source``. A user's function is
named as ``population.source = "package.module:function"``; it is called with the whole config and gives a ``Source``,
or a tuple ``(x, y)``, a pool that is dealt out, or ``(x, y, device)``, where every sample has its device.
"""

from importlib import import_module

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, members, near_miss
from fedclade.data.source import Source


def read_source(config: Config) -> Source:
    """The whole source that the config names, checked."""
    name = config.population.source
    where = f'population.source = "{name}"'
    if ":" in name:
        return _read_own(config, where).checked(where)
    known = members(__name__)
    if name not in known:
        raise UserError(f"{where}: no such source; {near_miss(name, known)}, or 'package.module:function'")
    source: Source = import_module(known[name]).read(config)
    return source.checked(where)


def _read_own(config: Config, where: str) -> Source:
    function = load("population.source", config.population.source)
    if not callable(function):
        raise UserError(f"{where}: must be a function of the config")
    try:
        given = function(config)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if isinstance(given, Source):
        return given
    if isinstance(given, tuple) and len(given) in (2, 3):
        return Source(given[0], given[1], device=given[2] if len(given) == 3 else None)
    kind = f"tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__
    raise UserError(f"{where}: gave a {kind}, must give a Source, (x, y) or (x, y, device)")
