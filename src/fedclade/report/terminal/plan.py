"""One planned round: who uploads when, and what every order and allocation would make of it."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedclade.core.units import duration, number
from fedclade.report.terminal.layout import WideTable
from fedclade.report.terminal.words import percent, rate, spans
from fedclade.scheduling import Timeline
from fedclade.scheduling.constraints import Constraint
from fedclade.scheduling.preview import PlannedRound

PLAN_ROWS = 60  # devices of a plan shown one by one
GANTT_ROWS = 20
GANTT_DEVICES = 300  # of more, a picture in letters shows nothing


def show_plan(plan: PlannedRound, round_: int, policy: str) -> Iterator[RenderableType]:
    """The answer, on one screen: how long a planned round lasts, who misses it, and a picture of it."""
    timeline = plan.timeline
    sets = int(timeline.aggregation_set.max(initial=-1)) + 1
    longer = "" if timeline.ratio < 1.0005 else f"; this one is {100 * (timeline.ratio - 1):.1f} % longer"
    yield Text(
        f"Round {round_}, policy {policy}: {len(timeline.device)} devices selected, {sets} aggregation sets; "
        f"a model is {number(plan.model_bits / 1e6)} Mbit.\n"
        f"The round lasts {duration(timeline.makespan)} (makespan). At these CPU speeds and powers, no order of "
        f"the uploads makes it shorter than {duration(timeline.lower_bound)}{longer}. The slowest device alone needs "
        f"{duration(timeline.largest_latency)} (largest T_tot, eq. 11)."
    )
    if missed_devices := timeline.device[timeline.missed].tolist():
        yield Text(f"Miss the round: {spans(missed_devices)}.")
    for warning in plan.warnings:
        yield Text(f"Warning: {warning}.", style="yellow")
    if plan.compared:
        yield Text(_alternatives(plan))
    broken = [constraint.name for constraint in plan.constraints if not constraint.holds]
    yield Text(f"The paper's constraints P1: {'broken: ' + ', '.join(broken) if broken else 'all hold'}.")
    if len(timeline.arrived) and len(timeline.device) <= GANTT_DEVICES:
        yield Text(
            f"Sub-channels over time; a number is the device that uploads:\n{gantt(timeline, timeline.makespan)}"
        )
    yield Text("More: --details (every device, order and allocation; P1 line by line), --json (all of it).")


def _alternatives(plan: PlannedRound) -> str:
    """Which order and allocation would make the round shortest, and which would need the least energy."""
    (order, kind), quickest = min(plan.compared.items(), key=lambda each: each[1].timeline.makespan)
    (other, how), thriftiest = min(plan.compared.items(), key=lambda each: each[1].joules)
    return (
        f"It needs {number(plan.allocation.joules)} J.\n"
        f"Shortest: {duration(quickest.timeline.makespan)}, by order {order} and allocation {kind}. "
        f"Least energy: {number(thriftiest.joules)} J, by order {other} and allocation {how}."
    )


def show_plan_details(plan: PlannedRound) -> Iterator[RenderableType]:
    """Every device of a planned round, P1 line by line, and every order and allocation beside each other."""
    yield devices_planned(plan)
    if (more := len(plan.timeline.device) - PLAN_ROWS) > 0:
        yield Text(f"… and {more} more; --json has all.")
    yield problem(plan.constraints)
    if not plan.compared:
        return
    yield compared(plan)
    if len(plan.timeline.device) > GANTT_DEVICES:
        return
    yield Text("Sub-channels over time, one row each; a number is the device whose upload it is")
    longest = max(allocation.timeline.makespan for allocation in plan.compared.values())
    for order in dict.fromkeys(order for order, _ in plan.compared):
        timeline = plan.compared[order, "fixed"].timeline
        yield Text(f"\norder {order}: {duration(timeline.makespan)}\n{gantt(timeline, longest)}")


def devices_planned(plan: PlannedRound) -> WideTable:
    """Who uploads when, on whose sub-channel."""
    timeline, links = plan.timeline, plan.links

    def row(i: int, device: int) -> tuple[str, ...]:
        missed = bool(timeline.missed[i])
        return (
            str(device),
            "–" if missed else str(timeline.aggregation_set[i] + 1),
            "misses" if missed else str(timeline.subchannel[i]),
            "–" if timeline.predecessor[i] < 0 else f"of {timeline.predecessor[i]}",
            f"{10 * np.log10(max(links.snr[device], 1e-300)):.1f} dB",
            rate(float(links.rate_bps[device])),
            duration(float(timeline.ready[i])),
            "–" if missed else duration(float(timeline.start[i])),
            "–" if missed else duration(float(timeline.end[i])),
        )

    columns = ("device", "set", "sub-channel", "reuses", "SNR", "rate", "computes", "uploads from", "to")
    return WideTable("Who uploads when", columns, [row(*each) for each in enumerate(timeline.device[:PLAN_ROWS])])


def compared(plan: PlannedRound) -> WideTable:
    """Every order and allocation of the same devices, side by side."""
    rows = []
    for (order, kind), allocation in plan.compared.items():
        timeline, fixed = allocation.timeline, plan.compared[order, "fixed"].joules
        rows.append(
            (
                order,
                kind,
                duration(timeline.makespan),
                f"{100 * (timeline.ratio - 1):.1f} %",
                str(int((~timeline.missed).sum())),
                f"{number(allocation.joules)} J",
                percent(allocation.joules / fixed if fixed else 1.0),
            )
        )
    columns = ("order", "allocation", "round lasts", "over the bound", "uploads", "energy", "of fixed")
    return WideTable("Orders and allocations compared", columns, rows, names=2)


def problem(constraints: list[Constraint]) -> Table:
    """Whether the paper's P1 is kept."""
    table = Table(title="The problem P1", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("constraint", "says", "holds", "by how much"):
        table.add_column(name)
    for constraint in constraints:
        table.add_row(constraint.name, constraint.meaning, "yes" if constraint.holds else "NO", constraint.detail)
    return table


def gantt(timeline: Timeline, seconds: float, width: int = 72) -> str:
    """One line a sub-channel, on any terminal: ``·`` idle, ``[=7==`` an upload."""
    lines = []
    channels = np.unique(timeline.subchannel[~timeline.missed])
    for channel in channels[:GANTT_ROWS]:
        line = ["·"] * width
        for i in np.flatnonzero(timeline.subchannel == channel):
            first = min(int(timeline.start[i] / seconds * width), width - 1) if seconds else 0
            last = min(max(int(timeline.end[i] / seconds * width), first + 1), width) if seconds else 1
            name = str(timeline.device[i])
            bar = "[" + (name if len(name) < last - first else "").ljust(last - first - 1, "=")
            line[first:last] = bar
        lines.append(f"{channel:>4} {''.join(line)}")
    if len(channels) > GANTT_ROWS:
        lines.append(f"     … and {len(channels) - GANTT_ROWS} more sub-channels")
    return "\n".join(lines)


def plan_as_json(plan: PlannedRound) -> dict[str, object]:
    """The same for programs."""
    timeline = plan.timeline
    frame = pd.DataFrame(
        {
            "device": timeline.device,
            "aggregation_set": timeline.aggregation_set,
            "subchannel": timeline.subchannel,
            "predecessor": timeline.predecessor,
            "ready_seconds": timeline.ready,
            "start_seconds": timeline.start,
            "end_seconds": timeline.end,
            "energy_joules": plan.allocation.compute_joules + plan.allocation.upload_joules,
            "missed": timeline.missed,
        }
    ).replace([np.inf], np.nan)
    rows = [{k: None if pd.isna(v) else v for k, v in row.items()} for row in frame.to_dict("records")]
    return {
        "makespan_seconds": timeline.makespan,
        "lower_bound_seconds": timeline.lower_bound,
        "makespan_ratio": timeline.ratio,
        "largest_latency_seconds": timeline.largest_latency,
        "model_bits": plan.model_bits,
        "energy_joules": plan.allocation.joules,
        "warnings": plan.warnings,
        "constraints": [vars(constraint) for constraint in plan.constraints],
        "compared": [
            {
                "order": order,
                "allocation": kind,
                "makespan_seconds": allocation.timeline.makespan,
                "lower_bound_seconds": allocation.timeline.lower_bound,
                "makespan_ratio": allocation.timeline.ratio,
                "energy_joules": allocation.joules,
            }
            for (order, kind), allocation in plan.compared.items()
        ],
        "uploads": rows,
        "devices": plan.rows(),
    }
