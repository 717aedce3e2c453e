"""What is trained: one module for each net that has a name, or a factory of the user's own.

A module of this package is found by its name (``cnn-large`` is ``cnn_large``) and has one function,
``build(config, shape, classes) -> nn.Module``. A user's factory is named as ``model.name = "package.module:factory"``.
One that comes with fedclade also tells its size, ``parameters(config, shape, classes) -> int``, and imports torch in
``build`` only: a round can be planned without waiting for torch.
"""

from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from fedclade.config import ModelConfig
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, members, near_miss, takes, users_code
from fedclade.core.random import derived_seed

if TYPE_CHECKING:
    import torch
    from torch import nn

# Of one sample: channels, height, width; 1 × 1 × features if it is no image; more axes if the data have more.
Shape: TypeAlias = tuple[int, ...]
SMALLEST_IMAGE = 16  # pixels on a side that the cnn's two convolutions and pools need


def build_model(config: ModelConfig, shape: Shape, classes: int, seed: int, tokens: bool = False) -> "nn.Module":
    """The module with its initial weights, which depend on the seed alone.

    A user's factory is called as ``factory(shape, classes)``. Its module takes a batch of samples, N × C × H × W, and
    gives one score for every class, N × classes, or the numbers that are wanted. One with several heads gives a tuple
    of such parts. ``tokens`` says whether samples are token ids instead of numbers.
    """
    import torch

    config = fitted(config, shape, tokens)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, "model"))
        if ":" in config.name:
            return _build_own(config.name, shape, classes, tokens)
        module: nn.Module = _member(config.name, tokens).build(config, shape, classes)
        return module


def fitted(config: ModelConfig, shape: Shape, tokens: bool) -> ModelConfig:
    """The config with the model that fits such samples, where its name is left to them ("auto")."""
    if config.name != "auto":
        return config
    image = len(shape) == 3 and min(shape[1:]) >= SMALLEST_IMAGE
    return config.model_copy(update={"name": "embedding-bag" if tokens else "cnn" if image else "mlp"})


def count_parameters(config: ModelConfig, shape: Shape, classes: int, tokens: bool = False) -> int:
    """How many numbers of a model travel: parameters and buffers of reals that are not kept on the devices.

    Torch is needed for a user's own model, and where something is kept.
    """
    config = fitted(config, shape, tokens)
    member = None if ":" in config.name else _member(config.name, tokens)
    if member is not None and hasattr(member, "parameters") and not config.local:
        return int(member.parameters(config, shape, classes))
    module = build_model(config, shape, classes, 0, tokens)
    return sum(
        tensor.numel()
        for name, tensor in vector_tensors(module).items()
        if not any(fnmatchcase(name, pattern) for pattern in config.local)
    )


def vector_tensors(module: "nn.Module") -> dict[str, "torch.Tensor"]:
    """What a model is made of, in the order of its vector: parameters, then buffers of real numbers (batch norm's).

    What layers share is there once.
    """
    buffers = {name: buffer for name, buffer in module.named_buffers() if buffer.is_floating_point()}
    return {**dict(module.named_parameters()), **buffers}


def _member(name: str, tokens: bool) -> ModuleType:
    """The module of this package that a model's name stands for."""
    known = members(__name__)
    if name not in known:
        raise UserError(f'model.name = "{name}": no such model; {near_miss(name, known)}')
    member = import_module(known[name])
    if tokens != getattr(member, "TOKENS", False):
        right = "numbers; give floats or 8-bit pixels, or take embedding-bag" if tokens else "token ids; take mlp"
        raise UserError(f'model.name = "{name}": is for {right}')
    return member


def dense(into: int, out: int) -> int:
    """Weights and biases of a dense layer."""
    return (into + 1) * out


def convolution(into: int, out: int, kernel: int) -> int:
    """Weights and biases of a convolution with square kernels."""
    return (into * kernel * kernel + 1) * out


def image_sides(name: str, shape: Shape) -> tuple[int, int]:
    """Height and width of images; whatever is no image is refused."""
    if len(shape) != 3:
        axes = "×".join(map(str, shape))
        raise UserError(f'model.name = "{name}": needs images of C×H×W, not samples of {axes}; use mlp')
    return shape[1], shape[2]


def _build_own(name: str, shape: Shape, classes: int, tokens: bool) -> "nn.Module":
    import torch
    from torch import nn

    where = f'model.name = "{name}"'
    factory = load("model.name", name)
    if not takes(factory, 2):
        raise UserError(f"{where}: must be a function of (shape, classes)")
    with users_code(where):
        module = factory(shape, classes)
    if not isinstance(module, nn.Module):
        raise UserError(f"{where}: the factory gave a {type(module).__name__}, not a Module")
    _try_out(module, where, torch.zeros(2, *shape, dtype=torch.long if tokens else torch.float32), classes)
    return module


def outputs_of(module: "nn.Module", samples: "torch.Tensor") -> "torch.Tensor":
    """What a module gives for samples; several heads are put side by side."""
    import torch

    found = module(samples)
    joined: torch.Tensor = torch.cat(tuple(found), dim=1) if isinstance(found, tuple | list) else found
    return joined


def _try_out(module: "nn.Module", where: str, samples: "torch.Tensor", classes: int) -> None:
    """Two samples through the module, so that a wrong shape is told before anything is trained."""
    import torch

    module.eval()
    try:
        with torch.no_grad():
            scores = outputs_of(module, samples)
    except Exception as error:  # a user's module may fail in any way
        reason = " ".join(str(error).split())
        kind = "token ids" if samples.dtype == torch.long else "samples"
        shape = "×".join(map(str, samples.shape[1:]))
        raise UserError(f"{where}: fails on {kind} of C×H×W = {shape}: {reason}") from error
    module.train()
    given = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
    if given != (2, classes):
        raise UserError(f"{where}: gave {given} for 2 samples, must give scores of shape (2, {classes})")
