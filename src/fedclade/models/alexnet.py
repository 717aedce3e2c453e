"""AlexNet, for images of 32×32."""

from torch import nn

from fedclade.config import ModelConfig
from fedclade.core.errors import UserError
from fedclade.models import Shape, image_sides


def build(config: ModelConfig, shape: Shape, classes: int) -> nn.Module:
    """AlexNet for 32×32: 5 convolutions, 3 pools, 2 dropouts, 3 dense layers (the paper's 13)."""
    c1, c2, c3, c4, c5, dense = (max(1, round(w * config.width)) for w in (64, 192, 384, 256, 256, 512))
    side = [((edge + 1) // 2) // 2 // 2 // 2 for edge in image_sides("alexnet", shape)]
    if min(side) < 1:
        raise UserError(f'model.name = "alexnet": needs images of at least 16×16, not {shape[1]}×{shape[2]}')
    return nn.Sequential(
        nn.Conv2d(shape[0], c1, 3, stride=2, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(c1, c2, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(c2, c3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(c3, c4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(c4, c5, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(c5 * side[0] * side[1], dense),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(dense, dense),
        nn.ReLU(),
        nn.Linear(dense, classes),
    )
