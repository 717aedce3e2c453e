"""A module's parameters and gradients as views of two flat vectors: a model is a vector, an update a difference."""

import torch
from torch import nn


def bind(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Rebind the parameters and their gradients as views of two new flat vectors: weights and gradient."""
    parameters = list(module.parameters())
    weights = torch.cat([parameter.detach().reshape(-1).float() for parameter in parameters])
    gradient = torch.zeros_like(weights)
    end = 0
    for parameter in parameters:
        start, end = end, end + parameter.numel()
        parameter.data = weights[start:end].view(parameter.shape)
        parameter.grad = gradient[start:end].view(parameter.shape)
    return weights, gradient
