"""What a person reads in a terminal, or as plain text: plans, progress, comparisons and finished runs."""

from fedclade.report.terminal.comparison import show_comparison
from fedclade.report.terminal.plan import plan_as_json, show_plan, show_plan_details
from fedclade.report.terminal.progress import ComparisonDisplay, ProgressDisplay, event_lines
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
    "show_placement",
    "show_plan",
    "show_plan_details",
    "show_run",
    "spans",
]
