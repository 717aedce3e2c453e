"""Things found by name: users' own, named as ``package.module:attribute``, and the modules of our own packages."""

import difflib
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable

from fedclade.core.errors import UserError


def load(field: str, spec: str) -> object:
    """The object that ``spec`` names; the folder the user stands in counts as importable."""
    module_name, _, attribute = spec.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise UserError(f"{field} = {spec!r}: must be package.module:attribute")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{field} = {spec!r}: cannot import {module_name!r}: {error}") from error
    if not hasattr(module, attribute):
        raise UserError(f"{field} = {spec!r}: module {module_name!r} has no {attribute!r}")
    found: object = getattr(module, attribute)
    return found


def members(package: str) -> dict[str, str]:
    """The modules of a package by the names that users give them: ``cnn-large`` is the module ``cnn_large``.

    A module whose name begins with an underscore is no member.
    """
    folders = importlib.import_module(package).__path__
    names = [found.name for found in pkgutil.iter_modules(folders) if not found.name.startswith("_")]
    return {name.replace("_", "-"): f"{package}.{name}" for name in names}


def near_miss(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` if something known is close to the word, else the list of what is known."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(known)
