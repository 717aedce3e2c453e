"""What one-shot methods remember: whether they have clustered, and whom they have put somewhere since."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedclade.clustering.method import BaseMethod
from fedclade.core.arrays import Bools, Ints


@dataclass(frozen=True)
class Known:
    """The state of a method that clusters once."""

    done: bool
    placed: Bools  # for each device whether the method has said where it belongs

    def placing(self, devices: Ints) -> "Known":
        """After the clustering, with these devices at home."""
        placed = self.placed.copy()
        placed[devices] = True
        return replace(self, done=True, placed=placed)


class OneShot(BaseMethod):
    """A method that clusters once, and places later whoever was not heard then."""

    def init(self, devices: int) -> Known:
        """Nobody is placed."""
        return Known(False, np.zeros(devices, dtype=bool))

    def grown(self, own: Known, more: int) -> Known:
        """The new ones are not placed."""
        return replace(own, placed=np.append(own.placed, np.zeros(more, dtype=bool)))

    def save(self, own: Known) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything is plain data."""
        return {"done": own.done, "placed": own.placed.tolist()}, {}

    def load(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Known:
        """The inverse of ``save``."""
        return Known(bool(facts["done"]), np.array(facts["placed"], dtype=bool))
