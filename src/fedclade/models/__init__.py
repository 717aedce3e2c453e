"""What is trained: one module for each net that has a name, or a factory of the user's own.

A module of this package is found by its name (``cnn-large`` is ``cnn_large``) and has one function,
``build(config, shape, classes) -> nn.Module``. A user's factory is named as ``model.name = "package.module:factory"``.
"""

from importlib import import_module
from typing import TypeAlias

import torch
from torch import nn

from fedclade.config import ModelConfig
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, members, near_miss
from fedclade.core.random import derived_seed

Shape: TypeAlias = tuple[int, int, int]  # of one sample: channels, height, width; 1 × 1 × features if it is no image


def build_model(config: ModelConfig, shape: Shape, classes: int, seed: int) -> nn.Module:
    """The module with its initial weights, which depend on the seed alone.

    A user's factory is called as ``factory(shape, classes)``. Its module takes a batch of samples, N × C × H × W, and
    gives one score for every class, N × classes.
    """
    where = f'model.name = "{config.name}"'
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        if ":" in config.name:
            return _build_own(config.name, where, shape, classes)
        known = members(__name__)
        if config.name not in known:
            raise UserError(f"{where}: no such model; {near_miss(config.name, known)}")
        module: nn.Module = import_module(known[config.name]).build(config, shape, classes)
        return module


def _build_own(name: str, where: str, shape: Shape, classes: int) -> nn.Module:
    factory = load("model.name", name)
    if not callable(factory):
        raise UserError(f"{where}: must be a function of (shape, classes)")
    module = factory(shape, classes)
    if not isinstance(module, nn.Module):
        raise UserError(f"{where}: the factory gave a {type(module).__name__}, not a Module")
    if any(True for _ in module.buffers()):
        raise UserError(f"{where}: has buffers (batch norm?), which devices cannot share; use group norm")
    _try_out(module, where, shape, classes)
    return module


def _try_out(module: nn.Module, where: str, shape: Shape, classes: int) -> None:
    """Two samples through the module, so that a wrong shape is told before anything is trained."""
    module.eval()
    try:
        with torch.no_grad():
            scores = module(torch.zeros(2, *shape))
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{where}: fails on samples of C×H×W = {'×'.join(map(str, shape))}: {reason}") from error
    module.train()
    given = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if given != (2, classes):
        raise UserError(f"{where}: gave {given} for 2 samples, must give scores of shape (2, {classes})")
