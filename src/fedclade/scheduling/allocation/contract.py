"""What every allocation keeps to, whoever wrote its rule."""

from collections.abc import Iterator

import numpy as np

from fedclade.core.arrays import Bools, Ints
from fedclade.core.errors import UserError
from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation.slots import Allocation, Slots
from fedclade.scheduling.timeline import most_at_once

ROUNDING = 1e-9  # of what is compared: sums of seconds round differently


def checked(slots: Slots, found: object) -> Allocation:
    """What a rule gave, if it keeps the contract; else the first breach of it in one line that names the rule."""
    if not isinstance(found, Allocation):
        raise _breach(slots, f"must give an Allocation, not a {type(found).__name__}")
    for breaches in (_of_form, _of_turns, _of_limits, _of_bandwidth):
        for breach in breaches(slots, found):
            raise _breach(slots, breach)
    return found


def _breach(slots: Slots, what: str) -> UserError:
    return UserError(f'scheduling.allocation = "{slots.rule}": {what}')


def _of_form(slots: Slots, found: Allocation) -> Iterator[str]:
    """Every device once, in the order it was given, and a number for each of them."""
    devices, timeline = slots.timeline.device, found.timeline
    if not np.array_equal(timeline.device, devices):
        yield f"must name devices {devices.tolist()}, each once and in this order, not {timeline.device.tolist()}"
    for name, planned in vars(slots.timeline).items():
        if np.shape(getattr(timeline, name)) != np.shape(planned):
            yield f"timeline.{name} must have the shape {np.shape(planned)}, not {np.shape(getattr(timeline, name))}"
    if not np.array_equal(timeline.missed, slots.timeline.missed):
        yield "must let exactly those devices upload that do so in the timeline it was given"
    for name, values in (("compute_joules", found.compute_joules), ("upload_joules", found.upload_joules)):
        if np.shape(values) != devices.shape or not (np.isfinite(values) & (np.asarray(values) >= 0)).all():
            yield f"{name} must be one finite number of at least 0 for each of {len(devices)} devices"
    width = np.ones(len(devices)) if found.bandwidth_hz is None else np.asarray(found.bandwidth_hz)
    if width.shape != devices.shape or not (width[~timeline.missed] > 0).all():
        yield f"bandwidth_hz must be one number above 0 for each of {len(devices)} devices"


def _of_turns(slots: Slots, found: Allocation) -> Iterator[str]:
    """Uploads begin when computing is done, end by the deadline, and are at most N at a time."""
    timeline = found.timeline
    on, tolerance = ~timeline.missed, _tolerance(timeline)
    ready, start, end = timeline.ready[on], timeline.start[on], timeline.end[on]
    devices = timeline.device[on]
    if not (np.isfinite(ready) & np.isfinite(start) & np.isfinite(end)).all():
        yield "every upload must have a finite beginning and end"
    yield from _first(devices, start < ready - tolerance, "begins to upload before it has computed")
    yield from _first(devices, end < start, "ends its upload before it begins")
    if slots.deadline is not None:
        yield from _first(devices, end > slots.deadline + tolerance, f"ends after the deadline {slots.deadline:g} s")
    if abs(timeline.makespan - end.max(initial=0.0)) > tolerance:
        yield f"makespan is {timeline.makespan:g} s, but the last upload ends at {end.max(initial=0.0):g} s"
    at_once = round(most_at_once(start, end - tolerance, np.ones(len(start))))
    if at_once > slots.subchannels:
        yield f"lets {at_once} devices upload at once on {slots.subchannels} sub-channels"


def _of_limits(slots: Slots, found: Allocation) -> Iterator[str]:
    """Nobody computes faster, sends louder or sends more softly than it can."""
    planned, timeline, effort = slots.timeline, found.timeline, slots.effort
    on, tolerance = ~timeline.missed, _tolerance(timeline)
    waits = planned.ready > effort.compute_seconds  # for something else than its own computing
    earliest = np.where(waits, planned.ready, effort.compute_shortest)
    shortest, longest = effort.upload_shortest, effort.upload_longest
    if found.bandwidth_hz is not None:
        width = np.where(on, found.bandwidth_hz, slots.uplink.subchannel_hz)
        shortest = slots.uplink.seconds(width, slots.uplink.power_max_w)
        longest = slots.uplink.seconds(width, slots.uplink.power_min_w)
    devices, lasts = timeline.device[on], timeline.end[on] - timeline.start[on]
    yield from _first(devices, timeline.ready[on] < earliest[on] - tolerance, "computes faster than it can")
    yield from _first(devices, lasts < shortest[on] - tolerance, "sends louder than its limit")
    yield from _first(devices, lasts > longest[on] + tolerance, "sends more softly than its limit")


def _of_bandwidth(slots: Slots, found: Allocation) -> Iterator[str]:
    """All uploads that are under way at one moment share B."""
    if found.bandwidth_hz is None:
        return
    timeline, on = found.timeline, ~found.timeline.missed
    width, limit = np.asarray(found.bandwidth_hz)[on], slots.uplink.bandwidth_hz
    used = most_at_once(timeline.start[on], timeline.end[on] - _tolerance(timeline), width)
    if used > limit * (1 + ROUNDING):
        yield f"uses {used:.6g} Hz at once of a bandwidth of {limit:.6g} Hz"


def _first(devices: Ints, wrong: Bools, what: str) -> Iterator[str]:
    """What the first device does wrong."""
    for device in devices[wrong][:1]:
        yield f"device {device} {what}"


def _tolerance(timeline: Timeline) -> float:
    return ROUNDING * timeline.makespan
