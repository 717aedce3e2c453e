"""A metric of your own: one function that says what is computed, its title and its unit.

From this folder::

    fedclade run quickstart --set 'run.metrics=["own_metric:well_served"]'
    fedclade compare quickstart --set 'run.metrics=["own_metric:well_served"]'
"""

from fedclade.metrics import Outcome, metric


@metric("well_served", title="well served (%)", factor=100, every_round=True)
def well_served(outcome: Outcome) -> float:
    """Share of the devices whose model names at least 80 % of their test images right."""
    return float((outcome.known_accuracy >= 0.8).mean())
