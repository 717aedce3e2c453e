"""Plans, progress and finished runs in a terminal, or as plain text."""

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedclade.core.records import RoundRecord
from fedclade.edge import duration
from fedclade.metrics import Metric
from fedclade.report.drift import drift_line
from fedclade.report.listener import Listener
from fedclade.report.listener import Progress as RunProgress
from fedclade.report.tables import tables
from fedclade.runs import Run
from fedclade.runs.assign import Placement
from fedclade.runs.drift import groups_at_end
from fedclade.runs.problem import check_run
from fedclade.scheduling import Timeline
from fedclade.scheduling.constraints import Constraint
from fedclade.scheduling.preview import PlannedRound
from fedclade.study import Comparison, Job

PLAN_ROWS = 60  # devices of a plan shown one by one
GANTT_ROWS = 20
GANTT_DEVICES = 300  # of more, a picture in letters shows nothing
PLAIN_LINES = 25  # progress lines of a run whose output is not a terminal


def percent(value: float | None) -> str:
    """A share as a person reads it."""
    return "–" if value is None or pd.isna(value) else f"{100 * value:.1f} %"


def rate(bps: float) -> str:
    """A data rate as a person reads it."""
    for unit, size in (("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps:.3g} bit/s"


def spans(ids: list[int]) -> str:
    """0-6, 9, 11-13."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


# -------------------------------------------------------------------------------- a plan


def show_plan(plan: PlannedRound, round_: int, policy: str) -> Iterator[RenderableType]:
    """One planned round: who uploads when, on whose sub-channel."""
    timeline, links = plan.timeline, plan.links
    table = Table(
        title=f"Round {round_}, policy {policy}: {len(timeline.device)} devices selected",
        title_justify="left",
    )
    for name in ("device", "set", "sub-channel", "reuses", "SNR", "rate", "computes", "uploads from", "to"):
        table.add_column(name, justify="right")
    for i, device in enumerate(timeline.device[:PLAN_ROWS]):
        missed = bool(timeline.missed[i])
        table.add_row(
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
    yield table
    if (more := len(timeline.device) - PLAN_ROWS) > 0:
        yield Text(f"… and {more} more; --json has all.")
    sets = int(timeline.aggregation_set.max(initial=-1)) + 1
    yield Text(
        f"{sets} aggregation sets; a model is {plan.model_bits / 1e6:.3g} Mbit.\n"
        f"The round lasts {duration(timeline.makespan)} (makespan), {timeline.ratio:.2f} times "
        f"{duration(timeline.lower_bound)}, below which no schedule of these devices gets; the slowest device alone "
        f"needs {duration(timeline.largest_latency)} (largest T_tot, eq. 11)."
    )
    if missed_devices := timeline.device[timeline.missed].tolist():
        yield Text(f"Miss the round: {spans(missed_devices)}.")
    for warning in plan.warnings:
        yield Text(f"Warning: {warning}.", style="yellow")
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


def compared(plan: PlannedRound) -> Table:
    """Every order and allocation of the same devices, side by side."""
    table = Table(title="Orders and allocations compared", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("order", "allocation", "round lasts", "over the bound", "uploads", "energy", "of fixed"):
        table.add_column(name, justify="left" if name in ("order", "allocation") else "right")
    for (order, kind), allocation in plan.compared.items():
        timeline, fixed = allocation.timeline, plan.compared[order, "fixed"].joules
        table.add_row(
            order,
            kind,
            duration(timeline.makespan),
            f"{100 * (timeline.ratio - 1):.1f} %",
            str(int((~timeline.missed).sum())),
            f"{allocation.joules:.3g} J",
            percent(allocation.joules / fixed if fixed else 1.0),
        )
    return table


def problem(constraints: list[Constraint]) -> Table:
    """Whether the paper's P1 is kept."""
    table = Table(title="The problem P1", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("constraint", "says", "holds", "by how much"):
        table.add_column(name)
    for constraint in constraints:
        table.add_row(constraint.name, constraint.meaning, "yes" if constraint.holds else "NO", constraint.detail)
    return table


def gantt(timeline: Timeline, seconds: float, width: int = 100) -> str:
    """One line a sub-channel: ``·`` idle, ``[=7==`` an upload."""
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


# -------------------------------------------------------------------------------- progress


def event_lines(record: RoundRecord) -> Iterator[str]:
    """What a round changed in the tree, and what went wrong, a line each."""
    for event in record.events:
        if event.kind == "split":
            sides = " | ".join(spans(part) or "nobody" for part in event.detail["parts"])
            yield f"round {record.round}: cluster {event.node} splits into {sides}"
        elif event.kind in ("stop", "reopen"):
            word = "has stopped" if event.kind == "stop" else "is open again"
            yield f"round {record.round}: cluster {event.node} {word}"
        elif event.kind in ("moved", "placed"):
            left = event.detail["from"]
            yield f"round {record.round}: device {event.device} goes from cluster {left} to {event.node}"
        elif event.kind == "merge":
            yield f"round {record.round}: clusters {event.node} and {event.detail['merged']} become one"
        elif event.kind == "drifted":
            to = event.detail["to"]
            yield f"round {record.round}: the data of device {event.device} change, its group is now {to}"
        elif event.kind == "joined":
            yield f"round {record.round}: device {event.device} joined, in cluster {event.node}"
        elif event.kind == "incident":
            yield f"round {record.round}: {event.detail['what']}"
        elif event.kind == "rejected":
            yield f"round {record.round}: rejected the update of device {event.device}: {event.detail['reason']}"


def show_placement(found: Placement) -> Iterator[str]:
    """The walk down the tree, a line for each fork, and where it ends."""
    for step in found.steps:
        yield (
            f"{step.node}: to {step.chosen}, loss {step.loss:.3f} against {step.refused_loss:.3f} in {step.refused}"
            f" (p = {step.p_value:.1g})"
        )
    yield (f"Cluster     {found.leaf}: loss {found.loss:.3f}, {percent(found.accuracy)} of {found.images} images right")
    yield f"Model       {found.model}"


class ProgressDisplay(Listener):
    """A live line on a terminal; elsewhere a plain line now and then and at every event."""

    def __init__(self, console: Console, rounds: int) -> None:
        self._console, self._rounds = console, rounds
        self._bar = Progress(
            TextColumn("round"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[eta]}"),
            console=console,
        )
        self._task = self._bar.add_task("run", total=rounds, facts="", eta="")
        self._live = Live(self._bar, console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def round_ended(self, progress: RunProgress) -> None:
        """Tell what happened, and how long it may still take."""
        record, state = progress.record, progress.state
        for line in event_lines(record):
            self._say(line)
        per_round = progress.wall_seconds / (record.round - progress.done_before)
        eta = f"about {duration(per_round * (progress.rounds - record.round))} left"
        facts = _facts(progress)
        if self._live:
            self._bar.update(self._task, completed=record.round, facts=facts, eta=eta)
        elif record.round % max(1, self._rounds // PLAIN_LINES) == 0 or state.round == self._rounds:
            self._console.print(f"round {record.round}/{self._rounds}  {facts}  {eta}", soft_wrap=True, highlight=False)

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)


def _facts(progress: RunProgress) -> str:
    record = progress.record
    parts = [f"{len(progress.state.tree.leaves())} cluster(s)"]
    if record.evaluation is not None:
        accuracy = record.evaluation.accuracy
        parts.append(f"accuracy {percent(float(accuracy.mean()))}, worst {percent(float(accuracy.min()))}")
    norms = [c for c in record.clusters if c.mean_norm is not None and c.max_norm is not None]
    if norms:
        largest = max(norms, key=lambda c: c.max_norm or 0.0)
        parts.append(f"norms mean {largest.mean_norm:.3f} max {largest.max_norm:.3f}")
    parts.append(f"simulated {duration(progress.state.seconds)}")
    parts.append(f"{progress.samples_per_second:,.0f} samples/s")
    return "  ".join(parts)


class ComparisonDisplay:
    """One bar for all runs of a comparison; without a terminal, a line whenever a run is over."""

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        self._console = console
        self._done = dict.fromkeys(jobs, 0)
        self._over: set[Job] = set()
        self._begun, self._before = time.monotonic(), 0.0
        self._bar = Progress(
            TextColumn("runs"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[eta]}"),
            console=console,
        )
        self._task = self._bar.add_task("runs", total=self._work(lambda job: job.config.run.rounds), facts="", eta="")
        self._live = Live(self._bar, console=console, transient=True) if console.is_terminal else None

    def _work(self, rounds: Callable[[Job], int]) -> float:
        """A round of more devices takes longer."""
        return float(sum(rounds(job) * job.devices for job in self._done))

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def kept(self, job: Job) -> None:
        """A run that was finished before this process began."""
        self._done[job] = job.config.run.rounds
        self._over.add(job)
        self._before = self._work(self._done.__getitem__)

    def __call__(self, job: Job, rounds: int) -> None:
        """So many rounds of a job are done."""
        self._done[job] = rounds
        done, total = (self._work(f) for f in (self._done.__getitem__, lambda job: job.config.run.rounds))
        speed = (done - self._before) / max(time.monotonic() - self._begun, 1e-9)
        eta = f"about {duration((total - done) / speed)} left" if speed and done < total else ""
        over = rounds >= job.config.run.rounds and job not in self._over
        if over:
            self._over.add(job)
        facts = f"{len(self._over)}/{len(self._done)}"
        if self._live:
            running = sum(0 < r < job.config.run.rounds for job, r in self._done.items())
            self._bar.update(self._task, completed=done, facts=f"{facts}, {running} going on", eta=eta)
        elif over:
            self._console.print(f"run {facts}  {job}  {eta}", soft_wrap=True, highlight=False)


# -------------------------------------------------------------------------------- a comparison


def show_comparison(comparison: Comparison) -> Iterator[RenderableType]:
    """The tables of a comparison."""
    for ready in tables(comparison):
        table = Table(title=ready.title, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("K", justify="right")
        table.add_column("policy")
        for column in ready.columns:
            table.add_column(column, justify="right")
        for i, (devices, name, cells) in enumerate(ready.rows):
            last = i + 1 == len(ready.rows) or ready.rows[i + 1][0] != devices
            table.add_row(str(devices), name, *(cell.text for cell in cells), end_section=last)
        yield table


# -------------------------------------------------------------------------------- a finished run


def show_run(run: Run, with_problem: bool = False) -> Iterator[RenderableType]:
    """The closing tables of a run, read from its directory; the check of P1 if wanted."""
    summary = run.summary
    models = run.models
    by_model = {str(name): part.set_index("device")["accuracy"] for name, part in models.groupby("model")}
    yield _clusters(run, by_model)
    yield _groups(run, by_model)
    if with_problem:
        yield problem(check_run(run))
    yield Group(*_facts_of(summary), *map(Text, drift_line(run)), *_own(run.own_metrics, summary))


def _clusters(run: Run, by_model: dict[str, "pd.Series[float]"]) -> Table:
    table = Table(title="Clusters found", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("cluster", "devices", "since round", "stopped", "worst", "mean", "best"):
        table.add_column(name, justify="left" if name in ("cluster", "devices") else "right")
    for leaf in run.leaves():
        accuracy = by_model[leaf.name].loc[list(leaf.devices)]
        table.add_row(
            leaf.name,
            spans(list(leaf.devices)),
            str(leaf.born_round),
            "not yet" if leaf.stopped_round is None else f"round {leaf.stopped_round}",
            percent(accuracy.min()),
            percent(accuracy.mean()),
            percent(accuracy.max()),
        )
    return table


def _groups(run: Run, by_model: dict[str, "pd.Series[float]"]) -> Table:
    """Every planted group under the one model and under its devices' own."""
    devices = groups_at_end(run.devices, run.events).set_index("device")
    own = pd.Series({device: by_model[leaf.name].loc[device] for leaf in run.leaves() for device in leaf.devices})
    kind = run.config.run.conventional
    note = "trained on by everybody" if kind == "continued" else "as it stood at the first split"
    table = Table(
        title=f"One model for all ({note}) against a model per cluster", title_justify="left", box=box.SIMPLE_HEAD
    )
    for name in (
        "planted group",
        "devices",
        "one model: worst",
        "mean",
        "own model: worst",
        "mean",
        "worst gains",
    ):
        table.add_column(name, justify="left" if name in ("planted group", "devices") else "right")
    groups = [(str(name), part.index) for name, part in devices.groupby("planted_group")]
    if len(groups) > 1:
        groups.append(("all", devices.index))
    for name, members in groups:
        before, after = by_model["conventional"].loc[members], own.loc[members]
        table.add_row(
            name,
            spans(members.tolist()),
            percent(before.min()),
            percent(before.mean()),
            percent(after.min()),
            percent(after.mean()),
            f"{100 * (after.min() - before.min()):+.1f}",
        )
    return table


def _own(metrics: Sequence[Metric], summary: dict[str, Any]) -> Iterator[Text]:
    """The metrics that the config names, on one line."""
    if metrics:
        told = ", ".join(f"{metric.title} {metric.text(summary[metric.name])}" for metric in metrics)
        yield Text(f"{'Own metrics':<12}{told}")


def _facts_of(summary: dict[str, object]) -> Iterator[Text]:
    def number(name: str) -> float:
        value = summary[name]
        return float(value) if isinstance(value, int | float) else float("nan")  # of devices that are all gone

    def line(label: str, text: str) -> Text:
        return Text(f"{label:<12}{text}")

    found = f"{summary['clusters']} cluster(s)"
    if summary["adjusted_rand_index"] is not None:
        ari = number("adjusted_rand_index")
        exact = ": exactly the planted groups" if ari == 1.0 else ""
        found += f", adjusted Rand index {ari:.2f}{exact}"
    if summary["first_split_round"] is not None:
        found += (
            f"; splits in rounds {summary['first_split_round']} to {summary['last_split_round']}"
            f" ({duration(number('first_split_seconds'))} to {duration(number('last_split_seconds'))})"
        )
    yield line("Groups", found)
    yield line(
        "Fairness",
        f"accuracy {percent(number('accuracy_min'))} to {percent(number('accuracy_max'))}"
        f" (gap {100 * number('accuracy_gap'):.1f} points), worst tenth {percent(number('accuracy_worst_tenth'))},"
        f" Jain of accuracy {number('jain_accuracy'):.3f}, of participation {number('jain_participation'):.3f}",
    )
    yield line(
        "Cost",
        f"{duration(number('simulated_seconds'))} simulated in {summary['rounds']} rounds,"
        f" {summary['uploads']} uploads, {number('upload_bits') / 1e6:.4g} Mbit, {number('energy_joules'):.3g} J;"
        f" {duration(number('wall_seconds'))} of computing here ({number('wall_share_training'):.0%} training,"
        f" {number('wall_samples_per_second'):,.0f} samples/s)",
    )
