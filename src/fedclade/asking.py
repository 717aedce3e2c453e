"""What devices are asked besides training: their opinion of models. And what that costs them.

The clock waits for the slowest device asked, and for the models to be multicast. An answer is a few numbers for each
class: its upload counts as nothing beside a model's.
"""

import time

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.edge import Edge, Links
from fedclade.fleet.answers import Paired, Survey
from fedclade.fleet.simulated import Evaluation, Share, Trainer

LOOK = 1.0 / 3.0  # work of looking at an image, against training on it once: forward, without backward


class Asking:
    """A run's devices as far as they are asked, and what this round's questions have cost so far."""

    def __init__(self, config: Config, trainer: Trainer, edge: Edge, samples: Ints, real: bool) -> None:
        """``real``: the time that passes here is what counts, not what the edge makes of the work."""
        self._trainer, self._edge, self._samples, self._real = trainer, edge, samples, real
        self._epochs, held_out = config.training.epochs, config.validation_share
        self._held_out = held_out / (1.0 - held_out - config.population.test_share)  # for each image trained on
        self.parameters = trainer.parameters
        self._links: Links | None = None
        self.seconds, self.joules = 0.0, np.zeros(len(samples))

    def begin(self, links: Links) -> None:
        """A new round."""
        self._links, self.seconds, self.joules = links, 0.0, np.zeros(len(self._samples))

    def evaluate(self, models: Singles, devices: Ints, model_of: Ints, share: Share) -> Evaluation:
        """Accuracy and mean loss of clusters' models, which the devices have or are about to get."""
        begun = time.monotonic()
        answer = self._trainer.evaluate(models, devices, model_of, share)
        per_sample = 1.0 if share == "train" else self._held_out
        self._charge(begun, devices, np.asarray(per_sample * self._samples[devices], dtype=np.float64), 0)
        return answer

    def compare(self, models: Singles, devices: Ints, first: Ints, second: Ints, share: Share = "validation") -> Paired:
        """See ``Trainer.compare``."""
        begun = time.monotonic()
        answer = self._trainer.compare(models, devices, first, second, share)
        self._charge(begun, devices, 2 * answer.samples.sum(axis=1), len(np.union1d(first, second)))
        return answer

    def survey(self, models: Singles, devices: Ints, images: int | None = None) -> Survey:
        """See ``Trainer.survey``."""
        begun = time.monotonic()
        answer = self._trainer.survey(models, devices, images)
        looks = np.minimum(answer.samples.sum(axis=1), np.inf if images is None else images)
        self._charge(begun, devices, len(models) * looks, len(models))
        return answer

    def _charge(self, begun: float, devices: Ints, images: Floats | Ints, models: int) -> None:
        if self._real:
            self.seconds += time.monotonic() - begun
        if self._links is None:
            return
        work = np.bincount(devices, images, len(self._samples))
        share = LOOK * work / (self._epochs * np.maximum(1, self._samples))  # of a round's training
        self.joules += share * self._links.compute_joules
        if not self._real:
            self.seconds += self._edge.broadcast_seconds(models)
            self.seconds += float((share * self._links.compute_seconds).max(initial=0.0))
