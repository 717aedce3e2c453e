"""What an allocation rule is told of a planned round, and what it gives back.

Most of it is said in seconds. A slower CPU or a lower power is a longer computing or upload time, and both save energy:
computing costs κ·cycles·f² ~ 1/T², and an upload of n nats per hertz costs P·T ~ T·(e^(n/T) − 1), the rate formula
(eq. 7) solved for P.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedclade.core.arrays import Floats, Ints
from fedclade.core.errors import UserError
from fedclade.core.links import Uplink
from fedclade.core.timeline import Timeline
from fedclade.scheduling.lower_bound import lower_bound


@dataclass(frozen=True)
class Effort:
    """What devices need at their given speed and power, and the times at the ends of their CPU and power ranges."""

    compute_seconds: Floats
    upload_seconds: Floats
    compute_joules: Floats
    upload_joules: Floats
    snr: Floats
    compute_shortest: Floats
    compute_longest: Floats
    upload_shortest: Floats
    upload_longest: Floats

    def of(self, devices: Ints) -> "Effort":
        """Of these devices alone."""
        return Effort(**{name: values[devices] for name, values in vars(self).items()})

    @property
    def nats(self) -> Floats:
        """Upload time × nats per second and hertz: what the model's bits ask of the link."""
        return self.upload_seconds * np.log1p(self.snr)

    def computing(self, seconds: Floats) -> Floats:
        """Joules of computing in that time: κ·cycles·f² with f = cycles / seconds."""
        return self.compute_joules * over(self.compute_seconds, seconds) ** 2

    def uploading(self, seconds: Floats) -> Floats:
        """Joules of uploading in that time, at the power that the rate formula asks for."""
        nats = self.nats
        power = over(np.expm1(over(nats, seconds)), np.expm1(over(nats, self.upload_seconds)))
        return self.upload_joules * power * over(seconds, self.upload_seconds)


@dataclass(frozen=True)
class Allocation:
    """A timeline with everybody's speed and power settled; joules have one entry for each of its entries."""

    timeline: Timeline
    compute_joules: Floats  # 0 where missed
    upload_joules: Floats
    bandwidth_hz: Floats | None = None  # of each upload; None: one sub-channel's

    @property
    def joules(self) -> float:
        """Of all who upload."""
        return float(self.compute_joules.sum() + self.upload_joules.sum())


@dataclass(frozen=True)
class Slots:
    """A planned round; entry i of every array belongs to the i-th entry of the timeline.

    A slot reaches from the planned start of an upload to the planned start of the next one on that sub-channel, or to
    the end of the round. A device whose computing shall not change (because its upload waits for something else) has
    ``effort.compute_longest`` = ``effort.compute_seconds``.
    """

    timeline: Timeline  # at everybody's given speed and power, each upload over one sub-channel
    effort: Effort  # 0 where missed
    subchannels: int  # N: how many may upload at once
    deadline: float | None = None  # by which every upload must end; None: there is none
    known_uplink: Uplink | None = None  # None: it is not known
    rule: str = ""  # the name of the rule that is asked, for its messages

    @property
    def uplink(self) -> Uplink:
        """Upload time as a function of bandwidth and power, of the timeline's devices."""
        if self.known_uplink is None:
            raise UserError(
                f'scheduling.allocation = "{self.rule}": this edge measures how long uploads take, and cannot tell '
                "how long they would take at another bandwidth or power"
            )
        return self.known_uplink

    def settled(
        self,
        *,
        bandwidth_hz: Floats | None = None,
        power_w: Floats | None = None,
        compute_seconds: Floats | None = None,
    ) -> Allocation:
        """The round at these bandwidths, powers and computing times: each upload in its turn, as early as can be.

        Order and sub-channels stay as planned. What is left out stays as given.
        """
        uplink, on = self.uplink, ~self.timeline.missed
        width = np.where(on, uplink.subchannel_hz if bandwidth_hz is None else bandwidth_hz, uplink.subchannel_hz)
        power = uplink.power_w if power_w is None else power_w
        compute = self.effort.compute_seconds if compute_seconds is None else np.where(on, compute_seconds, 0.0)
        upload = np.where(on, uplink.seconds(width, power), 0.0)
        timeline = moved_up(self.timeline, compute - self.effort.compute_seconds, upload)
        timeline = with_lower_bound(timeline, upload, self.subchannels)
        return Allocation(timeline, self.effort.computing(compute), power * upload, width)


def moved_up(timeline: Timeline, earlier: Floats, upload: Floats) -> Timeline:
    """The same order on the same sub-channels with other ready and upload times."""
    ready = timeline.ready + earlier
    start, end = timeline.start.copy(), timeline.end.copy()
    free = [0.0] * (int(timeline.subchannel.max(initial=-1)) + 1)
    ready_at, lasts, channel = ready.tolist(), upload.tolist(), timeline.subchannel.tolist()
    for i in np.flatnonzero(~timeline.missed).tolist():
        start[i] = begins = max(ready_at[i], free[channel[i]])
        free[channel[i]] = end[i] = begins + lasts[i]
    return replace(timeline, ready=ready, start=start, end=end, makespan=max(free, default=0.0))


def with_lower_bound(timeline: Timeline, upload: Floats, subchannels: int) -> Timeline:
    """The timeline with the largest latency and the lower bound that follow from its ready and these upload times."""
    on = ~timeline.missed
    ready, upload = timeline.ready[on], upload[on]
    return replace(
        timeline,
        largest_latency=float((ready + upload).max(initial=0.0)),
        lower_bound=min(lower_bound(ready, upload, subchannels), timeline.makespan),  # sums round differently
    )


def over(above: Floats, below: Floats) -> Floats:
    """Their ratio; 1 where both are 0: what takes no time is not changed by how fast it is done."""
    return np.divide(above, below, out=np.ones_like(above), where=below > 0)
