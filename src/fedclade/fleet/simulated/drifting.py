"""Devices whose data change: a Trainer that lets another one train whatever each device holds in a round."""

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.data.drift import Drift
from fedclade.fleet.questions import Examiner
from fedclade.fleet.simulated.trainer import Steering, Trainer
from fedclade.fleet.told import Share


class DriftingTrainer:
    """The other trainer trains rows of the drift's population; which row is a device's depends on the round.

    Its examiner knows rows: ``Present`` makes devices of them.
    """

    def __init__(self, trainer: Trainer, drift: Drift) -> None:
        self._trainer, self._drift = trainer, drift
        self.parameters, self.incidents = trainer.parameters, trainer.incidents

    @property
    def examiner(self) -> Examiner:
        """The other trainer's."""
        return self._trainer.examiner

    def initial_model(self, variant: int = 0) -> Singles:
        """w0."""
        return self._trainer.initial_model(variant)

    def train(
        self, round_: int, models: Singles, devices: Ints, model_of: Ints, steering: Steering | None = None
    ) -> Singles:
        """Δw of each device, on what it holds in this round."""
        return self._trainer.train(round_, models, self._drift.rows(round_)[devices], model_of, steering)

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        return self._trainer.named_tensors(model)

    def close(self) -> None:
        """Let go of processes and memory."""
        self._trainer.close()


class Present:
    """An Examiner of devices, by the rows that are theirs at present."""

    def __init__(self, examiner: Examiner, rows: Ints) -> None:
        self._examiner, self._rows, self.classes = examiner, rows, examiner.classes

    def positions(self, device: int, share: Share) -> Ints:
        """Where a share of a device's images lies."""
        return self._examiner.positions(int(self._rows[device]), share)

    def labels(self, positions: Ints) -> Ints:
        """The classes of images."""
        return self._examiner.labels(positions)

    def features(self, positions: Ints) -> Singles:
        """Images as a model sees them, one flat row each."""
        return self._examiner.features(positions)

    def scores(self, model: Singles, positions: Ints) -> tuple[Floats, Floats]:
        """For each image a model's score and its loss."""
        return self._examiner.scores(model, positions)

    def losses(self, models: Singles, positions: Ints) -> Floats:
        """The loss of each model (row) on each image (column)."""
        return self._examiner.losses(models, positions)
