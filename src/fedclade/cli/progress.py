"""A run told to a program instead of a person: one JSON object a line on stdout (docs/how-to/progress.md)."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedclade.core.errors import Interrupted, UserError

if TYPE_CHECKING:
    from fedclade.report.listener import Progress
    from fedclade.study import FailureKind


def say(event: str, **facts: object) -> None:
    """Print one event at once, in one piece, so that nothing else gets into its line."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def say_round(progress: "Progress") -> None:
    """Tell that a round is over: its number, the simulated clock, and the accuracies, or R², if they were evaluated."""
    seen, name = progress.record.evaluation, progress.score.name
    mean, worst = (None, None) if seen is None else (float(seen.score.mean()), float(seen.score.min()))
    say(
        "round",
        round=progress.record.round,
        rounds=progress.rounds,
        seconds=progress.state.seconds,
        wall_seconds=progress.wall_seconds,
        **{f"{name}_mean": mean, f"{name}_min": worst},
    )


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """Tell what ends the block before its time, and let it go on to whoever handles it."""

    def failed(kind: "FailureKind", message: str) -> None:
        say("failed", kind=kind, message=" ".join(message.split()))

    try:
        yield
    except UserError as error:
        failed("user-error", str(error))
        raise
    except (Interrupted, KeyboardInterrupt):
        failed("interrupted", "stopped by a signal; all finished rounds are kept")
        raise
    except Exception as error:
        failed("crashed", f"{type(error).__name__}: {error}")
        raise
