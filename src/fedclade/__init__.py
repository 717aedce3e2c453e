"""fedclade: fair clustered federated learning at the wireless edge.

>>> from fedclade import run, open_run
>>> finished = run("quickstart", out="runs/mine")   # doctest: +SKIP
>>> open_run("runs/mine").rounds                    # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from fedclade.core.errors import Interrupted, UserError

if TYPE_CHECKING:
    from fedclade.report.listener import Listener
    from fedclade.report.opened import OpenedRun, open_run
    from fedclade.scheduling.preview import PlannedRound
    from fedclade.simulation import Experiment, resume, run

    Plan = PlannedRound  # its former name
    Run = OpenedRun

__version__ = "0.1.0"
__all__ = [
    "Experiment",
    "Interrupted",
    "Listener",
    "Plan",
    "PlannedRound",
    "Run",
    "UserError",
    "__version__",
    "open_run",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import torch and pandas only when something that needs them is asked for."""
    from importlib import import_module

    homes = {
        "Experiment": "simulation",
        "Listener": "report.listener",
        "PlannedRound": "scheduling.preview",
        "resume": "simulation",
        "run": "simulation",
        "OpenedRun": "report.opened",
        "open_run": "report.opened",
    }
    called = {"Plan": "PlannedRound", "Run": "OpenedRun"}.get(name, name)
    if called not in homes:
        raise AttributeError(f"module 'fedclade' has no attribute {name!r}")
    return getattr(import_module(f"fedclade.{homes[called]}"), called)
