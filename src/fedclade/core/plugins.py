"""Things found by name: users' own, named as ``package.module:attribute``, and the modules of our own packages."""

import contextlib
import difflib
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeGuard

from fedclade.core.errors import Interrupted, UserError


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
    except Exception as error:  # a user's module may fail in any way
        told = f"{type(error).__name__}: {error}"
        raise UserError(f"{field} = {spec!r}: cannot import {module_name!r}: {told}") from error
    if not hasattr(module, attribute):
        raise UserError(f"{field} = {spec!r}: module {module_name!r} has no {attribute!r}")
    found: object = getattr(module, attribute)
    return found


def takes(found: object, arguments: int) -> TypeGuard[Callable[..., Any]]:
    """Whether something can be called with so many arguments; of what does not tell, it is believed."""
    if not callable(found):
        return False
    try:
        inspect.signature(found).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


@contextlib.contextmanager
def users_code(where: str) -> Iterator[None]:
    """Around a call of what a user wrote: whatever goes wrong in it is one line that begins with ``where``."""
    try:
        yield
    except (UserError, Interrupted, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where}: fails: {reason}") from error


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
