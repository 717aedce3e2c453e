"""The clustering methods, one file each, found by their names: ``norm-thresholds`` is ``norm_thresholds.METHOD``."""

from collections.abc import Callable
from importlib import import_module

from fedclade.clustering.method import Method
from fedclade.clustering.panel import Panelled, panel_config
from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, members, near_miss, takes

PARTS = ("init", "grown", "calls", "before_training", "screen", "after_training", "save", "load")


def method_names() -> list[str]:
    """All methods that ship with fedclade."""
    return sorted(members(__name__))


def find_method(config: Config, groups: Ints | None = None) -> Method:
    """The method that a config names; ``groups`` are the planted ones, where they are known."""
    name = config.clustering.method
    factory: Callable[[Config, Ints | None], Method]
    if ":" in name:
        found = load("clustering.method", name)
        if not takes(found, 2):
            raise UserError(f"clustering.method = {name!r}: must be a class or function of (config, groups)")
        factory = found
    elif name in (known := members(__name__)):
        factory = import_module(known[name]).METHOD
    else:
        raise UserError(f'clustering.method = "{name}": no such method; {near_miss(name, method_names())}')
    many = config.population.devices > config.clustering.needs_panel
    method = factory(panel_config(config) if many else config, groups)
    lacking = [part for part in PARTS if not hasattr(method, part)]
    if lacking:
        raise UserError(f"clustering.method = {name!r}: has no {', '.join(lacking)}; derive it from BaseMethod")
    return Panelled(method, config) if many else method
