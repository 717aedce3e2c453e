"""How long things take on real devices: measured, smoothed over rounds; and what became of a planned round.

No clock and no messages here: whoever has them tells this module what was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.edge import Links
from fedclade.scheduling import Timeline, plan_timeline
from fedclade.scheduling.lower_bound import lower_bound

SMOOTHING = 0.5  # weight of the newest measurement
TOLERANCE = 3.0  # a round may take so many times as long as expected before those missing are given up


class MeasuredEdge:
    """An Edge whose numbers come from the devices.

    Nothing is expected to last longer than ``cap_seconds``, and no device is waited for as if it took longer than
    ``slowest`` times the median device.
    """

    def __init__(
        self, subchannels: int, model_bits: float, grace_seconds: float, cap_seconds: float, slowest: float
    ) -> None:
        self.subchannels, self.model_bits, self._grace_seconds = subchannels, model_bits, grace_seconds
        self._cap_seconds, self._slowest = cap_seconds, slowest
        self._compute_seconds, self._upload_seconds = np.zeros(0), np.zeros(0)
        self.present = np.zeros(0, dtype=bool)

    @property
    def devices(self) -> int:
        """How many it knows of, there or not."""
        return len(self.present)

    def admit(self, compute_seconds: float, upload_seconds: float) -> None:
        """One more device, with a first estimate."""
        self._compute_seconds = np.append(self._compute_seconds, min(compute_seconds, self._cap_seconds))
        self._upload_seconds = np.append(self._upload_seconds, min(max(upload_seconds, 1e-3), self._cap_seconds))
        self.present = np.append(self.present, False)

    def measured(self, device: int, compute_seconds: float, upload_seconds: float) -> None:
        """What a device took in a round."""
        for known, new in ((self._compute_seconds, compute_seconds), (self._upload_seconds, upload_seconds)):
            known[device] += SMOOTHING * (max(new, 1e-3) - known[device])

    def overdue(self, device: int, seconds: float) -> None:
        """It took longer than that: expect so much next time."""
        self._compute_seconds[device] = max(self._compute_seconds[device], seconds - self._upload_seconds[device])

    def allowed_seconds(self, devices: Ints) -> float:
        """When to give up a round of these devices: whoever is silent, or says that it is slow, holds up nobody."""
        compute_seconds, upload_seconds = (
            np.minimum(known, self._slowest * np.median(known)) if len(known) else known
            for known in (self._compute_seconds, self._upload_seconds)
        )
        expected = plan_timeline(
            devices,
            compute_seconds[devices],
            upload_seconds[devices],
            self.subchannels,
            order="longest-upload",
        )
        return min(self._grace_seconds + TOLERANCE * expected.makespan, self._cap_seconds)

    def observe(self, round_: int) -> Links:
        """What the server plans with; whoever is not there cannot upload."""
        upload_seconds = np.where(self.present, self._upload_seconds, np.inf)
        return links(self._compute_seconds.copy(), upload_seconds, self.model_bits)

    def broadcast_seconds(self, models: int) -> float:
        """A model's way to a device is part of what is measured."""
        return 0.0


class RecordedEdge:
    """An Edge that plays recorded latencies back; rounds beyond the last are like it."""

    def __init__(self, latencies: Mapping[int, tuple[Floats, Floats]], subchannels: int, model_bits: float) -> None:
        self._latencies, self.subchannels, self.model_bits = latencies, subchannels, model_bits

    def observe(self, round_: int) -> Links:
        """What the round was planned with when it was recorded."""
        return links(*self._latencies[min(round_, max(self._latencies))], self.model_bits)

    def broadcast_seconds(self, models: int) -> float:
        """A model's way to a device is part of what was measured."""
        return 0.0


def links(compute_seconds: Floats, upload_seconds: Floats, model_bits: float) -> Links:
    """What latencies say of every device; it is away where an upload would take forever. Energy is not measured."""
    zero, here = np.zeros(len(upload_seconds)), np.isfinite(upload_seconds)
    return Links(
        snr=np.full(len(upload_seconds), np.nan),
        rate_bps=model_bits / upload_seconds,
        compute_seconds=compute_seconds,
        upload_seconds=upload_seconds,
        compute_joules=zero,
        upload_joules=zero,
        reachable=here,
        away=~here,
    )


@dataclass(frozen=True)
class Span:
    """One upload as it happened, in seconds since the round began."""

    ready: float
    start: float
    end: float
    subchannel: int


def as_happened(plan: Timeline, spans: Mapping[int, Span], seconds: float, subchannels: int) -> Timeline:
    """The planned devices with their real times; without a span a device missed the round, which took ``seconds``."""
    arrived = [spans.get(device) for device in plan.device.tolist()]
    missed = np.array([span is None for span in arrived], dtype=bool)
    none = Span(np.nan, np.inf, np.inf, -1)
    ready, start, end = (
        np.array([getattr(span or none, name) for span in arrived], dtype=np.float64)
        for name in ("ready", "start", "end")
    )
    ready = np.where(missed, plan.ready, ready)
    channel = np.array([(span or none).subchannel for span in arrived], dtype=np.int64)
    turn = np.argsort(np.argsort(start, kind="stable"))
    computed, lasted = ready[~missed], end[~missed] - start[~missed]
    return replace(
        plan,
        aggregation_set=np.where(missed, -1, turn // subchannels),
        subchannel=channel,
        predecessor=_predecessors(plan.device, channel, start),
        ready=ready,
        start=start,
        end=end,
        missed=missed,
        makespan=seconds,
        largest_latency=float((computed + lasted).max(initial=0.0)),
        lower_bound=min(lower_bound(computed, lasted, subchannels), seconds),
    )


def _predecessors(device: Ints, channel: Ints, start: np.ndarray) -> Ints:
    """Who had the sub-channel before; -1: nobody."""
    last: dict[int, int] = {}
    before = np.full(len(device), -1)
    for i in np.argsort(start, kind="stable"):
        if channel[i] >= 0:
            before[i] = last.get(int(channel[i]), -1)
            last[int(channel[i])] = int(device[i])
    return before
