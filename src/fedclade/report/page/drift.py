"""What the page of a run draws of devices whose data changed."""

import numpy as np

from fedclade.report.drift import drift_told
from fedclade.report.page.shell import Json, rounded
from fedclade.runs import Run
from fedclade.runs.drift import followed, groups_at_end


def drift_data(run: Run) -> Json | None:
    """Round by round how well they were served, and when each was with its new group; None where nobody changed."""
    events, evaluations, score = run.events, run.evaluations, run.score
    group = groups_at_end(run.rows("devices"), run.rows("events"))
    found = followed(events, evaluations, np.array([group[device] for device in sorted(group)]), score)
    if found is None:
        return None
    changes = events[events["kind"] == "drifted"]
    by_round = evaluations.pivot(index="round", columns="device")
    scores, nodes = by_round[score.name].to_numpy("float64"), by_round["node"].to_numpy()
    others = np.setdiff1d(np.arange(len(group)), found.devices)
    facts = zip(rounded(found.rounds), rounded(found.lost), found.at_home.tolist(), changes["detail"], strict=True)
    return {
        "round": int(changes["round"].iloc[0]),
        "known": found.known,
        "line": drift_told(run) if run.finished else None,
        "rounds": by_round.index.tolist(),
        "mean": rounded(scores[:, found.devices].mean(axis=1)),
        "others": rounded(scores[:, others].mean(axis=1)) if len(others) else [],
        "devices": [
            {
                "device": device,
                **groups,
                "after": after,
                "lost": lost,
                "home": home,
                "node": nodes[-1, device],
                "score": rounded(scores[:, device]),
            }
            for device, (after, lost, home, groups) in zip(found.devices.tolist(), facts, strict=True)
        ],
    }
