"""A run as people open it: its tables, its charts, and its models ready to be used."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedclade.core.state import LOCAL
from fedclade.report.page.headlines import lead, tiles
from fedclade.report.page.run import served
from fedclade.runs import Run

if TYPE_CHECKING:
    from fedclade.models._trained import TrainedModel


class OpenedRun(Run):
    """A run directory, read, with charts (plotly figures) and models for inference."""

    def _repr_html_(self) -> str:
        """The headlines, for a notebook's cell."""
        rows = "".join(
            f"<tr><th>{escape(tile['label'])}</th><td><b>{escape(tile['value'])}</b></td><td>{escape(tile['why'])}</td></tr>"
            for tile in tiles(self, served(self))
        )
        state = "" if self.finished else f" Not finished: {len(self.rounds)} of {self.config.run.rounds} rounds."
        page = self.folder / "report.html"
        link = f'<p><a href="{escape(page.as_posix())}">report.html</a></p>' if page.is_file() else ""
        name = escape(str(self.folder))
        return f"<p><b>{name}</b>: {escape(lead(self))}{state}</p><table>{rows}</table>{link}"

    def plot_accuracy(self) -> Any:
        """Accuracy round by round, as a plotly figure."""
        from fedclade.report.plots import accuracy_figure

        return accuracy_figure(self)

    def plot_timeline(self, round_: int = 1) -> Any:
        """Who computes, waits and uploads when in a round, as a plotly figure."""
        from fedclade.report.plots import timeline_figure

        return timeline_figure(self, round_)

    def plot_tree(self) -> Any:
        """The tree of models, as a plotly figure."""
        from fedclade.report.plots import tree_figure

        return tree_figure(self)

    def module(self, name: str, device: int | None = None) -> "TrainedModel":
        """A node's model, or the "conventional" one, as a torch module that takes samples as the devices store them.

        It gives one score for every class, or the numbers, is in evaluation mode, and tells its shapes as ``.card``.
        Where tensors stay on the devices (``model.local``), it has those of a ``device``, or else their members' mean.
        With personal models (``training.ditto``), that of a ``device`` is its own.
        """
        from fedclade.models._trained import ModelCard, TrainedModel

        tensors = self.model(name)
        if device is not None:
            tensors |= {tensor: rows[device] for tensor, rows in self.model(LOCAL).items()}
        return TrainedModel(ModelCard.of(self.model_metadata(name), str(self.folder / name)), tensors)


def open_run(folder: str | Path) -> OpenedRun:
    """Read a run directory, finished or not."""
    return OpenedRun(folder)
