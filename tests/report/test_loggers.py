"""What TensorBoard, MLflow and Weights & Biases are told: the real programs, without a network."""

import sys

import pytest

from fedclade import Experiment, Interrupted, open_run
from fedclade.report.loggers import Mlflow, Wandb
from fedclade.report.loggers.logger import Logger, numbers_of
from tiny_runs import TINY, fedclade, refusal, tiny, tiny_file

SPLIT = "cluster 0 splits into 0-2 | 3-5"


@pytest.mark.slow
def test_tensorboard_is_told_scalars_and_events(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    answer = fedclade("run", tiny_file(tmp_path), "--tensorboard", "--out", tmp_path / "run", "-q")
    assert (answer.code, answer.err) == (0, "")
    told = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    rounds = open_run(tmp_path / "run").rounds
    for name, column in (
        ("accuracy/mean", "accuracy_mean"),
        ("cost/round_seconds", "seconds"),
        ("cost/uploads", "uploads"),
    ):
        scalars = told.Scalars(name)
        assert [scalar.step for scalar in scalars] == [1, 2, 3]
        assert [scalar.value for scalar in scalars] == pytest.approx(rounds[column].tolist(), rel=1e-6)
    # the wall clock is the simulated one
    assert told.Scalars("clusters")[1].wall_time == pytest.approx(rounds["start_seconds"][2])
    (event,) = told.Tensors("events/text_summary")
    assert event.step == 2
    assert SPLIT.encode() in event.tensor_proto.string_val[0]


def stopped_and_resumed(folder, logger: type[Logger]):
    """A run of three rounds, stopped after the second and resumed, with a logger."""
    rounds = []
    with pytest.raises(Interrupted), logger(folder) as first:
        tiny(stop_requested=lambda: len(rounds) == 2).run(folder, on_round=rounds.append, listeners=[first])
    with logger(folder) as second:
        return Experiment(TINY).resume(folder, listeners=[second])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MLflow's own code
def test_mlflow_has_config_rounds_summary_and_one_run_though_it_was_resumed(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    run = stopped_and_resumed(tmp_path / "mine", Mlflow)
    client = MlflowClient()
    (logged,) = client.search_runs([client.get_experiment_by_name("fedclade").experiment_id])
    assert (logged.info.run_name, logged.info.status) == ("mine", "FINISHED")
    assert logged.data.params["training.learning_rate"] == "0.1"
    history = client.get_metric_history(logged.info.run_id, "accuracy/mean")
    assert {(metric.step, metric.value) for metric in history} == set(
        zip(run.rounds["round"], run.rounds["accuracy_mean"], strict=True)
    )
    assert logged.data.metrics["summary/accuracy_mean"] == run.summary["accuracy_mean"]
    assert logged.data.tags["events"] == f"round 2: {SPLIT}"


@pytest.mark.slow
def test_wandb_keeps_config_rounds_and_summary_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = stopped_and_resumed(tmp_path / "mine", Wandb)
    files = sorted((tmp_path / "mine" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert {path.stem.partition("-")[2] for path in files} == {(tmp_path / "mine" / "wandb-id.txt").read_text()}
    kept = b"".join(path.read_bytes() for path in files)
    for told in ("learning_rate", "accuracy/mean", SPLIT, repr(run.summary["accuracy_mean"])):
        assert told.encode() in kept


@pytest.mark.parametrize("package", ["tensorboard", "mlflow", "wandb"])
def test_without_the_package_one_line_says_what_to_install(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    line = refusal("run", tiny_file(tmp_path), f"--{package}", "--out", tmp_path / "run", "-q")
    assert f"pip install 'fedclade[{package}]'" in line
    assert not (tmp_path / "run").exists()


class Broken(Logger):
    """Fails at one of its three moments."""

    package = "tensorboard"

    def __init__(self, folder, moment):
        super().__init__(folder)
        self._moment, self.called = moment, []

    def _happens(self, moment):
        self.called.append(moment)
        if moment == self._moment:
            raise ConnectionError("the server is\nnot there")

    def begin(self, run, done):
        self._happens("begin")

    def log(self, round_, seconds, scalars, events):
        self._happens("log")

    def end(self, summary):
        self._happens("end")


@pytest.mark.parametrize(
    ("moment", "called"),
    [("begin", ["begin"]), ("log", ["begin", "log"]), ("end", ["begin", "log", "log", "log", "end"])],
)
def test_a_logger_that_fails_is_told_once_and_does_not_end_the_run(moment, called, tmp_path):
    with (
        pytest.warns(UserWarning, match="^--tensorboard: the server is not there; the run goes on without it$") as told,
        Broken(tmp_path, moment) as logger,
    ):
        run = tiny().run(tmp_path, listeners=[logger])
    assert run.finished
    assert logger.called == called
    assert len(told) == 1


def crash(folder, logger: Logger) -> None:
    with logger:
        logger.began(tiny().server.initial_state())
        raise RuntimeError


def test_a_run_that_crashes_ends_its_logger(tmp_path):
    tiny("run.rounds=1").run(tmp_path)
    logger = Broken(tmp_path, None)
    with pytest.raises(RuntimeError):
        crash(tmp_path, logger)
    assert logger.called == ["begin", "end"]


def test_a_summarys_numbers_are_those_that_exist():
    assert numbers_of({"a": 1, "b": 0.5, "c": None, "d": "fair"}) == {"a": 1.0, "b": 0.5}
