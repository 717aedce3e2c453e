"""A trained model to be used: what its file tells of it, and the module that tells samples' classes or numbers."""

import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from fedclade.config import ModelConfig
from fedclade.core.arrays import Singles
from fedclade.core.errors import UserError
from fedclade.core.task import Task
from fedclade.data.source import standard_axes
from fedclade.models import Shape, build_model, outputs_of, vector_tensors

KEY = "fedclade"  # one entry of a file's metadata: several would be written in any order, and the same model must
# give the same bytes


@dataclass(frozen=True)
class ModelCard:
    """What one must know to use a model: all that its weights do not tell."""

    architecture: Mapping[str, Any]  # the fields of the config's section [model]
    input_shape: Shape  # of one sample
    task: Task
    full_scale: float  # samples are divided by it,
    mean: tuple[float, ...]  # then this is subtracted, channel by channel or feature by feature,
    std: tuple[float, ...]  # and they are divided by this
    tokens: bool = False  # whether samples are token ids, which are taken as they are

    def metadata(self) -> dict[str, str]:
        """For a safetensors file."""
        return {KEY: json.dumps(asdict(self), sort_keys=True)}

    @classmethod
    def of(cls, metadata: Mapping[str, str] | None, where: str) -> Self:
        """The inverse of ``metadata``; UserError where ``where``, a file, has none."""
        if not metadata or KEY not in metadata:
            raise UserError(f"{where}: does not tell what it needs to be used: it was made by an older fedclade")
        told = json.loads(metadata[KEY])
        lists = {name: tuple(told[name]) for name in ("input_shape", "mean", "std")}
        return cls(**{**told, **lists, "task": Task.of(told["task"])})


class TrainedModel(nn.Module):
    """A model as it is used: takes samples as the devices store them, N × C × H × W, and gives scores, N × classes.

    Where samples have numbers instead of classes, it gives these, N × outputs, in the units of the data.
    Samples that are no images are of N × 1 × 1 × features, or have more axes; just as the devices' samples do.
    """

    scale: torch.Tensor
    shift: torch.Tensor
    unit: torch.Tensor
    origin: torch.Tensor

    def __init__(self, card: ModelCard, tensors: Mapping[str, Singles]) -> None:
        super().__init__()
        self.card = card
        self.model = build_model(ModelConfig(**card.architecture), card.input_shape, card.task.outputs, 0, card.tokens)
        own = vector_tensors(self.model)
        shapes, trained = ({name: tuple(each.shape) for name, each in group.items()} for group in (own, tensors))
        if shapes != trained:
            where = f'model.name = "{card.architecture["name"]}"'
            raise UserError(f"{where}: has other tensors than when it was trained: {', '.join(sorted(trained))}")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(torch.from_numpy(np.array(tensors[name])))
        per_input = standard_axes(card.input_shape)
        std, mean = (torch.tensor(values).reshape(per_input) for values in (card.std, card.mean))
        self.register_buffer("scale", 1.0 / (card.full_scale * std))
        self.register_buffer("shift", mean / std)
        self.register_buffer("unit", torch.tensor(card.task.std or (1.0,)))
        self.register_buffer("origin", torch.tensor(card.task.mean or (0.0,)))
        self.eval()

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """The score of every class, of which the highest is the model's answer; or the numbers."""
        inputs = samples.long() if self.card.tokens else samples.float() * self.scale - self.shift
        scores = outputs_of(self.model, inputs)
        return scores * self.unit + self.origin if self.card.task.numbers else scores


def save_onnx(model: TrainedModel, path: Path) -> None:
    """Write a model in the Open Neural Network Exchange format, for runtimes that know nothing of torch.

    Its input is called ``samples``, of the same kinds as ``save_program`` takes, its output ``scores`` or ``numbers``.
    """
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise UserError("--format onnx: needs onnx and onnxscript: pip install 'fedclade[onnx]'")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # of what is not installed and not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model,
            (_example(model),),
            input_names=["samples"],
            output_names=["numbers" if model.card.task.numbers else "scores"],
            dynamic_shapes=_any_number(),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(str(path))


def _example(model: TrainedModel) -> torch.Tensor:
    """Two samples as the devices store them."""
    numbers = torch.uint8 if model.card.full_scale != 1.0 else torch.float32
    return torch.zeros(2, *model.card.input_shape, dtype=torch.int32 if model.card.tokens else numbers)


def _any_number() -> tuple[dict[int, Any]]:
    """Any number of samples. Made when needed: torch imports sympy for it, which takes half a second."""
    return ({0: torch.export.Dim("samples")},)


def save_program(model: TrainedModel, path: Path) -> None:
    """Write a model as a program of its own, which ``torch.export.load`` reads without any of fedclade's code.

    It takes any number of samples, of 8 bits if the devices' are, token ids of 32 bits, else floats.
    """
    program = torch.export.export(model, (_example(model),), dynamic_shapes=_any_number())
    with path.open("wb") as file:
        torch.export.save(program, file)
