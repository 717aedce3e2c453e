"""What answering costs simulated devices.

The clock waits for the slowest device asked, and for the models to be multicast. An answer that is a few numbers for
each class counts as nothing beside a model; a larger one is uploaded on the sub-channels like a model.
"""

from typing import TypeVar

import numpy as np

from fedclade.config import TrainingConfig
from fedclade.core.arrays import Floats, Ints
from fedclade.core.links import Links
from fedclade.edge import Edge
from fedclade.fleet.around import AroundFleet
from fedclade.fleet.fleet import Answers, Cost, Fleet
from fedclade.fleet.questions import LOOK, Question
from fedclade.scheduling.timeline import plan_timeline

Answer = TypeVar("Answer")


class Metered(AroundFleet):
    """A fleet in one round: its answers cost what the round's links and the devices' processors make of the work."""

    def __init__(self, fleet: Fleet, edge: Edge, links: Links, samples: Ints, training: TrainingConfig) -> None:
        super().__init__(fleet)
        self._edge, self._links = edge, links
        self._trained = training.passes * np.maximum(1, samples)  # images that a round's training puts through a model
        self._upload_bits = training.vectors * edge.model_bits

    def ask(self, question: Question[Answer]) -> Answers[Answer]:
        """The answer, with its cost."""
        answers = self._fleet.ask(question)
        work = np.bincount(question.devices, question.looks(answers.value), len(self._trained))
        share = LOOK * work / self._trained  # of a round's training
        compute = share * self._links.compute_seconds
        cost = Cost(
            self._edge.broadcast_seconds(question.models_sent) + float(compute.max(initial=0.0)),
            share * self._links.compute_joules,
            question.models_sent * self._edge.model_bits,
        )
        bits = np.bincount(question.devices, question.answer_bits(answers.value), len(self._trained))
        if bits.any():
            cost = cost + self._uploaded(bits.astype(np.float64), compute)
        return Answers(answers.value, cost, answers.incidents)

    def _uploaded(self, bits: Floats, ready: Floats) -> Cost:
        """What it costs to upload so many bits of each device: the time after the last one is ready to send, too."""
        sending = np.flatnonzero(bits)
        part = bits[sending] / self._upload_bits  # of a round's upload
        upload = part * self._links.upload_seconds[sending]
        makespan = plan_timeline(sending, ready[sending], upload, self._edge.subchannels, order="compute").makespan
        joules = np.zeros(len(bits))
        joules[sending] = part * self._links.upload_joules[sending]
        return Cost(max(0.0, makespan - float(ready.max())), joules, uplink_bits=float(bits.sum()))
