"""What is said of devices whose data changed."""

from fedclade.runs import Run


def drift_told(run: Run) -> str | None:
    """Whether the method of a finished run followed them, and what it cost; None where nobody's data changed."""
    summary, score = run.summary, run.score
    changed, share, rounds = (summary.get(f"drift_{name}") for name in ("devices", "followed", "rounds"))
    if changed is None:
        return None
    word = "changed group" if run.config.drift.kind == "group" else "swapped data"
    told = f"{changed} device{'s' * (changed != 1)} {word} in round {run.config.drift.round}; "
    lost = summary[f"drift_{score.name}_lost"]
    below = f"{score.difference(lost)}{score.points} below the {score.title} they had" if lost else ""
    if share is None:
        return f"{told}no groups are known that they could be with{below and f'; since then {below}'}"
    after = "" if rounds is None else f", followed after {rounds:.1f} rounds on average"
    return f"{told}{round(share * changed)} of them are with their new group{after}{below and f'; until then {below}'}"
