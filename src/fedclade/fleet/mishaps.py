"""What did not arrive, or arrived in vain."""

from collections.abc import Mapping

import numpy as np

from fedclade.core.records import Event
from fedclade.fleet.fleet import Arrival


def not_finite(arrival: Arrival) -> Mapping[int, str]:
    """Devices whose updates have something in them that is no number."""
    heard = arrival.heard
    return {int(device): "not finite" for device in heard[~np.isfinite(arrival.updates.norms(heard))]}


def mishaps(arrival: Arrival, leaf_of: list[str]) -> list[Event]:
    """One event for everything that went wrong in a round."""
    missed = arrival.timeline.device[arrival.timeline.missed].tolist()
    events = [Event("missed", leaf_of[device], device, _missed(arrival, device)) for device in missed]
    events += [Event("lost", leaf_of[device], device) for device in arrival.lost.tolist()]
    events += [
        Event("rejected", leaf_of[device], device, {"reason": reason}) for device, reason in arrival.rejected.items()
    ]
    return events + [Event("incident", "", detail={"what": what}) for what in arrival.incidents]


def _missed(arrival: Arrival, device: int) -> dict[str, str]:
    """Why a device missed the round; where it failed, also by the kind of failure."""
    trouble = arrival.failed.get(device)
    if trouble is None:
        return {"reason": _reason(arrival, device)}
    return {"reason": str(trouble), "failure": trouble.kind}


def _reason(arrival: Arrival, device: int) -> str:
    links = arrival.plan.links
    if links.away is not None and links.away[device]:
        return "away"
    return "deadline" if np.isfinite(links.upload_seconds[device]) else "unreachable"
