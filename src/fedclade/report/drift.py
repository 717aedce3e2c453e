"""What is said of devices whose data changed."""

from collections.abc import Iterator

from fedclade.runs import Run


def drift_line(run: Run) -> Iterator[str]:
    """Whether the method of a finished run followed them: one line, or none where nobody's data changed."""
    summary = run.summary
    changed, share, rounds = (summary.get(f"drift_{name}") for name in ("devices", "followed", "rounds"))
    if changed is None:
        return
    word = "changed group" if run.config.drift.kind == "group" else "swapped data"
    home = f"{round(share * changed)} of them are with their new group"
    after = "" if rounds is None else f", followed after {rounds:.1f} rounds on average"
    score = run.score
    lost = summary[f"drift_{score.name}_lost"]
    until = f"; until then {score.difference(lost)}{score.points} below the {score.title} they had" if lost else ""
    yield f"{'Drift':<12}{changed} device(s) {word} in round {run.config.drift.round}; {home}{after}{until}"
