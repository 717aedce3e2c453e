"""What varies by planted group: one module for each kind that has a name, or the user's own function.

A module of this package is found by its name (``permute-labels`` is ``permute_labels``) and has one function,
``variation(config, source) -> Vary``. One that also says which classes a group may hold has ``allowed_classes``.
A user's function is named as ``incongruence.kind = "package.module:function"`` and called as ``function(x, y, group,
config)`` with one device's samples; it gives them as a device of that group sees them.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TypeAlias

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, members, near_miss, takes, users_code
from fedclade.data.source import Source

# From samples, their targets and a group to what a device of that group holds.
Vary: TypeAlias = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def find_variation(config: Config, source: Source) -> Vary:
    """How devices of each planted group see samples of a checked source."""
    kind = config.incongruence.kind
    if kind == "none":
        return lambda x, y, group: (x, y)
    if ":" in kind:
        return _own(config)
    vary: Vary = find_module(kind).variation(config, source)
    return vary


def find_module(kind: str) -> ModuleType:
    """The module of a kind that has a name."""
    known = members(__name__)
    if kind not in known:
        raise UserError(f'incongruence.kind = "{kind}": no such kind; {near_miss(kind, ["none", *known])}')
    return import_module(known[kind])


def amounts(config: Config, usual: Callable[[int], float]) -> list[float]:
    """How much each group's samples are changed: as the config says, or as is usual for the number of a group."""
    given = config.incongruence.amounts
    return list(given) if given is not None else [usual(group) for group in range(len(config.incongruence.groups))]


def need_images(config: Config, source: Source, channels: int | None = None) -> None:
    """Refuse samples that are no images."""
    shape, kind = source.x.shape[1:], config.incongruence.kind
    is_image = len(shape) == 3 and min(shape[1:]) > 1 and source.x.dtype != np.int32
    if not is_image or (channels is not None and shape[0] != channels):
        of = f" of {channels} channels" if channels else ""
        raise UserError(f'incongruence.kind = "{kind}": needs images{of}, not samples of {"×".join(map(str, shape))}')


def in_range(changed: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Changed samples in the type they had; 8-bit ones are rounded, and cut at 0 and 255."""
    if before.dtype == np.uint8:
        changed = np.clip(np.rint(changed), 0, 255)
    return changed.astype(before.dtype)


def _own(config: Config) -> Vary:
    kind = config.incongruence.kind
    where, function = f'incongruence.kind = "{kind}"', load("incongruence.kind", kind)
    if not takes(function, 4):
        raise UserError(f"{where}: must be a function of (x, y, group, config)")

    def vary(x: np.ndarray, y: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray]:
        with users_code(where):
            found = function(x, y, group, config)
        if not isinstance(found, tuple) or len(found) != 2:
            raise UserError(f"{where}: gave a {type(found).__name__}, must give a pair (x, y)")
        seen = np.asarray(found[0]), np.asarray(found[1])
        for name, given, right in zip("xy", seen, (x, y), strict=True):
            if given.shape != right.shape or not np.can_cast(given.dtype, right.dtype, "same_kind"):
                got, must = (f"{each.dtype} of shape {each.shape}" for each in (given, right))
                raise UserError(f"{where}: gave {name} as {got}, must be {must}")
        return seen[0].astype(x.dtype), seen[1].astype(y.dtype)

    return vary
