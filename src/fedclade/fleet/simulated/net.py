"""A model and the devices' data: what training starts from, and what questions look at."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from fedclade.config import Config
from fedclade.core.arrays import Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.random import derived_seed
from fedclade.data import Population
from fedclade.data.source import standard_axes
from fedclade.fleet.simulated.kernels.flat import bind
from fedclade.fleet.simulated.kernels.lean import LeanProgram, compile_lean
from fedclade.fleet.simulated.kernels.targets import targets_of
from fedclade.fleet.told import Share
from fedclade.models import build_model

EVALUATION_BATCH = 512
LOOK_BATCH = 64  # of images that stay in the cache on their way through a small net

Step: TypeAlias = Literal["autograd", "lean", "batched"]


class Net:
    """One module whose parameters are views of a flat vector, and the devices' data. An Examiner.

    With ``step = "lean"`` forward and backward are written out where the model allows it; else autograd's are used, in
    the layout that oneDNN likes best.
    """

    def __init__(self, config: Config, population: Population, step: Step) -> None:
        torch.set_num_threads(1)  # on few shared cores more threads are slower, and one process per core is faster
        self._seed, self._device = config.run.seed, _torch_device(config.training.device)
        self._images = torch.from_numpy(population.images).to(self._device)
        self._labels = torch.from_numpy(population.labels).to(self._device)
        self._shares = {"train": population.train, "validation": population.validation, "test": population.test}
        self._shape, self._tokens = population.sample
        per_input = standard_axes(self._shape)
        std, mean = (torch.tensor(v, device=self._device).reshape(per_input) for v in (population.std, population.mean))
        self._scale, self._shift = 1.0 / (population.full_scale * std), mean / std
        self._model, self._task = config.model, population.task
        self._targets, self.classes = targets_of(population.task), population.task.strata
        self._module = self._built(self._seed).to(self._device)
        if self._tokens and len(population.images):
            _check_vocabulary(self._model.name, self._module, int(population.images.max()))
        self._weights, self._gradient, self._order = bind(self._module)
        self.initial: Singles = self._weights.cpu().numpy().copy()
        lean = step == "lean" and self._device.type == "cpu"
        self._program = compile_lean(self._module, self._targets) if lean else None
        if lean and self._program is None:
            self._weights, self._gradient, self._order = bind(self._module, channels_last=True)

    def inputs(self, positions: torch.Tensor) -> torch.Tensor:
        """Samples as the model sees them: floats, standardised per channel or feature; or token ids."""
        if self._tokens:
            return self._images[positions].long()
        images = self._images[positions].float().mul_(self._scale).sub_(self._shift)
        if self._order is None or images.ndim != 4:
            return images
        return images.contiguous(memory_format=torch.channels_last)

    def _built(self, seed: int) -> nn.Module:
        return build_model(self._model, self._shape, self._task.outputs, seed, self._tokens)

    def _load(self, model: Singles) -> torch.Tensor:
        """Put a model into the module; gives the vector that is there now."""
        start = torch.from_numpy(model).to(self._device)
        return self._weights.copy_(start if self._order is None else start[self._order])

    def initial_model(self, variant: int = 0) -> Singles:
        """w0: depends on the seed and the variant alone."""
        if variant == 0:
            return self.initial.copy()
        seed = derived_seed(self._seed, "initial-model", variant)
        module = self._built(seed)
        return torch.cat([parameter.detach().reshape(-1).float() for parameter in module.parameters()]).numpy()

    def positions(self, device: int, share: Share) -> Ints:
        """Where a share of a device's images lies."""
        return self._shares[share][device]

    def labels(self, positions: Ints) -> Ints:
        """The classes of images, or which kind of numbers they have."""
        return self._task.stratum(self._labels[positions].cpu().numpy())

    def features(self, positions: Ints) -> Singles:
        """Images as the model sees them, one flat row each."""
        if self._tokens:
            raise UserError("population.source: token ids span no subspaces; take another clustering.method")
        images: Singles = self.inputs(torch.from_numpy(positions).to(self._device)).flatten(1).cpu().numpy()
        return images

    def losses(self, models: Singles, positions: Ints) -> np.ndarray:
        """The loss of each model (row) on each image (column)."""
        if self._program:
            return self._lean_losses(self._program, models, torch.from_numpy(positions))
        return np.stack([self.scores(model, positions)[1] for model in models])

    @torch.inference_mode()
    def _lean_losses(self, program: LeanProgram, models: Singles, positions: torch.Tensor) -> np.ndarray:
        """Of each model (row) on each image (column)."""
        images, labels, losses = self.inputs(positions), self._labels[positions], []
        features = images.flatten(1).t().contiguous()
        for model in models:
            self._load(model)
            looks = [program.logits(batch, images.shape[1:]).clone() for batch in torch.split(features, LOOK_BATCH, 1)]
            losses.append(self._targets.losses(torch.cat(looks, 1).t(), labels))
        return torch.stack(losses).double().numpy()

    @torch.no_grad()
    def scores(self, model: Singles, positions: Ints) -> tuple[np.ndarray, np.ndarray]:
        """The score of each image, and its loss."""
        self._module.eval()
        self._load(model)
        scores, losses = [], []
        for batch in torch.split(torch.from_numpy(positions).to(self._device), EVALUATION_BATCH):
            logits, labels = self._module(self.inputs(batch)), self._labels[batch]
            scores.append(self._targets.scores(logits, labels))
            losses.append(self._targets.losses(logits, labels))
        return torch.cat(scores).double().cpu().numpy(), torch.cat(losses).double().cpu().numpy()

    def flat(self, tensors: Mapping[str, Singles]) -> Singles:
        """The inverse of ``named_tensors``."""
        return np.concatenate([tensors[name].ravel() for name, _ in self._module.named_parameters()])

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        tensors, end = {}, 0
        for name, parameter in self._module.named_parameters():
            start, end = end, end + parameter.numel()
            tensors[name] = model[start:end].reshape(tuple(parameter.shape)).copy()
        return tensors


def _check_vocabulary(name: str, module: nn.Module, largest: int) -> None:
    """Refuse token ids that the module has no row for; where it has several tables, it must know itself."""
    tables = [layer for layer in module.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    if len(tables) == 1 and largest >= (known := tables[0].num_embeddings):
        raise UserError(
            f'model.name = "{name}": knows token ids below {known}, and the data have {largest}; '
            f"set model.vocabulary = {largest + 1} if that is right"
        )


def _torch_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError('training.device = "cuda": torch finds no CUDA device here; use "cpu"')
    return torch.device(name)
