"""A run in MLflow: on the server that ``MLFLOW_TRACKING_URI`` names, or else where MLflow keeps runs by itself."""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedclade.config import fields_of
from fedclade.report.loggers.logger import Logger, numbers_of
from fedclade.runs import Run

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

PARAMETERS_AT_ONCE = 100  # MLflow takes no more
LONGEST_TAG = 5000  # characters


class Mlflow(Logger):
    """One MLflow run: the config as its parameters, each round's numbers and the summary as metrics, events as a tag.

    It belongs to the experiment ``MLFLOW_EXPERIMENT_NAME``, or else "fedclade".
    """

    package = "mlflow"
    _client: "MlflowClient"

    def begin(self, run: Run, done: int) -> None:
        """Make the MLflow run with the whole config, or go on with it."""
        from mlflow.tracking import MlflowClient

        self._client, self._events = MlflowClient(), list[str]()
        self._id = self.known_as(lambda: self._new_run(run))
        self._client.update_run(self._id, status="RUNNING")

    def _new_run(self, run: Run) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedclade")
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        made = str(self._client.create_run(experiment, run_name=self.folder.resolve().name).info.run_id)
        parameters = [Param(field, str(value)) for field, value, _ in fields_of(run.config)]
        for first in range(0, len(parameters), PARAMETERS_AT_ONCE):
            self._client.log_batch(made, params=parameters[first : first + PARAMETERS_AT_ONCE])
        return made

    def log(self, round_: int, seconds: float, scalars: Mapping[str, float], events: list[str]) -> None:
        """Log the round's numbers; the step is the round."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, round_) for name, value in scalars.items()])
        if events:
            self._events += events
            self._client.set_tag(self._id, "events", "\n".join(self._events)[-LONGEST_TAG:])

    def end(self, summary: Mapping[str, Any] | None) -> None:
        """Log the summary, too, and say how it ended."""
        from mlflow.entities import Metric

        if summary is not None:
            now = int(1000 * time.time())
            found = [Metric(f"summary/{name}", value, now, 0) for name, value in numbers_of(summary).items()]
            self._client.log_batch(self._id, metrics=found)
        self._client.set_terminated(self._id, "KILLED" if summary is None else "FINISHED")
