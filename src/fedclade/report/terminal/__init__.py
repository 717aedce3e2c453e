"""What a person reads in a terminal, or as plain text: plans, progress, comparisons and finished runs.

A name is imported when it is first asked for: what one command prints does not wait for what another one needs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedclade.report.terminal.comparing import ComparisonDisplay
    from fedclade.report.terminal.comparison import show_comparison, show_leaderboard
    from fedclade.report.terminal.plan import plan_as_json, show_plan, show_plan_details
    from fedclade.report.terminal.progress import ProgressDisplay, event_lines
    from fedclade.report.terminal.run import show_placement, show_run
    from fedclade.report.terminal.words import percent, rate, spans

__all__ = [
    "ComparisonDisplay",
    "ProgressDisplay",
    "event_lines",
    "percent",
    "plan_as_json",
    "rate",
    "show_comparison",
    "show_leaderboard",
    "show_placement",
    "show_plan",
    "show_plan_details",
    "show_run",
    "spans",
]
HOMES = {
    "comparing": ("ComparisonDisplay",),
    "comparison": ("show_comparison", "show_leaderboard"),
    "plan": ("plan_as_json", "show_plan", "show_plan_details"),
    "progress": ("ProgressDisplay", "event_lines"),
    "run": ("show_placement", "show_run"),
    "words": ("percent", "rate", "spans"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
