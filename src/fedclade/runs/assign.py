"""Where a device belongs that the run never heard: a walk down the tree, to the side whose models serve it better."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedclade.config import Config
from fedclade.core.errors import UserError
from fedclade.core.tree import ROOT
from fedclade.data import Population, build_population
from fedclade.data.checks import check_inputs, check_targets
from fedclade.data.files import read_device
from fedclade.fleet.questions import Compare, Evaluate
from fedclade.fleet.simulated.sgd import Local
from fedclade.runs.reader import Run

GUESSING = 0.01  # a model fits if it would look as good as this by chance in less than one of a hundred cases


@dataclass(frozen=True)
class Step:
    """One fork of the walk."""

    node: str
    chosen: str
    refused: str
    loss: float  # of the best leaf below the chosen child
    refused_loss: float  # of the best leaf below the other
    p_value: float  # of the difference being none, or the other way round


@dataclass(frozen=True)
class Placement:
    """A device's place, and how it was found."""

    steps: tuple[Step, ...]
    leaf: str
    loss: float
    score: float
    scored: str  # what the score is: accuracy, or r2
    images: int
    p_value: float  # of the leaf's model being no better than one that knows nothing
    model: Path  # the leaf's

    @property
    def fits(self) -> bool:
        """Whether the leaf's model fits the images at all: whether it is clearly better than guessing."""
        return self.p_value < GUESSING


def place(
    folder: str | Path,
    *,
    data: str | Path | None = None,
    device: int | None = None,
    population: Population | None = None,
) -> Placement:
    """Place the samples of a file, or a device of the run's own population, in a finished run's tree.

    The file is one device's own, as a folder of data has one for each (docs/how-to/own-data.md): a NumPy archive (.npz)
    with ``x``, of the shape and type of the run's own data, and ``y``, or a table (.csv). A device's test images are
    left out. ``population`` is that of an ``Experiment`` whose devices were given in Python.
    """
    run = Run(folder)
    if not run.finished:
        raise UserError(f"{folder}: not finished; there are no models to choose from yet")
    population = build_population(run.config) if population is None else population
    mine = _of_file(Path(data), population, run.config) if data is not None else _of_device(device, population)
    return _walk(run, Local(run.config, mine, "autograd"), len(mine.train[0]))


def _walk(run: Run, local: Local, images: int) -> Placement:
    tree = run.read_tree()
    leaves = [leaf.name for leaf in tree.leaves()]
    models = np.stack([local.flat(run.model(name)) for name in leaves])
    nothing = np.zeros_like(models[:1])  # a model of zeros finds every class equally likely
    me = np.zeros(1, dtype=np.int64)
    everywhere = Evaluate(models, np.zeros(len(models), dtype=np.int64), np.arange(len(models)), "train").run(local)
    losses = dict(zip(leaves, everywhere.loss.tolist(), strict=True))
    here, steps = ROOT, list[Step]()
    while children := tree.nodes[here].children:
        best = {child: min(tree.leaves_below(child), key=losses.__getitem__) for child in children}
        chosen, refused, *_ = sorted(best, key=lambda child: losses[best[child]])
        first, second = (np.array([leaves.index(best[child])]) for child in (chosen, refused))
        _, p_value = Compare(models, me, first, second, "train").run(local).test()
        steps.append(Step(here, chosen, refused, losses[best[chosen]], losses[best[refused]], p_value))
        here = chosen
    leaf = min(tree.leaves_below(here), key=losses.__getitem__)  # more than one where it was merged into one that split
    mine = leaves.index(leaf)
    against = Compare(np.concatenate([models, nothing]), me, np.array([mine]), np.array([len(models)]), "train")
    _, guessing = against.run(local).test()
    file = run.folder / "models" / f"{leaf}.safetensors"
    return Placement(
        tuple(steps), leaf, losses[leaf], float(everywhere.score[mine]), local.task.score.name, images, guessing, file
    )


def _of_device(device: int | None, population: Population) -> Population:
    if device is None or not 0 <= device < population.devices:
        raise UserError(f"--device {device}: must be from 0 to {population.devices - 1}")
    known = np.concatenate([population.train[device], population.validation[device]])
    return _alone(population.images[known], population.labels[known], population)


def _of_file(path: Path, population: Population, config: Config) -> Population:
    where = f"--data {path}"
    found = read_device(path, config.population, where)
    inputs, known = check_inputs(where, found.x), population.images
    if (inputs.dtype, inputs.shape[1:]) != (known.dtype, known.shape[1:]):
        raise UserError(f"{where}: x is {inputs.dtype} {inputs.shape}, must be {known.dtype} (N, {known.shape[1:]})")
    task = population.task
    kind = "numbers" if task.numbers else "classes"
    targets = check_targets(where, found.y, len(inputs), kind, task.outputs)
    if task.numbers and targets.shape[1] != task.outputs:
        raise UserError(f"{where}: y has {targets.shape[1]} numbers for a sample, must have {task.outputs}")
    return _alone(inputs, task.standardised(targets) if task.numbers else targets, population)


def _alone(images: np.ndarray, labels: np.ndarray, population: Population) -> Population:
    """One device with these images and nothing held out."""
    everything, nothing = np.arange(len(images)), np.arange(0)
    return Population(
        images,
        labels,
        (everything,),
        (nothing,),
        (nothing,),
        np.zeros(1, dtype=np.int64),
        population.task,
        population.mean,
        population.std,
    )
