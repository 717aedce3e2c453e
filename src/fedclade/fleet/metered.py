"""What answering costs simulated devices.

The clock waits for the slowest device asked, and for the models to be multicast. An answer that is a few numbers for
each class counts as nothing beside a model; a larger one is uploaded on the sub-channels like a model.
"""

from typing import TypeVar

import numpy as np

from fedclade.core.arrays import Floats, Ints, Singles
from fedclade.core.links import Links
from fedclade.core.state import Serving
from fedclade.core.updates import Updates
from fedclade.edge import Edge
from fedclade.fleet.fleet import Answers, Arrival, Cost, Fleet, Roster
from fedclade.fleet.questions import Question
from fedclade.scheduling.planner import Plan
from fedclade.scheduling.timeline import plan_timeline

LOOK = 1.0 / 3.0  # work of looking at an image, against training on it once: forward, without backward

Answer = TypeVar("Answer")


class Metered:
    """A fleet in one round: its answers cost what the round's links and the devices' processors make of the work."""

    def __init__(self, fleet: Fleet, edge: Edge, links: Links, samples: Ints, epochs: int) -> None:
        self._fleet, self._edge, self._links = fleet, edge, links
        self._trained = epochs * np.maximum(1, samples)  # images that a round's training puts through the model
        self.parameters, self.simulated, self.keeps_updates = fleet.parameters, fleet.simulated, fleet.keeps_updates

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
        part = bits[sending] / self._edge.model_bits  # of a model's upload
        upload = part * self._links.upload_seconds[sending]
        makespan = plan_timeline(sending, ready[sending], upload, self._edge.subchannels, order="compute").makespan
        joules = np.zeros(len(bits))
        joules[sending] = part * self._links.upload_joules[sending]
        return Cost(max(0.0, makespan - float(ready.max())), joules, uplink_bits=float(bits.sum()))

    def muster(self, round_: int) -> Roster:
        """As the fleet itself."""
        return self._fleet.muster(round_)

    def at(self, links: Links) -> Fleet:
        """In another round."""
        return self._fleet.at(links)

    def initial_model(self, variant: int = 0) -> Singles:
        """As the fleet itself."""
        return self._fleet.initial_model(variant)

    def carry_out(self, plan: Plan, serving: Serving) -> Arrival:
        """As the fleet itself."""
        return self._fleet.carry_out(plan, serving)

    def train_all(self, round_: int, model: Singles) -> Updates:
        """As the fleet itself."""
        return self._fleet.train_all(round_, model)

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """As the fleet itself."""
        return self._fleet.named_tensors(model)

    def close(self) -> None:
        """As the fleet itself."""
        self._fleet.close()
