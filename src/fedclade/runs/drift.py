"""How a recorded run followed devices whose data changed."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedclade.core.arrays import Ints
from fedclade.core.task import Score
from fedclade.metrics.following import Following, following

if TYPE_CHECKING:
    import pandas as pd


def groups_at_end(devices: Sequence[dict[str, Any]], events: Sequence[dict[str, Any]]) -> dict[int, int]:
    """The planted group of each device after all changes, from the rows of the two tables."""
    changed = {row["device"]: json.loads(row["detail"])["to"] for row in events if row["kind"] == "drifted"}
    return {row["device"]: changed.get(row["device"], row["planted_group"]) for row in devices}


def followed(events: "pd.DataFrame", evaluations: "pd.DataFrame", group: Ints, score: Score) -> Following | None:
    """From the tables of a run and the groups after the change; None where nothing changed, or is not evaluated yet."""
    changed = events[events["kind"] == "drifted"]
    if changed.empty or not evaluations["round"].max() >= changed["round"].iloc[0]:
        return None
    by_round = evaluations.sort_values(["round", "device"]).pivot(index="round", columns="device")
    return following(
        int(changed["round"].iloc[0]),
        changed["device"].to_numpy("int64"),
        group,
        by_round.index.to_numpy("int64"),
        by_round["node"].to_numpy().tolist(),
        by_round[score.name].to_numpy("float64"),
    )
