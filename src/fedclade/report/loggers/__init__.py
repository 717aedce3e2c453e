"""Programs that keep the numbers of many experiments: TensorBoard, MLflow, Weights & Biases. One file for each."""

from fedclade.report.loggers.logger import Logger
from fedclade.report.loggers.mlflow import Mlflow
from fedclade.report.loggers.tensorboard import TensorBoard
from fedclade.report.loggers.wandb import Wandb

__all__ = ["Logger", "Mlflow", "TensorBoard", "Wandb"]
