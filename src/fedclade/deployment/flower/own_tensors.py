"""Tensors that stay on a device between two messages (``model.local``): in its state of the Flower run."""

from typing import Self

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.fleet.simulated.personal import PersonalExaminer, kept_tensors, local_positions, with_own
from fedclade.fleet.simulated.sgd import Local

VALUES, TRAINED = "fedclade.own-tensors", "fedclade.own-tensors.round"


class OwnTensors:
    """What this device keeps: where in a model, its values before the last round that it trained in, and after it."""

    def __init__(self, context: Context, local: Local, patterns: tuple[str, ...]) -> None:
        self._state, self._patterns = context.state, patterns
        self._tensors = local.named_tensors(local.initial)
        self._positions: Ints = local_positions(self._tensors, patterns)
        self._before = self._after = local.initial[self._positions]
        self._round = 0
        if VALUES in self._state.array_records:
            self._before, self._after = self._state.array_records[VALUES].to_numpy_ndarrays()
            self._round = int(str(self._state.config_records[TRAINED]["round"]))

    @classmethod
    def of(cls, context: Context, config: Config, local: Local) -> Self | None:
        """None where all tensors are shared."""
        return cls(context, local, config.model.local) if config.model.local else None

    def start(self, models: Singles, round_: int) -> Singles:
        """Models to train in a round. Whoever is told to train in it again begins where it began."""
        return with_own(models, self._positions, self._after if self._round < round_ else self._before)

    def keep(self, start: Singles, update: Singles, round_: int) -> Singles:
        """Keep what became of my own tensors; gives the update without them, as it may be sent."""
        before = start[self._positions]
        self._state[VALUES] = ArrayRecord([before, before + update[self._positions]])
        self._state[TRAINED] = ConfigRecord({"round": round_})
        shared = update.copy()
        shared[self._positions] = 0.0
        return shared

    def examiner(self, local: Local, device: int) -> PersonalExaminer:
        """Puts every model to my data with my own tensors in it."""
        return PersonalExaminer(local, self._positions, np.tile(self._after, (device + 1, 1)))

    def named(self) -> dict[str, Singles]:
        """My own tensors by name."""
        return {name: rows[0] for name, rows in kept_tensors(self._tensors, self._patterns, self._after[None]).items()}
