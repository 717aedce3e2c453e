"""What `fedclade plan` shows: one round, planned but not trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedclade.core.arrays import Floats
from fedclade.core.links import Links
from fedclade.core.timeline import Timeline
from fedclade.scheduling.allocation.slots import Allocation
from fedclade.scheduling.constraints import Constraint

# Columns that only a device that uploads can fill.
UPLOAD = (
    "missed",
    "subchannel",
    "aggregation_set",
    "predecessor",
    "ready_seconds",
    "start_seconds",
    "end_seconds",
    "power_w",
    "bandwidth_hz",
    "upload_bits",
    "energy_joules",
)


@dataclass(frozen=True)
class PlannedRound:
    """One round as it is planned, how plausible it is, and how it would be under other orders and allocations."""

    round: int
    links: Links
    seconds_per_sample: Floats  # what training on one sample once takes each device
    positions: Floats | None  # of each device in metres, K×2; None: unknown
    allocation: Allocation
    model_bits: float
    warnings: list[str]

    constraints: list[Constraint]
    compared: Mapping[tuple[str, str], Allocation]  # by order and allocation, of the same devices

    @property
    def timeline(self) -> Timeline:
        """Who uploads when."""
        return self.allocation.timeline

    def rows(self) -> list[dict[str, Any]]:
        """One row for each device, there or not, selected or not; None where a number does not exist."""
        links, here = self.links, self.positions
        available = np.ones(len(links.snr), dtype=bool) if links.away is None else ~links.away
        uploads = self._uploads()
        nothing = dict.fromkeys(UPLOAD)
        return [
            {
                "device": device,
                "round": self.round,
                "gain": None if links.uplink is None else float(links.uplink.gain[device]),
                "snr": float(links.snr[device]),
                "rate_bps": float(links.rate_bps[device]),
                "seconds_per_sample": float(self.seconds_per_sample[device]),
                "available": int(available[device]),
                "x_m": None if here is None else float(here[device, 0]),
                "y_m": None if here is None else float(here[device, 1]),
                "station": None if links.station is None else int(links.station[device]),
                "selected": int(device in uploads),
                **uploads.get(device, nothing),
            }
            for device in range(len(links.snr))
        ]

    def _uploads(self) -> dict[int, dict[str, Any]]:
        """The part of a row that only a selected device has, by device."""
        timeline, allocation, uplink = self.timeline, self.allocation, self.links.uplink
        width, found = allocation.bandwidth_hz, {}
        for i, device in enumerate(timeline.device.tolist()):
            if timeline.missed[i]:
                found[device] = {**dict.fromkeys(UPLOAD), "missed": 1, "ready_seconds": float(timeline.ready[i])}
                continue
            lasts = float(timeline.end[i] - timeline.start[i])
            standard = None if uplink is None else uplink.subchannel_hz
            values = (
                0,
                int(timeline.subchannel[i]),
                int(timeline.aggregation_set[i]),
                int(timeline.predecessor[i]),
                float(timeline.ready[i]),
                float(timeline.start[i]),
                float(timeline.end[i]),
                float(allocation.upload_joules[i]) / lasts if lasts > 0 else None,
                standard if width is None else float(width[i]),
                self.model_bits,
                float(allocation.compute_joules[i] + allocation.upload_joules[i]),
            )
            found[device] = dict(zip(UPLOAD, values, strict=True))
        return found
