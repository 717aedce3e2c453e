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

# Of one sample: channels, height, width; 1 × 1 × features if it is no image; more axes if the data have more.
Shape: TypeAlias = tuple[int, ...]
SMALLEST_IMAGE = 16  # pixels on a side that the cnn's two convolutions and pools need


def build_model(config: ModelConfig, shape: Shape, classes: int, seed: int, tokens: bool = False) -> nn.Module:
    """The module with its initial weights, which depend on the seed alone.

    A user's factory is called as ``factory(shape, classes)``. Its module takes a batch of samples, N × C × H × W, and
    gives one score for every class, N × classes. ``tokens`` says whether samples are token ids instead of numbers.
    """
    config = fitted(config, shape, tokens)
    where = f'model.name = "{config.name}"'
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        if ":" in config.name:
            return _build_own(config.name, where, shape, classes, tokens)
        known = members(__name__)
        if config.name not in known:
            raise UserError(f"{where}: no such model; {near_miss(config.name, known)}")
        member = import_module(known[config.name])
        if tokens != getattr(member, "TOKENS", False):
            right = "numbers; give floats or 8-bit pixels, or take embedding-bag" if tokens else "token ids; take mlp"
            raise UserError(f"{where}: is for {right}")
        module: nn.Module = member.build(config, shape, classes)
        return module


def fitted(config: ModelConfig, shape: Shape, tokens: bool) -> ModelConfig:
    """The config with the model that fits such samples, where its name is left to them ("auto")."""
    if config.name != "auto":
        return config
    image = len(shape) == 3 and min(shape[1:]) >= SMALLEST_IMAGE
    return config.model_copy(update={"name": "embedding-bag" if tokens else "cnn" if image else "mlp"})


def image_sides(name: str, shape: Shape) -> tuple[int, int]:
    """Height and width of images; whatever is no image is refused."""
    if len(shape) != 3:
        axes = "×".join(map(str, shape))
        raise UserError(f'model.name = "{name}": needs images of C×H×W, not samples of {axes}; use mlp')
    return shape[1], shape[2]


def _build_own(name: str, where: str, shape: Shape, classes: int, tokens: bool) -> nn.Module:
    factory = load("model.name", name)
    if not callable(factory):
        raise UserError(f"{where}: must be a function of (shape, classes)")
    module = factory(shape, classes)
    if not isinstance(module, nn.Module):
        raise UserError(f"{where}: the factory gave a {type(module).__name__}, not a Module")
    if any(True for _ in module.buffers()):
        raise UserError(f"{where}: has buffers (batch norm?), which devices cannot share; use group norm")
    _try_out(module, where, torch.zeros(2, *shape, dtype=torch.long if tokens else torch.float32), classes)
    return module


def _try_out(module: nn.Module, where: str, samples: torch.Tensor, classes: int) -> None:
    """Two samples through the module, so that a wrong shape is told before anything is trained."""
    module.eval()
    try:
        with torch.no_grad():
            scores = module(samples)
    except (RuntimeError, ValueError, IndexError) as error:
        reason = " ".join(str(error).split())
        kind = "token ids" if samples.dtype == torch.long else "samples"
        shape = "×".join(map(str, samples.shape[1:]))
        raise UserError(f"{where}: fails on {kind} of C×H×W = {shape}: {reason}") from error
    module.train()
    given = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if given != (2, classes):
        raise UserError(f"{where}: gave {given} for 2 samples, must give scores of shape (2, {classes})")
