"""A run in Weights & Biases; ``WANDB_MODE=offline`` keeps it in ``DIR/wandb`` until ``wandb sync`` is called."""

import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedclade.config import fields_of
from fedclade.report.loggers.logger import Logger
from fedclade.runs import Run

if TYPE_CHECKING:
    import wandb


class Wandb(Logger):
    """One run of the project ``WANDB_PROJECT``, or else "fedclade": config, rounds, events and the summary."""

    package = "wandb"
    _run: "wandb.Run"

    def begin(self, run: Run, done: int) -> None:
        """Begin it, or go on with the same one."""
        import wandb

        config: dict[str, dict[str, Any]] = {}
        for field, value, _ in fields_of(run.config):
            section, _, name = field.partition(".")
            config.setdefault(section, {})[name] = value
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedclade"),
            name=self.folder.resolve().name,
            id=self.known_as(lambda: secrets.token_hex(4)),
            resume="allow",
            dir=str(self.folder),
            config=config,
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, round_: int, seconds: float, scalars: Mapping[str, float], events: list[str]) -> None:
        """Log the round's numbers; the step is the round."""
        self._run.log({**scalars, **({"events": "\n".join(events)} if events else {})}, step=round_)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Add the summary, and say how it ended."""
        self._run.summary.update(dict(summary or {}))
        self._run.finish(exit_code=0 if summary is not None else 1)
