"""A fleet around another one: it hands everything on, and whoever derives from it changes what it wants to."""

from typing import TypeVar

from fedclade.core.arrays import Singles
from fedclade.core.links import Links
from fedclade.core.state import Serving
from fedclade.core.updates import Updates
from fedclade.fleet.fleet import Answers, Arrival, Fleet, Roster
from fedclade.fleet.questions import Question
from fedclade.scheduling.planner import Plan

Answer = TypeVar("Answer")


class AroundFleet:
    """All as the fleet itself."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.parameters, self.simulated, self.keeps_updates = fleet.parameters, fleet.simulated, fleet.keeps_updates

    def ask(self, question: Question[Answer]) -> Answers[Answer]:
        """As the fleet itself."""
        return self._fleet.ask(question)

    def muster(self, round_: int) -> Roster:
        """As the fleet itself."""
        return self._fleet.muster(round_)

    def at(self, links: Links) -> Fleet:
        """As the fleet itself."""
        return self._fleet.at(links)

    def holding(self, kept: Singles) -> Fleet:
        """As the fleet itself."""
        return self._fleet.holding(kept)

    def initial_model(self, variant: int = 0) -> Singles:
        """As the fleet itself."""
        return self._fleet.initial_model(variant)

    def carry_out(self, plan: Plan, serving: Serving) -> Arrival:
        """As the fleet itself."""
        return self._fleet.carry_out(plan, serving)

    def train_own(self, round_: int, models: Singles) -> Updates | None:
        """As the fleet itself."""
        return self._fleet.train_own(round_, models)

    def train_all(self, round_: int, model: Singles) -> Updates:
        """As the fleet itself."""
        return self._fleet.train_all(round_, model)

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """As the fleet itself."""
        return self._fleet.named_tensors(model)

    def close(self) -> None:
        """As the fleet itself."""
        self._fleet.close()
