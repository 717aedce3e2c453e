"""Which engine trains: chosen by the user, or picked by model and machine."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.threads import cores
from fedclade.data import Population
from fedclade.fleet.simulated.kernels.batched import ConvolutionStack, DenseStack
from fedclade.fleet.simulated.kernels.targets import targets_of
from fedclade.fleet.simulated.net import Step
from fedclade.fleet.simulated.pool import WorkersTrainer
from fedclade.fleet.simulated.ray import RayTrainer
from fedclade.fleet.simulated.sequential import SequentialTrainer
from fedclade.fleet.simulated.trainer import StopRequested, Trainer
from fedclade.models import build_model

# Samples a run must train on before a second process pays for its start of a few seconds: dense nets, others.
WORTH_WORKERS = {True: 5_000_000, False: 200_000}
WORTH_STACKING = 8  # so many devices must fit into one stack; larger models are faster one by one
STEPS: dict[str, Step] = {"sequential": "autograd", "workers": "lean", "batched": "batched"}


@dataclass(frozen=True)
class Engine:
    """How a run is trained. One worker means in this process, but for Ray, where 0 means one actor for each core."""

    name: Literal["sequential", "workers", "batched", "ray"]
    workers: int

    def __str__(self) -> str:
        if self.name == "ray":
            return f"ray, {f'{self.workers} actors' if self.workers else 'as many actors as cores'}"
        return f"{self.name}, {self.workers} process{'es' if self.workers > 1 else ''}"


def choose_engine(config: Config, population: Population) -> Engine:
    """What ``training.engine`` and ``training.workers`` come to for this model, on this machine."""
    shape, tokens = population.sample
    module = build_model(config.model, shape, population.task.outputs, config.run.seed, tokens)
    dense = DenseStack.fits(module)
    name = config.training.engine
    if name == "ray":
        return Engine("ray", config.training.workers or 0)
    stackable = dense or (ConvolutionStack.fits(module) and not tokens)
    if name == "batched" and not stackable:
        raise UserError(
            f'training.engine = "batched": is for dense and convolutional nets without dropout or batch norm, not '
            f'{config.model.name}; use "workers"'
        )
    if config.training.device == "cuda":  # one process drives the card
        return Engine("batched" if stackable and name in ("auto", "batched") else "sequential", 1)
    if name == "auto":
        name = "batched" if _worth_stacking(module, population) else "workers"
    if name == "sequential":
        return Engine("sequential", 1)
    samples = config.run.rounds * config.training.epochs * int(population.samples.sum())
    workers = config.training.workers or (cores() if samples >= WORTH_WORKERS[dense] else 1)
    return Engine(name, min(workers, population.devices))


def build_trainer(
    engine: Engine, config: Config, population: Population, stop_requested: StopRequested = lambda: False
) -> Trainer:
    """The Trainer of an engine."""
    if engine.name == "ray":
        shape, tokens = population.sample
        module = build_model(config.model, shape, population.task.outputs, config.run.seed, tokens)
        on_card = config.training.device == "cuda"  # there, whatever can be stacked is
        best: Step = "batched" if on_card or _worth_stacking(module, population) else "lean"
        return RayTrainer(config, population, stop_requested, step=best)
    step = STEPS[engine.name]
    if engine.workers == 1:
        return SequentialTrainer(config, population, stop_requested, step=step)
    return WorkersTrainer(config, population, stop_requested, workers=engine.workers, step=step)


def _worth_stacking(module: nn.Module, population: Population) -> bool:
    """Whether enough devices with such a net fit into one stack."""
    targets = targets_of(population.task)
    return DenseStack.fits(module) and DenseStack(module, targets).devices_at_once >= WORTH_STACKING
