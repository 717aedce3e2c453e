"""A model and the devices' data: what training starts from, and what questions look at."""

from collections.abc import Callable, Mapping
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
from fedclade.fleet.simulated.kernels.lean import compile_lean
from fedclade.fleet.simulated.kernels.targets import targets_of
from fedclade.fleet.told import Share
from fedclade.models import build_model, outputs_of, vector_tensors

# Images that are looked at together: as many as stay in the cache on their way through a net.
LOOK_BATCH, LEAN_LOOK_BATCH = 256, 64
LOOK_CHUNK = 4096  # images that every model looks at before the next ones are taken out
STANDARDISED_BYTES = 1 << 26  # images that take less, as floats, are standardised once for all

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
        self._standardised: torch.Tensor | None = None
        if not self._tokens and 4 * self._images.numel() <= STANDARDISED_BYTES:
            self._standardised = _standardised(self._images, self._scale, self._shift)
        self._model, self.task = config.model, population.task
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
        convolves = any(isinstance(layer, nn.Conv2d) for layer in self._module.modules())
        self._lean_looks = self._program is not None and convolves  # dense layers are as fast in larger batches

    def inputs(self, positions: torch.Tensor) -> torch.Tensor:
        """Samples as the model sees them: floats, standardised per channel or feature; or token ids."""
        if self._tokens:
            return self._images[positions].long()
        known = self._standardised
        images = _standardised(self._images[positions], self._scale, self._shift) if known is None else known[positions]
        if self._order is None or images.ndim != 4:
            return images
        return images.contiguous(memory_format=torch.channels_last)

    def _built(self, seed: int) -> nn.Module:
        return build_model(self._model, self._shape, self.task.outputs, seed, self._tokens)

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
        return torch.cat([tensor.detach().reshape(-1).float() for tensor in vector_tensors(module).values()]).numpy()

    def positions(self, device: int, share: Share) -> Ints:
        """Where a share of a device's images lies."""
        return self._shares[share][device]

    def labels(self, positions: Ints) -> Ints:
        """The classes of images, or which kind of numbers they have."""
        return self.task.stratum(self._labels[positions].cpu().numpy())

    def features(self, positions: Ints) -> Singles:
        """Images as the model sees them, one flat row each."""
        if self._tokens:
            raise UserError("population.source: token ids span no subspaces; take another clustering.method")
        images: Singles = self.inputs(torch.from_numpy(positions).to(self._device)).flatten(1).cpu().numpy()
        return images

    def losses(self, models: Singles, positions: Ints) -> np.ndarray:
        """The loss of each model (row) on each image (column)."""
        losses: np.ndarray = self.looks(models, positions)[1]
        return losses

    def scores(self, model: Singles, positions: Ints) -> tuple[np.ndarray, np.ndarray]:
        """The score of each image, and its loss."""
        scores, losses = self.looks(model[None], positions)
        return scores[0], losses[0]

    @torch.inference_mode()
    def looks(self, models: Singles, positions: Ints) -> np.ndarray:
        """The score of each model (row) on each image (column), and its loss."""
        self._set_training(False)
        found = np.empty((2, len(models), len(positions)))
        scores, losses = found
        for first in range(0, len(positions), LOOK_CHUNK):
            part = slice(first, first + LOOK_CHUNK)
            chosen = torch.from_numpy(positions[part]).to(self._device)
            images, labels = self.inputs(chosen), self._labels[chosen]
            logits = self._logits(images)
            for row, model in enumerate(models):
                self._load(model)
                outputs = logits()
                scores[row, part] = self._targets.scores(outputs, labels).cpu().numpy()
                losses[row, part] = self._targets.losses(outputs, labels).cpu().numpy()
        return found

    def _logits(self, images: torch.Tensor) -> Callable[[], torch.Tensor]:
        """How to find the outputs of the model of the moment for images, one row each."""
        program, shape = self._program, images.shape[1:]
        if program is None or not self._lean_looks:
            whole = torch.split(images, LOOK_BATCH)
            return lambda: torch.cat([outputs_of(self._module, batch) for batch in whole])
        turned = torch.split(images.flatten(1).t().contiguous(), LEAN_LOOK_BATCH, 1)
        return lambda: torch.cat([program.logits(batch, shape).clone() for batch in turned], 1).t()

    def _set_training(self, training: bool) -> None:
        """Whether dropout drops; to set it takes longer than many a small model's look."""
        if self._module.training != training:
            self._module.train(training)

    def flat(self, tensors: Mapping[str, Singles]) -> Singles:
        """The inverse of ``named_tensors``."""
        return np.concatenate([tensors[name].ravel() for name in vector_tensors(self._module)])

    def named_tensors(self, model: Singles) -> dict[str, Singles]:
        """The flat model as named arrays."""
        tensors, end = {}, 0
        for name, tensor in vector_tensors(self._module).items():
            start, end = end, end + tensor.numel()
            tensors[name] = model[start:end].reshape(tuple(tensor.shape)).copy()
        return tensors


def _standardised(images: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return images.float().mul(scale).sub_(shift)


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
