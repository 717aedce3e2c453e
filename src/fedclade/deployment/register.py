"""Who device 0, 1, … is, and what all devices' data has in common.

A device is known by the name it gives, however it is reached: one that comes back is the same device, with the same
number. Numbers are given in the order in which devices first come; of those who come together, by name. What a device
says of itself is believed within the limits of the config's section ``deployment``.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedclade.core.arrays import Ints
from fedclade.core.errors import UserError
from fedclade.core.task import Task
from fedclade.fleet.told import Declared, Told, Unreadable

if TYPE_CHECKING:
    from fedclade.config import DeploymentConfig
    from fedclade.data import Population  # heavy: devices that only upload must not wait for it

PROBE_BYTES = 2**18
NAME = r"[A-Za-z0-9._:@-]{1,64}"
NAME_IN_WORDS = "must be 1 to 64 ASCII letters, digits or any of . _ : @ -"
SLOWEST, FASTEST = 1e3, 1e18  # operations a second of a device that is believed
GROUPS = 10_000  # planted ones
SIDES = 8  # of a sample's shape
LARGE = 1e9  # numbers that samples are normalised with are smaller
Y = (("y_mean", -LARGE), ("y_std", 1 / LARGE))  # of targets that are numbers, and what these are at least
LIARS = 5  # one in so many devices may lie about the number of classes, and is not followed


@dataclass(frozen=True)
class Device:
    """What a device told of itself."""

    name: str
    train_samples: int
    test_samples: int
    group: int  # planted, where the device knows it; else -1
    flops_per_second: float
    probe_seconds: float  # how long PROBE_BYTES took from the device to the server, and the question to the device
    validation_samples: int | None = None  # held out of the training samples; None: it did not say
    key: str = ""  # SHA-256 of the public key of its node, as hexadecimal digits; empty: not known

    def __post_init__(self) -> None:
        if min(self.train_samples, self.test_samples) < 1 or not self.flops_per_second > 0:
            samples = f"{self.train_samples} and {self.test_samples} samples"
            raise UserError(f"has {samples}, and {self.flops_per_second:g} operations a second")

    @property
    def holds(self) -> Mapping[str, int]:
        """How many samples of each share it has declared."""
        held_out = self.train_samples if self.validation_samples is None else self.validation_samples
        return {"train": self.train_samples, "validation": held_out, "test": self.test_samples}

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

    @property
    def regardless_of_classes(self) -> tuple[object, ...]:
        """All but the number of classes: a device may know of fewer than others do."""
        return tuple(getattr(self, one.name) for one in fields(self) if one.name != "classes")

    @property
    def looks(self) -> str:
        """For people."""
        return f"{self.dtype} of shape {self.shape}"

    def __post_init__(self) -> None:
        if self.dtype not in ("uint8", "float32", "int32"):
            raise UserError(f"data are {self.dtype}, must be uint8, float32 or int32")
        if len(self.y_mean) != len(self.y_std) or len(self.y_mean) not in (0, self.classes):
            raise UserError(f"{self.classes} numbers are standardised by {len(self.y_mean)} means")

    @property
    def task(self) -> Task:
        """What models are to tell of a sample."""
        return Task(self.classes, self.y_mean, self.y_std)


def described(told: Told, seconds: float, key: str, limits: "DeploymentConfig") -> tuple[Device, Inputs]:
    """What a node said of itself, in a reply that took so many seconds; ``Unreadable`` where that cannot be."""
    shape = told.wholes("shape", 1, limits.values_max, SIDES)
    if math.prod(shape) > limits.values_max:
        raise Unreadable(f"shape = {list(shape)}: must be at most {limits.values_max} numbers a sample")
    told.array("probe", (PROBE_BYTES // 4,), "i", "whole numbers")
    worked, most = told.number("seconds", 0.0, limits.deadline_cap_seconds), limits.samples_max
    device = Device(
        name=told.text("name", NAME, NAME_IN_WORDS),
        train_samples=told.whole("train_samples", 1, most),
        test_samples=told.whole("test_samples", 1, most),
        group=told.whole("group", -1, GROUPS),
        flops_per_second=told.number("flops_per_second", SLOWEST, FASTEST),
        probe_seconds=min(max(seconds - worked, 1e-3), limits.deadline_cap_seconds),
        validation_samples=told.whole("validation_samples", 0, most),
        key=key,
    )
    inputs = Inputs(
        shape,
        told.whole("classes", 1, limits.classes_max),
        told.numbers("mean", -LARGE, LARGE, limits.values_max),
        told.numbers("std", 1 / LARGE, LARGE, limits.values_max),
        told.text("dtype", "[a-z0-9]{1,16}", "must be uint8, float32 or int32"),
        *(told.numbers(name, least, LARGE, limits.classes_max) if told.facts.get(name) else () for name, least in Y),
    )
    return device, inputs


class Register:
    """All devices that ever came, by number.

    ``classes`` is the number of classes where the user has set it; 0 leaves it to the devices that come first.
    """

    def __init__(self, limits: "DeploymentConfig", classes: int = 0) -> None:
        self.devices: list[Device] = []
        self.inputs: Inputs | None = None
        self._limits, self._classes = limits, classes

    def settle(self, coming: Sequence[Inputs]) -> None:
        """Let most of the devices that come first decide what the data looks like; later ones must fit.

        What the config says of it counts before all of them. So many classes are settled on as more than a fifth of
        the devices know of: no smaller part of them can make a model larger than it has to be.
        """
        fitting = [inputs for inputs in coming if self._fits_config(inputs)]
        if self.inputs is not None or not fitting:
            return
        (common, votes), *others = Counter(inputs.regardless_of_classes for inputs in fitting).most_common()
        agreeing = sorted(
            (one for one in fitting if one.regardless_of_classes == common), key=lambda one: one.classes, reverse=True
        )
        if others and others[0][1] == votes:
            other = next(one for one in fitting if one.regardless_of_classes == others[0][0])
            raise UserError(
                f"as many devices say that their data are {agreeing[0].looks} as {other.looks}: "
                "set shape, mean and std of the section deployment"
            )
        known = agreeing[len(agreeing) // LIARS]
        self.inputs = replace(known, classes=self._classes or known.classes)

    def _fits_config(self, inputs: Inputs) -> bool:
        wanted = ((getattr(self._limits, name), getattr(inputs, name)) for name in ("shape", "mean", "std"))
        return all(not right or right == told for right, told in wanted)

    def seat(self, device: Device, inputs: Inputs) -> int:
        """The number of a device, a new one if its name is new; UserError where its data or its name is not to be."""
        self.settle([inputs])
        if self.inputs is None:
            raise UserError(f"data are {inputs.looks}, which is not what the section deployment says")
        settled = self.settled
        if replace(inputs, classes=settled.classes) != settled:
            raise UserError(
                f"data are {inputs.looks}, not {settled.looks}, or scaled differently, or told other things of"
            )
        if inputs.classes > settled.classes:
            raise UserError(f"{inputs.classes} classes, not {settled.classes}: set classes in the run config")
        if self._limits.bound_names and not device.key:
            raise UserError("its node has no key, and deployment.bound_names is set")
        for number, known in enumerate(self.devices):
            if known.name == device.name:
                if self._limits.bound_names and known.key not in ("", device.key):
                    raise UserError(f"the name {device.name} belongs to the key of another node")
                self.devices[number] = device
                return number
        if len(self.devices) >= self._limits.devices_max:
            raise UserError(f"there are {len(self.devices)} devices, and deployment.devices_max is no more")
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
        """D_k, as far as it is believed: no device's word counts for many times what the others' does."""
        declared = np.array([device.train_samples for device in self.devices], dtype=np.int64)
        most = math.ceil(self._limits.samples_over_median * np.median(declared)) if len(declared) else 0
        return np.minimum(declared, most)

    def declared(self, number: int) -> Declared:
        """What replies of a device are held against."""
        device, inputs = self.devices[number], self.settled
        credit = float(self.samples[number] / device.train_samples)
        return Declared(device.holds, credit, math.prod(inputs.shape), inputs.task.strata, inputs.task.score.least)

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
        """The inverse of ``to_json``: the devices keep their numbers. Where nothing is known, nobody has come yet."""
        if not known:
            return
        inputs = known["inputs"]
        facts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in inputs.items()}
        self.inputs = Inputs(**facts)
        self.devices = [Device(**device) for device in known["devices"]]


def by_name(names: Iterable[str]) -> list[str]:
    """Names in order: numbers by their size, before words."""
    return sorted(names, key=lambda name: (0, int(name), "") if name.isdigit() else (1, 0, name))
