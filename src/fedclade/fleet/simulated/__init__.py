"""How updates come about: local SGD on the devices' data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.fleet.answers import Paired, Survey

__all__ = ["Evaluation", "Share", "StopRequested", "Trainer"]

StopRequested = Callable[[], bool]
Share: TypeAlias = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Evaluation:
    """One entry for each device asked about."""

    accuracy: Floats
    loss: Floats


class Trainer(Protocol):
    """What the server needs of the devices. Models are rows of one float32 matrix."""

    parameters: int
    incidents: list[str]  # what went wrong and was mended since the server last looked

    def initial_model(self) -> Singles:
        """w0, flat."""
        ...

    def train(self, round_: int, models: Singles, devices: Ints, model_of: Ints) -> Singles:
        """Δw of each device, one row each, after E epochs from ``models[model_of[i]]``."""
        ...

    def evaluate(self, models: Singles, devices: Ints, model_of: Ints, share: Share = "test") -> Evaluation:
        """Accuracy and mean loss of ``models[model_of[i]]`` on the data of ``devices[i]``."""
        ...

    def compare(self, models: Singles, devices: Ints, first: Ints, second: Ints, share: Share = "validation") -> Paired:
        """Misfit of ``models[second[i]]`` less that of ``models[first[i]]`` on the images of ``devices[i]``, by class.

        Above 0 the first model is the better one.
        """
        ...

    def survey(self, models: Singles, devices: Ints, images: int | None = None) -> Survey:
        """Mean misfit by class of every model on every device's training images; about so many of them are enough."""
        ...

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays, as the module knows them."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...
