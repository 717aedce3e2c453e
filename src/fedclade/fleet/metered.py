"""What answering costs simulated devices.

The clock waits for the slowest device asked, and for the models to be multicast. An answer is a few numbers for each
class: its upload counts as nothing beside a model's.
"""

from typing import TypeVar

import numpy as np

from fedclade.core.arrays import Ints, Singles
from fedclade.core.links import Links
from fedclade.core.state import Serving
from fedclade.core.updates import Updates
from fedclade.edge import Edge
from fedclade.fleet.fleet import Answers, Arrival, Cost, Fleet, Roster
from fedclade.fleet.questions import Question
from fedclade.scheduling.planner import Plan

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
        slowest = float((share * self._links.compute_seconds).max(initial=0.0))
        cost = Cost(
            self._edge.broadcast_seconds(question.models_sent) + slowest,
            share * self._links.compute_joules,
            question.models_sent * self._edge.model_bits,
        )
        return Answers(answers.value, cost, answers.incidents)

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
