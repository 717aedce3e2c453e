"""What is told of a run: how well and how evenly devices are served, what it cost, whether the groups were found.

One registration makes a number appear in summary.json, on the run's page, in comparisons and in TensorBoard.
"""

from fedclade.metrics.metric import Metric, metric
from fedclade.metrics.outcome import Outcome

__all__ = ["Metric", "Outcome", "metric"]
