"""How a recorded run followed devices whose data changed."""

import pandas as pd

from fedclade.core.arrays import Ints
from fedclade.metrics.following import Following, following


def groups_at_end(devices: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """The table of devices, each with the planted group that it belongs to after all changes."""
    changed = events[events["kind"] == "drifted"]
    to = dict(zip(changed["device"], (detail["to"] for detail in changed["detail"]), strict=True))
    return devices.assign(planted_group=[to.get(row.device, row.planted_group) for row in devices.itertuples()])


def followed(events: pd.DataFrame, evaluations: pd.DataFrame, group: Ints) -> Following | None:
    """From the tables of a run and the groups after the change; None where nothing changed."""
    changed = events[events["kind"] == "drifted"]
    if changed.empty:
        return None
    by_round = evaluations.sort_values(["round", "device"]).pivot(index="round", columns="device")
    return following(
        int(changed["round"].iloc[0]),
        changed["device"].to_numpy("int64"),
        group,
        by_round.index.to_numpy("int64"),
        by_round["node"].to_numpy().tolist(),
        by_round["accuracy"].to_numpy("float64"),
    )
