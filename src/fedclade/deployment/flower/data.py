"""Where a device's data comes from: the node config's ``data``, else the run config's.

===================  ================================================================================================
``data``             meaning
===================  ================================================================================================
``module:function``  a function of one's own, ``load(node_config) -> (train, test)``; each of them (x, y)
``hf:NAME``          partition ``partition-id`` of a data set of the Hugging Face hub, through flwr-datasets
a file or a folder   the device's own, as ``fedclade.data.files`` reads it: an .npz with x and y, or a .csv; or a folder
                     with ``train.npz`` and ``test.npz``, without the second of which a share is kept for testing
nothing              device ``partition-id`` of the population that the config describes: for trying things out
===================  ================================================================================================

What x and y may be is told in docs/how-to/own-data.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints, Targets
from fedclade.core.errors import UserError
from fedclade.core.plugins import load, users_code
from fedclade.core.task import Task
from fedclade.data import Population, Source, build_population, validation_share_of_training
from fedclade.data.checks import SPLITS, check_inputs, check_targets
from fedclade.data.files import read_device
from fedclade.data.partition import given_shares, split_shares

NodeConfig: TypeAlias = Mapping[str, bool | float | int | str]
Labelled: TypeAlias = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class DeviceData:
    """One device's data."""

    images: np.ndarray  # N × C × H × W
    labels: Targets
    shares: Mapping[str, Ints]  # train, validation, test: positions in images
    task: Task
    mean: tuple[float, ...]
    std: tuple[float, ...]
    group: int  # planted, where it is known; else -1

    def seated(self, device: int) -> Population:
        """A population in which this is the device of that number, and the others have nothing."""
        nothing = (np.zeros(0, dtype=np.int64),) * device
        shares: dict[str, Any] = {name: (*nothing, positions) for name, positions in self.shares.items()}
        group = np.full(device + 1, self.group)
        return Population(
            images=self.images,
            labels=self.labels,
            group=group,
            task=self.task,
            mean=self.mean,
            std=self.std,
            **shares,
        )


def device_name(node_config: NodeConfig, node_id: int) -> str:
    """What a device is called, whatever node it comes back as: ``device``, else ``partition-id``, else the node."""
    for key in ("device", "partition-id"):
        if key in node_config:
            return str(node_config[key])
    return f"node-{node_id}"


def load_data(config: Config, node_config: NodeConfig, run_config: NodeConfig) -> DeviceData:
    """The data of this device."""
    source = str(node_config.get("data") or run_config.get("data") or "")
    if not source:
        return _partition(config, node_config)
    where = f"data = {source!r}"
    if source.startswith("hf:"):
        mine = _joined(where, config.population.targets, *_from_hub(source.removeprefix("hf:"), config, node_config))
    elif _is_plugin(source):
        mine = _joined(where, config.population.targets, *_from_function(source, node_config))
    else:
        mine = read_device(Path(source), config.population, where)
    return _own(where, mine, int(run_config.get("classes", 0)), config)


def _is_plugin(source: str) -> bool:
    module, colon, name = source.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _partition_id(node_config: NodeConfig) -> int:
    found = node_config.get("partition-id")
    if not isinstance(found, int):
        raise UserError(f"node config: partition-id = {found!r}: must be a number from 0, or set data to your own")
    return found


def _partition(config: Config, node_config: NodeConfig) -> DeviceData:
    """One device of the population that a simulation of the same config would have."""
    device = _partition_id(node_config)
    devices = int(node_config.get("num-partitions", config.population.devices))
    if not 0 <= device < devices:
        raise UserError(f"node config: partition-id = {device}: must be below num-partitions = {devices}")
    of_all = config.model_copy(update={"population": config.population.model_copy(update={"devices": devices})})
    everybody = build_population(of_all)
    return DeviceData(
        everybody.images,
        everybody.labels,
        {name: getattr(everybody, name)[device] for name in SPLITS},
        everybody.task,
        everybody.mean,
        everybody.std,
        int(everybody.group[device]),
    )


def _from_function(source: str, node_config: NodeConfig) -> tuple[Labelled, Labelled]:
    function = load("data", source)
    if not callable(function):
        raise UserError(f"data = {source!r}: must be a function of the node config")
    with users_code(f"data = {source!r}"):
        found = function(node_config)
    try:
        (x_train, y_train), (x_test, y_test) = found
    except (TypeError, ValueError):
        raise UserError(f"data = {source!r}: must give (x_train, y_train), (x_test, y_test)") from None
    return (x_train, y_train), (x_test, y_test)


def _from_hub(name: str, config: Config, node_config: NodeConfig) -> tuple[Labelled, Labelled]:
    try:
        from flwr_datasets import FederatedDataset
    except ImportError:
        raise UserError(f"data = 'hf:{name}': needs flwr-datasets: pip install 'flwr-datasets[vision]'") from None
    partitions = int(node_config.get("num-partitions", config.population.devices))
    dataset = FederatedDataset(dataset=name, partitioners={"train": partitions})
    mine = dataset.load_partition(_partition_id(node_config), "train")
    parts = mine.train_test_split(test_size=config.population.test_share, seed=config.run.seed)
    kinds = {column: type(feature).__name__ for column, feature in mine.features.items()}
    columns = [next((c for c, kind in kinds.items() if kind == wanted), None) for wanted in ("Image", "ClassLabel")]
    if None in columns:
        raise UserError(f"data = 'hf:{name}': has no column of images or none of labels; write a load function for it")
    image, label = columns

    def labelled(part: Any) -> Labelled:
        return np.stack([_channels_first(np.asarray(one)) for one in part[image]]), np.asarray(part[label])

    return labelled(parts["train"]), labelled(parts["test"])


def _channels_first(image: np.ndarray) -> np.ndarray:
    return image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)


def _joined(where: str, targets: str, train: Labelled, test: Labelled) -> Source:
    """The two shares as one source that says which sample is in which."""
    pairs = []
    for x, y in (train, test):
        inputs = check_inputs(where, x)
        pairs.append((inputs, check_targets(where, y, len(inputs), targets)))
    if pairs[0][0].shape[1:] != pairs[1][0].shape[1:] or pairs[0][0].dtype != pairs[1][0].dtype:
        raise UserError(f"{where}: training and test x differ in shape or type")
    if pairs[0][1].shape[1:] != pairs[1][1].shape[1:]:
        raise UserError(f"{where}: training and test y are not both classes or both numbers; set population.targets")
    x, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return Source(x, y, split=np.repeat(["train", "test"], [len(labels) for _, labels in pairs]))


def _own(where: str, source: Source, classes: int, config: Config) -> DeviceData:
    """Check a device's own data; some of its training samples are held out for split tests.

    Numbers in y are learnt as they are, unless the data say how they are standardised: no device knows the others'.
    """
    targets = config.population.targets
    labels = check_targets(where, source.y, len(source.y), targets)  # before texts could be numbered: others have more
    one = np.zeros(len(labels), dtype=np.int64)
    mine = replace(source, y=labels, device=one, group=None).checked(where, targets)
    if mine.numbers:
        outputs = labels.shape[1]
        task = Task(outputs, mine.y_mean or (0.0,) * outputs, mine.y_std or (1.0,) * outputs)
        labels = task.standardised(labels)
    else:
        task = Task(classes or int(labels.max()) + 1)
        if labels.max() >= task.outputs:
            raise UserError(f"{where}: has label {labels.max()}, but the run config says classes = {classes}")
    everything, split = np.arange(len(labels)), mine.split
    if split is None:
        _, _, test = split_shares(everything, config.population.test_share, 0.0, config.run.seed, 0)
        split = np.where(np.isin(everything, test), SPLITS.index("test"), SPLITS.index("train"))
    shares = given_shares(everything, split, validation_share_of_training(config), config.run.seed)
    named = dict(zip(SPLITS, shares, strict=True))
    return DeviceData(mine.x, labels, named, task, mine.mean, mine.std, group=-1)
