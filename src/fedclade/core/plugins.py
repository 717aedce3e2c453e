"""Users' own policies and models, named as ``package.module:attribute``."""

import difflib
import importlib
import os
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


def near_miss(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` if something known is close to the word, else the list of what is known."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(known)
