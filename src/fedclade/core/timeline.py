"""A round's uploads: as they are planned, or as they happened."""

from dataclasses import dataclass

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Timeline:
    """One round's plan; entry i of every array belongs to the i-th device in upload order."""

    device: Ints
    aggregation_set: Ints  # -1 where missed
    subchannel: Ints  # -1 where missed
    predecessor: Ints  # the device whose sub-channel this one reuses; -1: none
    ready: Floats  # computing done
    start: Floats  # upload starts; infinite where missed
    end: Floats
    missed: Bools
    makespan: float  # when the last upload ends
    largest_latency: float  # eq. (11): the largest T_tot of those who upload
    lower_bound: float  # no schedule of those who upload is shorter

    @property
    def ratio(self) -> float:
        """Makespan over its lower bound; 1 is as short as can be."""
        return self.makespan / self.lower_bound if self.lower_bound > 0 else 1.0

    @property
    def arrived(self) -> Ints:
        """Devices that upload, in the order their uploads end."""
        on_time = np.flatnonzero(~self.missed)
        return self.device[on_time[np.argsort(self.end[on_time], kind="stable")]]
