"""Updates that are not kept: for more devices than have room for their updates.

Training goes through the devices in chunks. Of every chunk the norms, a sketch of each update and the weighted sums by
model are kept, and the updates themselves are let go. Whatever else is asked for, such as the sums over the two sides
of a cut, is trained again: every draw is keyed by (seed, round, device), so the updates are the same to the byte. So a
server with 100,000 devices holds models × parameters and devices × sketch, and never devices × parameters.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.updates import ALL, HeldUpdates, cosine_similarity, sketch, update_norms
from fedclade.fleet.simulated.trainer import Trainer

CHUNK = 500  # devices whose updates are in memory together; sums are added up chunk by chunk, in order
ALIKE = 1e-9  # relative difference of weights that are the same but for rounding


@dataclass(frozen=True)
class Recipe:
    """How updates come about: device ``devices[i]`` trains ``models[model_of[i]]`` in a round."""

    round: int
    models: Singles
    devices: Ints
    model_of: Ints

    def only(self, rows: Ints | slice) -> "Recipe":
        """Some of the devices."""
        return Recipe(self.round, self.models, self.devices[rows], self.model_of[rows])

    def trained_by(self, trainer: Trainer) -> Singles:
        """The updates."""
        return trainer.train(self.round, self.models, self.devices, self.model_of)

    def chunks(self) -> Iterator[tuple[slice, "Recipe"]]:
        """The devices in order, a chunk at a time."""
        for first in range(0, len(self.devices), CHUNK):
            rows = slice(first, first + CHUNK)
            yield rows, self.only(rows)


@dataclass(frozen=True)
class Digest:
    """What is kept of a chunk's updates."""

    norms: Floats
    sketches: Singles
    sums: Floats  # a row for each row of weights; updates that are not finite count as nothing


@runtime_checkable
class Digester(Protocol):
    """A Trainer that makes digests where the updates are, so that no update travels."""

    def digests(self, recipe: Recipe, weights: list[Singles], signs: Singles, width: int) -> Iterator[Digest]:
        """Of each chunk of a recipe in order; ``weights`` are those of each chunk, one row for each sum."""
        ...


def digested(updates: Singles, weights: Singles, signs: Singles, width: int) -> Digest:
    """What is kept of some updates: one row of ``weights`` for each sum, one column for each update."""
    norms = update_norms(updates)
    sound = np.isfinite(norms)
    if not sound.all():
        weights = weights[:, sound]
    sums = weights @ (updates if sound.all() else updates[sound])
    return Digest(norms, sketch(updates, signs, width) if width else updates[:, :0], sums.astype(np.float64))


class StreamedUpdates:
    """Updates of which only digests are kept; an ``Updates``. What a digest cannot answer is trained again."""

    def __init__(
        self,
        trainer: Trainer,
        recipe: Recipe,
        samples: Ints,
        signs: Singles,
        width: int,
        most_bytes: float,
        measured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``samples``: D_k of all devices; no more than ``most_bytes`` of updates are ever handed out.

        Within ``measured`` time counts as training.
        """
        self._measured = measured
        order = np.argsort(recipe.devices, kind="stable")
        self._trainer, self._recipe, self._most_bytes = trainer, recipe.only(order), most_bytes
        self.width, self._sketch_width = recipe.models.shape[1], width
        self._weightings = [samples[self._recipe.devices].astype(np.float64), np.ones(len(order))]
        self._models = len(recipe.models)
        by_model = [_by_model(self._recipe, weighting) for weighting in self._weightings]
        norms, sketches, sums = self._passed(self._recipe, np.concatenate(by_model), signs, width)
        self._norms, self._sketches = norms, sketches
        self._sums = sums.reshape(len(by_model), self._models, self.width)
        self._present: Bools = np.ones(len(order), dtype=bool)
        self._answered: dict[bytes, Singles] = {}

    @property
    def devices(self) -> Ints:
        """Whose updates there are, ascending."""
        return self._recipe.devices[self._present]

    def among(self, devices: Ints) -> "StreamedUpdates":
        """Of these devices alone."""
        fewer = object.__new__(StreamedUpdates)
        fewer.__dict__.update(self.__dict__)
        fewer._present = self._present & np.isin(self._recipe.devices, devices)
        return fewer

    def norms(self, devices: Ints) -> Floats:
        """‖Δw_k‖ of each device."""
        return np.asarray(self._norms[self._places(devices)])

    def cosines(self, devices: Ints) -> Singles:
        """All pairwise cosines."""
        return cosine_similarity(self.compared(devices))

    def compared(self, devices: Ints) -> Singles:
        """The updates, trained again; of more devices than there is room for, their sketches."""
        fits = len(devices) * self.width * 4 <= self._most_bytes
        return self.rows(devices) if fits else self._sketches[self._places(devices)]

    def sketched(self, signs: Singles, width: int) -> HeldUpdates:
        """The sketches made in passing."""
        if width != self._sketch_width:
            raise ValueError(f"sketches of {self._sketch_width} numbers were made, not of {width}")
        here = np.flatnonzero(self._present)
        return HeldUpdates.of(self._recipe.devices[here], self._sketches[here])

    def rows(self, devices: Ints, columns: slice = ALL) -> Singles:
        """The updates of a few devices, trained again."""
        if (size := len(devices) * self.width * 4) > self._most_bytes:
            raise UserError(
                f"training.updates_gb = {self._most_bytes / 1e9:g}: the {len(devices)} updates asked for at once take "
                f"{size / 1e9:.1f} GB; raise it, or take a method and an aggregation.rule that need no single updates"
            )
        recipe = self._recipe.only(self._places(devices))
        with self._measured():
            return recipe.trained_by(self._trainer)[:, columns]

    def sums(self, devices: Ints, group: Ints, weights: Floats, groups: int) -> Singles:
        """Σ weight_k Δw_k over the devices of each group."""
        told = np.int64(groups), devices, group, np.asarray(weights, dtype=np.float64)
        key = hashlib.blake2b(b"".join(part.tobytes() for part in told)).digest()
        if key not in self._answered:
            known = (self._from_digest(*told[1:], groups, kind) for kind in range(len(self._weightings)))
            found = next((sums for sums in known if sums is not None), None)
            self._answered[key] = self._again(*told[1:], groups) if found is None else found
        return self._answered[key]

    def _from_digest(self, devices: Ints, group: Ints, weights: Floats, groups: int, kind: int) -> Singles | None:
        """From the sums by model that were made in passing, less those of the devices that do not belong to a group.

        Who trained one model may be asked about in parts, such as the sides of a cut: of these the largest is what the
        others leave. None: weights are of another kind, or so many devices would be trained again as are asked about.
        """
        places, model_of, usual = self._places(devices), self._recipe.model_of, self._weightings[kind]
        into, factor = np.full(len(model_of), groups), np.zeros(len(model_of))  # the last group: not asked about
        into[places], factor[places] = group, weights / np.maximum(usual[places], 1)
        involved = np.flatnonzero(np.isin(model_of, model_of[places]) & np.isfinite(self._norms))
        parts, part, sizes = np.unique(
            model_of[involved] * (groups + 1) + into[involved], return_inverse=True, return_counts=True
        )
        order = np.argsort(part, kind="stable")
        starts = np.cumsum(sizes) - sizes
        least, most = (reduce.reduceat(factor[involved[order]], starts) for reduce in (np.minimum, np.maximum))
        if (most - least > ALIKE * np.abs(most)).any():
            return None
        model, asked = np.divmod(parts, groups + 1)
        largest = np.array([np.flatnonzero(model == one)[sizes[model == one].argmax()] for one in np.unique(model)])
        again = np.flatnonzero(~np.isin(part, largest))
        if len(again) >= len(places):
            return None
        told = self._summed(involved[again], part[again], usual[involved[again]], len(parts))
        told[largest] = self._sums[kind, model[largest]]
        for one in largest.tolist():
            told[one] -= told[(model == model[one]) & (np.arange(len(parts)) != one)].sum(axis=0)
        sums = np.zeros((groups + 1, self.width))
        np.add.at(sums, asked, most[:, None] * told)
        return sums[:groups].astype(np.float32)

    def _again(self, devices: Ints, group: Ints, weights: Floats, groups: int) -> Singles:
        """By training the devices once more."""
        order = np.argsort(devices, kind="stable")
        return self._summed(self._places(devices[order]), group[order], weights[order], groups).astype(np.float32)

    def _summed(self, places: Ints, group: Ints, weights: Floats, groups: int) -> Floats:
        shares = np.zeros((groups, len(places)), dtype=np.float32)
        shares[group, np.arange(len(places))] = weights
        return self._passed(self._recipe.only(places), shares, np.zeros(0, dtype=np.float32), 0)[2]

    def _passed(self, recipe: Recipe, shares: Singles, signs: Singles, width: int) -> tuple[Floats, Singles, Floats]:
        """Once through all devices of a recipe: norms, sketches, and a sum for each row of shares."""
        count = len(recipe.devices)
        norms, sketches = np.empty(count), np.empty((count, width), dtype=np.float32)
        sums = np.zeros((len(shares), self.width))
        weights = [shares[:, rows] for rows, _ in recipe.chunks()]
        with self._measured():
            digests = _digests(self._trainer, recipe, weights, signs, width)
            for (rows, _), digest in zip(recipe.chunks(), digests, strict=True):
                norms[rows], sketches[rows] = digest.norms, digest.sketches
                sums += digest.sums
        return norms, sketches, sums

    def _places(self, devices: Ints) -> Ints:
        places = np.searchsorted(self._recipe.devices, devices).clip(max=max(0, len(self._recipe.devices) - 1))
        if not (self._recipe.devices[places] == devices).all():
            raise KeyError("an update is asked for of a device that did not train")
        return places


def _digests(trainer: Trainer, recipe: Recipe, weights: list[Singles], signs: Singles, width: int) -> Iterator[Digest]:
    """Of each chunk of a recipe in order: made by the trainer where it can, else here."""
    if isinstance(trainer, Digester):
        yield from trainer.digests(recipe, weights, signs, width)
        return
    for (_, chunk), shares in zip(recipe.chunks(), weights, strict=True):
        yield digested(chunk.trained_by(trainer), shares, signs, width)


def _by_model(recipe: Recipe, weighting: Floats) -> Singles:
    """A row for each model: the weights of those who train it, 0 of the others."""
    shares = np.zeros((len(recipe.models), len(weighting)), dtype=np.float32)
    shares[recipe.model_of, np.arange(len(weighting))] = weighting
    return shares
