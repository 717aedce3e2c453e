"""What devices are asked besides training: their opinion of models.

A question is one class. It knows how to find the answer where the data is (``run``), how to travel to a single device
and back (``part``, ``read``, ``reply``, ``take``), and what answering costs (``looks``, ``models_sent``). To ask
something new, write one more class like these and name it in ``QUESTIONS``. A question of a user's own has the name
of its class as its ``kind``, as ``package.module:Class``: so a device that has the module finds it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from fedclade.core.arrays import Bools, Floats, Ints, Singles
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, near_miss
from fedclade.core.updates import HeldUpdates, Updates
from fedclade.fleet.answers import CutOpinion, Evaluation, Paired, Spans, Survey, misfit, paired
from fedclade.fleet.told import ROUNDING, Share, Told, Unreadable

LOSS_MOST = 1e12  # a mean loss beyond it is no answer: a few of them added up must still be a number
Facts: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, np.ndarray]
Message: TypeAlias = tuple[Facts, Arrays]  # plain values, and arrays without pickle
OWN_UPDATE = "own_update"  # what a device adds to a question: the update it made in this round, if it made one


class Examiner(Protocol):
    """What a question may look at where the data is: at one device, or at all devices of a simulation."""

    classes: int

    def positions(self, device: int, share: Share) -> Ints:
        """Where a share of a device's images lies."""
        ...

    def labels(self, positions: Ints) -> Ints:
        """The classes of images."""
        ...

    def features(self, positions: Ints) -> Singles:
        """Images as a model sees them, one flat row each."""
        ...

    def scores(self, model: Singles, positions: Ints) -> tuple[Floats, Floats]:
        """For each image a model's score and its loss, as the task has it: 1 or 0 for right or wrong classes."""
        ...

    def losses(self, models: Singles, positions: Ints) -> Floats:
        """The loss of each model (row) on each image (column)."""
        ...


class WrappedExaminer:
    """An Examiner that shows another one's data; a class derived from it looks at models in its own way."""

    def __init__(self, examiner: Examiner) -> None:
        self._examiner, self.classes = examiner, examiner.classes

    def positions(self, device: int, share: Share) -> Ints:
        """Where a share of a device's images lies."""
        return self._examiner.positions(device, share)

    def labels(self, positions: Ints) -> Ints:
        """The classes of images."""
        return self._examiner.labels(positions)

    def features(self, positions: Ints) -> Singles:
        """Images as a model sees them, one flat row each."""
        return self._examiner.features(positions)


LOOK = 1.0 / 3.0  # work of looking at an image, against training on it once: forward, without backward

Answer = TypeVar("Answer")


def fraction_for(work: float, passes: int, models: int) -> float:
    """The fraction of its images on which it takes a device so much work to look at so many models.

    ``work``: as a share of a round's training, which goes through the images ``passes`` times.
    """
    return work * passes / (LOOK * models)


class Question(ABC, Generic[Answer]):
    """A question to some devices; ``Answer`` is what comes back, one value for all of them."""

    kind: ClassVar[str]
    devices: Ints  # whom it is put to, one entry for each thing asked

    @property
    @abstractmethod
    def models_sent(self) -> int:
        """How many models must be multicast so that the devices can answer."""

    @abstractmethod
    def run(self, examiner: Examiner) -> Answer:
        """Find the answer."""

    @abstractmethod
    def looks(self, answer: Answer) -> Floats:
        """For each entry how often an image is put through a model."""

    def answer_bits(self, answer: Answer) -> Floats:
        """For each entry the bits of its answer, where they count beside a model's."""
        return np.zeros(len(self.devices))

    @abstractmethod
    def part(self, device: int) -> Message:
        """What a single device must be sent."""

    @classmethod
    @abstractmethod
    def read(cls, facts: Facts, arrays: Arrays, device: int) -> Self:
        """The question as that device gets it."""

    @staticmethod
    @abstractmethod
    def reply(answer: Any) -> Message:
        """What the device sends back."""

    @abstractmethod
    def nothing(self, classes: int) -> Answer:
        """The answer while nobody has answered."""

    @abstractmethod
    def take(self, answer: Answer, device: int, told: Told) -> None:
        """Fill in what a device replied; ``Unreadable`` where that cannot be an answer, and nothing is filled in."""


@dataclass(frozen=True)
class Evaluate(Question[Evaluation]):
    """Score (accuracy or R²) and mean loss of ``models[model_of[i]]`` on a share of the data of ``devices[i]``."""

    models: Singles
    devices: Ints
    model_of: Ints
    share: Share = "test"
    sent: int = 0  # models multicast for it: as a rule a device has the model, or is about to get it
    kind: ClassVar[str] = "evaluate"

    @property
    def models_sent(self) -> int:
        """None, unless it says so."""
        return self.sent

    def run(self, examiner: Examiner) -> Evaluation:
        """Each model on all its devices' data together, in large batches; then the means of each device."""
        found = self.nothing(examiner.classes)
        for model in np.unique(self.model_of):
            entries = np.flatnonzero(self.model_of == model)
            parts = [examiner.positions(device, self.share) for device in self.devices[entries].tolist()]
            scores, losses = examiner.scores(self.models[model], np.concatenate(parts))
            found.score[entries], found.loss[entries] = _means(scores, parts), _means(losses, parts)
            found.samples[entries] = [len(part) for part in parts]
        return found

    def only(self, entries: Ints) -> "Evaluate":
        """Some entries of the question."""
        return replace(self, devices=self.devices[entries], model_of=self.model_of[entries])

    def looks(self, answer: Evaluation) -> Floats:
        """One look at each image."""
        return answer.samples.astype(np.float64)

    def part(self, device: int) -> Message:
        """The models that the device is asked about."""
        return {"share": self.share}, {"models": self.models[self.model_of[self.devices == device]]}

    @classmethod
    def read(cls, facts: Facts, arrays: Arrays, device: int) -> Self:
        """All models, on this device's data."""
        models = arrays["models"]
        return cls(models, np.full(len(models), device), np.arange(len(models)), facts["share"])

    @staticmethod
    def reply(answer: Evaluation) -> Message:
        """Three numbers a model."""
        return {}, {"score": answer.score, "loss": answer.loss, "samples": answer.samples[:, None]}

    def nothing(self, classes: int) -> Evaluation:
        """Unknown everywhere."""
        count = len(self.devices)
        return Evaluation(np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, dtype=np.int64))

    def take(self, answer: Evaluation, device: int, told: Told) -> None:
        """A score is at most 1, a loss at least 0."""
        entries = np.flatnonzero(self.devices == device)
        shape = (len(entries),)
        score = told.reals("score", shape, told.declared.least_score, 1.0)
        loss = told.reals("loss", shape, 0.0, LOSS_MOST)
        samples = told.counts("samples", (len(entries), 1), self.share)[:, 0]
        answer.score[entries], answer.loss[entries], answer.samples[entries] = score, loss, samples


@dataclass(frozen=True)
class Compare(Question[Paired]):
    """Misfit of ``models[second[i]]`` less that of ``models[first[i]]`` on images of ``devices[i]``, by class.

    Above 0 the first model is the better one.
    """

    models: Singles
    devices: Ints
    first: Ints
    second: Ints
    share: Share = "validation"
    sent: int | None = None  # models multicast for it: all that are compared, unless some were sent just before
    kind: ClassVar[str] = "compare"

    @property
    def models_sent(self) -> int:
        """Those that are compared, unless it says otherwise."""
        return len(np.union1d(self.first, self.second)) if self.sent is None else self.sent

    def run(self, examiner: Examiner) -> Paired:
        """Each model on the images of all devices that compare it."""
        parts = [examiner.positions(device, self.share) for device in self.devices.tolist()]
        positions, entry = np.concatenate([np.zeros(0, dtype=np.int64), *parts]), _entry(parts)
        differences = np.zeros(len(entry))
        for chosen, sign in ((self.first, -1.0), (self.second, 1.0)):
            for model in np.unique(chosen):
                places = np.flatnonzero((chosen == model)[entry])
                _, losses = examiner.scores(self.models[model], positions[places])
                differences[places] += sign * misfit(losses)
        labels = examiner.labels(positions) if len(entry) else entry
        return paired(differences, entry, labels, (len(parts), examiner.classes))

    def looks(self, answer: Paired) -> Floats:
        """Two looks at each image."""
        return np.asarray(2.0 * answer.samples.sum(axis=1))

    def part(self, device: int) -> Message:
        """Pairs of models, one after the other."""
        mine = self.devices == device
        pairs = np.stack([self.first[mine], self.second[mine]], axis=1).ravel()
        return {"share": self.share}, {"models": self.models[pairs]}

    @classmethod
    def read(cls, facts: Facts, arrays: Arrays, device: int) -> Self:
        """All pairs, on this device's data."""
        models = arrays["models"]
        first = np.arange(0, len(models), 2)
        return cls(models, np.full(len(first), device), first, first + 1, facts["share"])

    @staticmethod
    def reply(answer: Paired) -> Message:
        """By pair and class: images, mean and mean square of the differences."""
        return {}, {"samples": answer.samples, "mean": answer.mean, "squares": answer.squares}

    def nothing(self, classes: int) -> Paired:
        """No image anywhere."""
        shape = (len(self.devices), classes)
        return Paired(np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape))

    def take(self, answer: Paired, device: int, told: Told) -> None:
        """A misfit is from 0 to 1, so differences are from -1 to 1."""
        mine = np.flatnonzero(self.devices == device)
        said = _differences(told, "", (len(mine), answer.samples.shape[1]), self.share)
        answer.samples[mine], answer.mean[mine], answer.squares[mine] = said.samples, said.mean, said.squares


@dataclass(frozen=True)
class TryCut(Question[CutOpinion]):
    """What devices think of a cut, on held-out images.

    To tell the groups, the children's models are set ``apart`` times as far from their parent's as they are.
    """

    models: Singles  # of the first child, the second child and their parent
    devices: Ints
    side: Bools  # whether a device is of the second child
    apart: float
    kind: ClassVar[str] = "try-cut"

    @property
    def models_sent(self) -> int:
        """Two children and their parent."""
        return len(self.models)

    def run(self, examiner: Examiner) -> CutOpinion:
        """Each model is put to all devices at once."""
        parent, first = self.models[2], np.zeros_like(self.devices)
        apart = parent + np.float32(self.apart) * (self.models[:2] - parent)
        models = np.concatenate([apart, self.models])
        preference = Compare(models, self.devices, first, first + 1).run(examiner)
        return CutOpinion(preference, Compare(models, self.devices, 2 + self.side, first + 4).run(examiner))

    def looks(self, answer: CutOpinion) -> Floats:
        """Four looks at each image."""
        return np.asarray(4.0 * answer.gain.samples.sum(axis=1))

    def part(self, device: int) -> Message:
        """The models, and the device's side."""
        (row,) = np.flatnonzero(self.devices == device)
        return {"side": int(self.side[row]), "apart": float(self.apart)}, {"models": self.models}

    @classmethod
    def read(cls, facts: Facts, arrays: Arrays, device: int) -> Self:
        """The same cut."""
        return cls(arrays["models"], np.array([device]), np.array([bool(facts["side"])]), facts["apart"])

    @staticmethod
    def reply(answer: CutOpinion) -> Message:
        """By class, for both comparisons: images, mean and mean square of the differences."""
        both = {"preference": answer.preference, "gain": answer.gain}
        return {}, {f"{name}.{field}": array[0] for name, each in both.items() for field, array in vars(each).items()}

    def nothing(self, classes: int) -> CutOpinion:
        """No image anywhere."""
        shape = (len(self.devices), classes)
        return CutOpinion(*(Paired(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)) for _ in range(2)))

    def take(self, answer: CutOpinion, device: int, told: Told) -> None:
        """Two comparisons on the same held-out images."""
        (row,) = np.flatnonzero(self.devices == device)
        shape = answer.gain.samples[row].shape
        said = {name: _differences(told, f"{name}.", shape, "validation") for name in ("preference", "gain")}
        for name, one in said.items():
            for part, array in vars(one).items():
                getattr(getattr(answer, name), part)[row] = array


@dataclass(frozen=True)
class SurveyModels(Question[Survey]):
    """Mean misfit by class of every model on a share of every device's images: on all of them, or on some.

    Of a device's images some are a fraction, but about so many at least, and one of each class.

    A model that contains a device's own update suits that device. So each may leave its own out of all that it judges,
    which takes nothing but its own arithmetic: see ``own``. The last model is then the one that all started from.
    """

    models: Singles
    devices: Ints
    images: int | None = None  # so many at least; None: all
    fraction: float = 0.0
    share: Share = "train"
    known: bool = False  # the devices were sent these models in a question just before
    own: Floats | None = None  # device × model: the weight of the device's own update in it, to be left out
    updates: Updates | None = field(default=None, compare=False)  # the devices' own, where something is left out
    kind: ClassVar[str] = "survey"

    @property
    def models_sent(self) -> int:
        """All of them, unless they were sent before."""
        return 0 if self.known else len(self.models)

    def run(self, examiner: Examiner) -> Survey:
        """Each model on the images of all devices together; device by device where no two judge the same models."""
        parts = [examiner.positions(device, self.share) for device in self.devices.tolist()]
        labels, shape = examiner.labels(np.concatenate(parts)), (len(parts), examiner.classes)
        held = np.bincount(_entry(parts) * shape[1] + labels, minlength=shape[0] * shape[1]).reshape(shape)
        if self.images is not None:
            ends = np.cumsum([len(part) for part in parts])
            each = zip(parts, np.split(labels, ends[:-1]), strict=True)
            parts = [_some(*one, self.images, self.fraction) for one in each]
            labels = examiner.labels(np.concatenate(parts))
        if self.own is None:
            losses = examiner.losses(self.models, np.concatenate(parts))
        else:
            told = (examiner.losses(self._without_own(row), part) for row, part in enumerate(parts))
            losses = np.concatenate(list(told), axis=1)
        return replace(Survey.of(misfit(losses), _entry(parts), labels, shape), samples=held)

    def _without_own(self, row: int) -> Singles:
        """The models as they would be had this device not been heard; where it is all there is, the start."""
        assert self.own is not None
        assert self.updates is not None
        share, start = self.own[row].astype(np.float32)[:, None], self.models[-1]
        moved = self.models - start - share * self.updates.rows(self.devices[row : row + 1])
        return np.asarray(start + np.where(share < 1, moved / np.maximum(1 - share, 1e-6), 0), dtype=np.float32)

    def looks(self, answer: Survey) -> Floats:
        """Every model at each image, or at about so many."""
        return np.asarray(len(self.models) * answer.looked_at(self.images, self.fraction).sum(axis=1))

    def part(self, device: int) -> Message:
        """All models, and how much of each is the device's own doing."""
        facts: Facts = {"images": self.images or 0, "fraction": self.fraction, "share": self.share}
        if self.own is not None:
            (row,) = np.flatnonzero(self.devices == device)
            facts["own"] = self.own[row].tolist()
        return facts, {"models": self.models}

    @classmethod
    def read(cls, facts: Facts, arrays: Arrays, device: int) -> Self:
        """All models, on this device's data; the update left out is the one that this device keeps."""
        me, own, updates = np.array([device]), None, None
        if "own" in facts:
            own, updates = np.array([facts["own"]]), HeldUpdates.of(me, arrays[OWN_UPDATE][None])
        images = int(facts["images"]) or None
        return cls(arrays["models"], me, images, facts["fraction"], facts["share"], own=own, updates=updates)

    @staticmethod
    def reply(answer: Survey) -> Message:
        """By class: images, and each model's misfit."""
        return {}, {"samples": answer.samples[0], "misfit": answer.misfit[0]}

    def nothing(self, classes: int) -> Survey:
        """No image anywhere."""
        devices = len(self.devices)
        return Survey(np.zeros((devices, classes), dtype=np.int64), np.zeros((devices, len(self.models), classes)))

    def take(self, answer: Survey, device: int, told: Told) -> None:
        """A misfit is from 0 to 1."""
        (row,) = np.flatnonzero(self.devices == device)
        samples = told.counts("samples", answer.samples[row].shape, self.share)
        answer.misfit[row] = told.reals("misfit", answer.misfit[row].shape, 0.0, 1.0)
        answer.samples[row] = samples


@dataclass(frozen=True)
class Subspaces(Question[Spans]):
    """The leading left singular vectors of each device's training images: of every class alone, or of all together.

    Unlike the other answers this one tells of the images themselves: a class's first vector looks like its mean image.
    """

    devices: Ints
    vectors: int  # of each class
    by_class: bool = True
    kind: ClassVar[str] = "subspaces"

    @property
    def models_sent(self) -> int:
        """None."""
        return 0

    def run(self, examiner: Examiner) -> Spans:
        """A truncated singular value decomposition for each class."""
        found = self.nothing(examiner.classes)
        for device in self.devices.tolist():
            positions = examiner.positions(device, "train")
            images, labels = examiner.features(positions).astype(np.float64), examiner.labels(positions)
            groups = [labels == each for each in range(examiner.classes)] if self.by_class else [labels >= 0]
            spanned = np.zeros((len(groups), self.vectors, images.shape[1]), dtype=np.float32)
            for row, chosen in enumerate(groups):
                if chosen.any():
                    leading = np.linalg.svd(images[chosen], full_matrices=False)[2][: self.vectors]
                    spanned[row, : len(leading)] = leading
            found.vectors[device], found.samples[device] = spanned, len(positions)
        return found

    def looks(self, answer: Spans) -> Floats:
        """About one look at every image for each vector of its class."""
        return np.array([self.vectors * answer.samples.get(device, 0) for device in self.devices.tolist()], float)

    def answer_bits(self, answer: Spans) -> Floats:
        """32 bits for each number of a vector that exists."""
        told = [answer.vectors.get(device, np.zeros((0, 0, 0))) for device in self.devices.tolist()]
        return np.array([32.0 * np.abs(each).any(axis=2).sum() * each.shape[2] for each in told])

    def part(self, device: int) -> Message:
        """How many vectors."""
        return {"vectors": self.vectors, "by_class": self.by_class}, {}

    @classmethod
    def read(cls, facts: Facts, arrays: Arrays, device: int) -> Self:
        """Of this device."""
        return cls(np.array([device]), int(facts["vectors"]), bool(facts["by_class"]))

    @staticmethod
    def reply(answer: Spans) -> Message:
        """The vectors, and of how many images."""
        ((device, vectors),) = answer.vectors.items()
        return {"samples": answer.samples[device]}, {"vectors": vectors}

    def nothing(self, classes: int) -> Spans:
        """Nobody has answered."""
        return Spans({}, {})

    def take(self, answer: Spans, device: int, told: Told) -> None:
        """Vectors of length 1 or 0, of every class that there is and as long as a sample."""
        vectors = told.singles("vectors")
        known = (told.declared.classes if self.by_class else 1, self.vectors, told.declared.values)
        shape = tuple(told if right is None else right for told, right in zip(vectors.shape, known, strict=False))
        lengths = np.linalg.norm(told.reals("vectors", shape, -1.0, 1.0), axis=-1)
        if len(vectors.shape) != len(known) or not (np.minimum(lengths, abs(lengths - 1)) < 1e-3).all():
            raise Unreadable(f"vectors: must be class × {self.vectors} × feature, of vectors of length 1 or 0")
        most = told.declared.holds.get("train", np.iinfo(np.int64).max)
        answer.samples[device] = told.whole("samples", 0, int(most))
        answer.vectors[device] = vectors


QUESTIONS: Mapping[str, type[Question[Any]]] = {
    question.kind: question for question in (Evaluate, Compare, TryCut, SurveyModels, Subspaces)
}


def find_question(kind: str) -> type[Question[Any]]:
    """The class of a kind of question; a user's own is named as ``package.module:Class``."""
    if kind in QUESTIONS:
        return QUESTIONS[kind]
    if ":" not in kind:
        raise UserError(f"question {kind!r}: no such kind; {near_miss(kind, QUESTIONS)}")
    found = load("question", kind)
    if not (isinstance(found, type) and issubclass(found, Question)):
        raise UserError(f"question {kind!r}: must be a class derived from Question")
    return found


def _differences(told: Told, prefix: str, shape: tuple[int, ...], share: Share) -> Paired:
    """Differences of two misfits as a device sums them up; a mean of squares is at least the square of the mean."""
    samples = told.counts(f"{prefix}samples", shape, share)
    mean = told.reals(f"{prefix}mean", shape, -1.0, 1.0)
    squares = told.reals(f"{prefix}squares", shape, 0.0, 1.0)
    if (squares < mean**2 - ROUNDING).any():
        raise Unreadable(f"{prefix}squares: must be at least the squares of {prefix}mean")
    return Paired(samples, mean, squares)


def _entry(parts: list[Ints]) -> Ints:
    """For each image of all parts, one after the other, which part it is of."""
    return np.repeat(np.arange(len(parts)), np.array([len(part) for part in parts], dtype=np.int64))


def _means(values: Floats, parts: list[Ints]) -> Floats:
    """The mean over each part; 0 for an empty one."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.asarray(np.bincount(_entry(parts), values, len(parts)) / np.maximum(lengths, 1))


def _some(positions: Ints, labels: Ints, images: int, fraction: float) -> Ints:
    """This fraction of a device's images, or about so many if that is more, the same share of each class."""
    order = np.argsort(labels, kind="stable")
    sorted_labels = labels[order]
    rank = np.arange(len(labels)) - np.searchsorted(sorted_labels, sorted_labels)
    share = min(1.0, max(fraction, images / max(1, len(labels))))
    return np.asarray(positions[np.sort(order[np.floor(rank * share) > np.floor((rank - 1) * share)])])
