"""``DIR/tensorboard`` for TensorBoard; its wall clock shows simulated seconds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedclade.report.loggers.logger import Logger
from fedclade.runs import Run

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class TensorBoard(Logger):
    """Writes ``DIR/tensorboard`` round by round; rounds made again after a resume replace the old ones."""

    package = "tensorboard"
    _writer: "SummaryWriter"

    def begin(self, run: Run, done: int) -> None:
        """Forget what was told of later rounds."""
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer = SummaryWriter(str(self.folder / "tensorboard"), purge_step=done + 1)

    def log(self, round_: int, seconds: float, scalars: Mapping[str, float], events: list[str]) -> None:
        """Write the round's numbers and events."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, round_, walltime=seconds)
        if events:
            self._writer.add_text("events", "\n\n".join(events), round_, walltime=seconds)

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Write what is left."""
        self._writer.close()
