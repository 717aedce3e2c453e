"""The same numbers and events for TensorBoard; its wall clock shows simulated seconds."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from fedclade.core.errors import UserError
from fedclade.report.listener import Listener, Progress
from fedclade.report.terminal import event_lines

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class TensorBoard(Listener, contextlib.AbstractContextManager["TensorBoard"]):
    """Writes ``DIR/tensorboard`` round by round; rounds made again after a resume replace the old ones."""

    def __init__(self, folder: Path) -> None:
        try:
            import tensorboard as _  # noqa: F401 - torch's writer needs it
        except ImportError as error:
            raise UserError("--tensorboard: is not installed; pip install 'fedclade[tensorboard]'") from error
        self._folder = folder / "tensorboard"
        self._writer: SummaryWriter | None = None

    def round_ended(self, progress: Progress) -> None:
        """Write the round's numbers and events."""
        from torch.utils.tensorboard.writer import SummaryWriter

        if self._writer is None:
            self._writer = SummaryWriter(str(self._folder), purge_step=progress.done_before + 1)
        record, state = progress.record, progress.state
        scalars: dict[str, float] = {
            "clusters": len(state.tree.leaves()),
            "cost/round_seconds": record.seconds,
            "cost/simulated_seconds": state.seconds,
            "cost/energy_joules": record.energy_joules,
            "cost/uploads": len(record.timeline.arrived),
        }
        scalars |= {metric.tag: value for metric, value in progress.metrics.items()}
        for cluster in record.clusters:
            if cluster.mean_norm is not None and cluster.max_norm is not None:
                scalars[f"norm_mean/{cluster.node}"] = cluster.mean_norm
                scalars[f"norm_max/{cluster.node}"] = cluster.max_norm
        for name, value in scalars.items():
            self._writer.add_scalar(name, float(value), record.round, walltime=state.seconds)
        if lines := list(event_lines(record)):
            text = "\n\n".join(lines)
            self._writer.add_text("events", text, record.round, walltime=state.seconds)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
