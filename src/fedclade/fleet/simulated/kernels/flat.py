"""A module's parameters and gradients as views of two flat vectors: a model is a vector, an update a difference."""

from typing import TypeGuard

import torch
from torch import nn

from fedclade.models import vector_tensors


def is_plain_stack(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Whether a module is a sequence of layers that are all trained and share nothing: what can be written out."""
    names = len(list(module.named_parameters(remove_duplicate=False)))
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return type(module) is nn.Sequential and len(trained) == names


def bind(module: nn.Module, channels_last: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Rebind the parameters and their gradients as views of two new flat vectors: weights and gradient.

    Buffers of real numbers follow the parameters; their gradient stays 0, and layers write into them as they train.

    With ``channels_last`` the kernels of convolutions lie in memory as oneDNN likes them, so the vectors are in another
    order than usual; the third value is that order: ``weights == usual[order]``. None where it is the usual one.
    """
    tensors = vector_tensors(module)
    shapes = [tensor.shape for tensor in tensors.values()]
    turned = [channels_last and len(shape) == 4 for shape in shapes]
    usual = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors.values()])
    places = torch.split(torch.arange(len(usual)), [shape.numel() for shape in shapes])
    order = torch.cat(
        [
            (place.view(shape).permute(0, 2, 3, 1) if turn else place).reshape(-1)
            for place, shape, turn in zip(places, shapes, turned, strict=True)
        ]
    )
    weights = usual[order]
    gradient = torch.zeros_like(weights)
    end = 0
    for (name, tensor), shape, turn in zip(tensors.items(), shapes, turned, strict=True):
        start, end = end, end + shape.numel()
        if isinstance(tensor, nn.Parameter):
            tensor.data = _view(weights[start:end], shape, turn)
            tensor.grad = _view(gradient[start:end], shape, turn)
        else:
            owner, _, leaf = name.rpartition(".")
            module.get_submodule(owner).register_buffer(leaf, _view(weights[start:end], shape, turn))
    return weights, gradient, order if any(turned) else None


def _view(part: torch.Tensor, shape: torch.Size, turn: bool) -> torch.Tensor:
    if not turn:
        return part.view(shape)
    out, into, height, width = shape
    return part.view(out, height, width, into).permute(0, 3, 1, 2)
