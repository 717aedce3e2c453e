"""Where a device's data comes from: the node config's ``data``, else the run config's.

===================  ================================================================================================
``data``             meaning
===================  ================================================================================================
``module:function``  a function of one's own, ``load(node_config) -> (train, test)``; each of them (x, y)
``hf:NAME``          partition ``partition-id`` of a data set of the Hugging Face hub, through flwr-datasets
a folder             ``train.npz`` and ``test.npz`` with arrays x and y; without the second, a share is kept for testing
nothing              device ``partition-id`` of the population that the config describes: for trying things out
===================  ================================================================================================

x is N×H×W or N×C×H×W of 8 bits, or any floats, then also N×features; y are whole numbers from 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedclade.config import Config
from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.plugins import load
from fedclade.data import Population, build_population
from fedclade.data.checks import check_inputs, check_labels, read_npz
from fedclade.data.partition import split_shares, validation_positions

NodeConfig: TypeAlias = Mapping[str, bool | float | int | str]
Labelled: TypeAlias = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class DeviceData:
    """One device's data."""

    images: np.ndarray  # N × C × H × W
    labels: Ints
    shares: Mapping[str, Ints]  # train, validation, test: positions in images
    classes: int
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
            classes=self.classes,
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
    if source.startswith("hf:"):
        train, test = _from_hub(source.removeprefix("hf:"), config, node_config)
    elif _is_plugin(source):
        train, test = _from_function(source, node_config)
    else:
        train, test = _from_folder(Path(source), config)
    return _own(source, train, test, int(run_config.get("classes", 0)), config)


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
    per_device = [field.name for field in fields(Population) if _is_share(getattr(everybody, field.name))]
    return DeviceData(
        everybody.images,
        everybody.labels,
        {name: getattr(everybody, name)[device] for name in per_device},
        everybody.classes,
        everybody.mean,
        everybody.std,
        int(everybody.group[device]),
    )


def _is_share(value: object) -> bool:
    """Of a population: positions, device by device."""
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], np.ndarray)


def _from_function(source: str, node_config: NodeConfig) -> tuple[Labelled, Labelled]:
    function = load("data", source)
    if not callable(function):
        raise UserError(f"data = {source!r}: must be a function of the node config")
    found = function(node_config)
    try:
        (x_train, y_train), (x_test, y_test) = found
    except (TypeError, ValueError):
        raise UserError(f"data = {source!r}: must give (x_train, y_train), (x_test, y_test)") from None
    return (x_train, y_train), (x_test, y_test)


def _from_folder(folder: Path, config: Config) -> tuple[Labelled, Labelled]:
    train = _read_npz(folder / "train.npz")
    if (folder / "test.npz").is_file():
        return train, _read_npz(folder / "test.npz")
    x, y = train
    kept, _, held_out = split_shares(np.arange(len(y)), config.population.test_share, 0.0, config.run.seed, 0)
    return (x[kept], y[kept]), (x[held_out], y[held_out])


def _read_npz(path: Path) -> Labelled:
    x, y = read_npz(path, ("x", "y"), f"data = {str(path.parent)!r}: needs {path.name} with arrays x and y")
    return x, y


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


def _own(source: str, train: Labelled, test: Labelled, classes: int, config: Config) -> DeviceData:
    """Check and join the two shares; some of the training images are held out for split tests."""
    where, pairs = f"data = {source!r}", []
    for x, y in (train, test):
        inputs = check_inputs(where, x)
        pairs.append((inputs, check_labels(where, y, len(inputs))))
    if pairs[0][0].shape[1:] != pairs[1][0].shape[1:] or pairs[0][0].dtype != pairs[1][0].dtype:
        raise UserError(f"{where}: training and test x differ in shape or type")
    images, labels = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    if classes and labels.max() >= classes:
        raise UserError(f"{where}: has label {labels.max()}, but the run config says classes = {classes}")
    count = len(pairs[0][1])
    of_training = config.validation_share / (1.0 - config.population.test_share)
    held_out = validation_positions(np.arange(count), of_training, config.run.seed)
    shares = {
        "train": np.setdiff1d(np.arange(count), held_out),
        "validation": held_out,
        "test": np.arange(count, len(labels)),
    }
    return DeviceData(images, labels, shares, classes or int(labels.max()) + 1, (0.0,), (1.0,), group=-1)
