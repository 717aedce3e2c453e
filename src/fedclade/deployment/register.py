"""Who device 0, 1, … is, and what all devices' data has in common.

A device is known by the name it gives, however it is reached: one that comes back is the same device, with the same
number. Numbers are given in the order in which devices first come; of those who come together, by name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.task import Task

if TYPE_CHECKING:
    from fedclade.data import Population  # heavy: devices that only upload must not wait for it

PROBE_BYTES = 2**18


@dataclass(frozen=True)
class Device:
    """What a device told of itself."""

    name: str
    train_samples: int
    test_samples: int
    group: int  # planted, where the device knows it; else -1
    flops_per_second: float
    probe_seconds: float  # how long PROBE_BYTES took from the device to the server, and the question to the device

    def __post_init__(self) -> None:
        if min(self.train_samples, self.test_samples) < 1 or not self.flops_per_second > 0:
            samples = f"{self.train_samples} and {self.test_samples} samples"
            raise UserError(f"has {samples}, and {self.flops_per_second:g} operations a second")

    def upload_seconds(self, model_bits: float) -> float:
        """A first estimate of how long a model's upload takes."""
        return self.probe_seconds * max(1.0, model_bits / (8.0 * PROBE_BYTES))


@dataclass(frozen=True)
class Inputs:
    """What a device's data looks like. Shape and scale must be the same everywhere, or no model fits all devices."""

    shape: tuple[int, ...]
    classes: int  # or the numbers that a model is to tell of a sample
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: str = "uint8"
    y_mean: tuple[float, ...] = ()  # how those numbers are standardised; empty where samples have classes
    y_std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in ("uint8", "float32", "int32"):
            raise UserError(f"data are {self.dtype}, must be uint8, float32 or int32")
        if len(self.y_mean) != len(self.y_std) or len(self.y_mean) not in (0, self.classes):
            raise UserError(f"{self.classes} numbers are standardised by {len(self.y_mean)} means")

    @property
    def task(self) -> Task:
        """What models are to tell of a sample."""
        return Task(self.classes, self.y_mean, self.y_std)


class Register:
    """All devices that ever came, by number.

    ``classes`` is the number of classes where the user has set it; 0 leaves it to the devices that come first.
    """

    def __init__(self, classes: int = 0) -> None:
        self.devices: list[Device] = []
        self.inputs: Inputs | None = None
        self._classes = classes

    def settle(self, coming: Sequence[Inputs]) -> None:
        """Let the devices that come first decide what the data looks like; later ones must fit."""
        if self.inputs is None and coming:
            first, most = coming[0], max(inputs.classes for inputs in coming)
            self.inputs = replace(first, classes=self._classes or most)

    def seat(self, device: Device, inputs: Inputs) -> int:
        """The number of a device, a new one if its name is new; UserError where its data does not fit."""
        self.settle([inputs])
        settled = self.settled
        if replace(inputs, classes=settled.classes) != settled:
            kind, right = (f"{one.dtype} of shape {one.shape}" for one in (inputs, settled))
            raise UserError(f"data are {kind}, not {right}, or scaled differently, or told other things of")
        if inputs.classes > settled.classes:
            raise UserError(f"{inputs.classes} classes, not {settled.classes}: set classes in the run config")
        for number, known in enumerate(self.devices):
            if known.name == device.name:
                self.devices[number] = device
                return number
        self.devices.append(device)
        return len(self.devices) - 1

    @property
    def settled(self) -> Inputs:
        """What the data looks like; only after a device has come."""
        if self.inputs is None:
            raise AssertionError("no device has told yet what its data looks like")
        return self.inputs

    @property
    def samples(self) -> Ints:
        """D_k."""
        return np.array([device.train_samples for device in self.devices], dtype=np.int64)

    @property
    def groups(self) -> Ints:
        """The planted group of each device; one group of all where somebody does not know its own."""
        groups = np.array([device.group for device in self.devices], dtype=np.int64)
        return groups if (groups >= 0).all() else np.zeros_like(groups)

    def population(self) -> "Population":
        """What the server knows of the devices' data: what it looks like, and nothing of the data itself."""
        from fedclade.data import Population

        inputs, none = self.settled, (np.zeros(0, dtype=np.int64),) * len(self.devices)
        return Population(
            images=np.zeros((0, *inputs.shape), dtype=inputs.dtype),
            labels=np.zeros((0, inputs.classes), np.float32) if inputs.y_mean else np.zeros(0, dtype=np.int64),
            train=none,
            validation=none,
            test=none,
            group=self.groups,
            task=inputs.task,
            mean=inputs.mean,
            std=inputs.std,
        )

    # -------------------------------------------------------------------------------- what a resumed run must know

    def to_json(self) -> dict[str, Any]:
        """Who is device 0, 1, …, and what the data looks like, as plain data."""
        return {"inputs": asdict(self.settled), "devices": [asdict(device) for device in self.devices]}

    def remember(self, known: dict[str, Any]) -> None:
        """The inverse of ``to_json``: the devices keep their numbers."""
        inputs = known["inputs"]
        facts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in inputs.items()}
        self.inputs = Inputs(**facts)
        self.devices = [Device(**device) for device in known["devices"]]


def by_name(names: Iterable[str]) -> list[str]:
    """Names in order: numbers by their size, before words."""
    return sorted(names, key=lambda name: (0, int(name), "") if name.isdigit() else (1, 0, name))
