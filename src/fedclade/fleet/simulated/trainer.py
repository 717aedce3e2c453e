"""How simulated updates come about."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fedclade.core.arrays import Ints, Singles
from fedclade.fleet.questions import Examiner

StopRequested = Callable[[], bool]


@dataclass(frozen=True)
class Steering:
    """What every local step follows beside the loss: a vector of the device's own, and a pull to where it started."""

    vectors: Singles  # added to the gradient; one row for each device that trains, in their order
    proximal: float = 0.0  # weight of the pull, in the place of ``training.proximal``

    def only(self, rows: Ints | slice) -> "Steering":
        """Of some of the devices."""
        return Steering(self.vectors[rows], self.proximal)


class Trainer(Protocol):
    """Trains devices. Models are rows of one float32 matrix."""

    parameters: int
    incidents: list[str]  # what went wrong and was mended since the fleet last looked

    @property
    def examiner(self) -> Examiner:
        """What questions may look at."""
        ...

    def initial_model(self, variant: int = 0) -> Singles:
        """w0, flat; another one for each variant."""
        ...

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, one row each, after E epochs from ``models[model_of[i]]``: a matrix of its own."""
        ...

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays, as the module knows them."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...
